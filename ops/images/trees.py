"""Root file systems: packages unpacked into a folder, what is not wanted dropped, the rest checked and packed."""

from __future__ import annotations

import os
import stat
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ops.images.archives import sha256_of
from ops.images.elf import read_dynamic
from ops.images.packages import RootFs
from services.core.errors import NotReady

USER_ID = 65532
_STATUS = "var/lib/dpkg/status.d"
_CERTIFICATES = "usr/share/ca-certificates/mozilla"
_SHARED = ("lib/*-linux-gnu", "usr/lib/*-linux-gnu")
_BUNDLE = "etc/ssl/certs/ca-certificates.crt"
_PASSWD = f"""root:x:0:0:root:/:/sbin/nologin
undercroft:x:{USER_ID}:0:Undercroft:/tmp:/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin
"""
_GROUP = "root:x:0:\nnogroup:x:65534:\n"


@dataclass(frozen=True, slots=True)
class Package:
    """One Debian package file; ``control`` is its own description of itself."""

    path: Path
    name: str
    version: str
    architecture: str
    control: str
    sha256: str

    @classmethod
    def read(cls, path: Path) -> Package:
        """Read the control fields and the digest of a package file."""
        control = subprocess.run(
            ["dpkg-deb", "--field", path], check=True, capture_output=True, text=True
        ).stdout.rstrip()
        fields = dict(line.split(": ", 1) for line in control.splitlines() if ": " in line and line[0] != " ")
        return cls(path, fields["Package"], fields["Version"], fields["Architecture"], control, sha256_of(path))


def choose(root: RootFs, available: Mapping[str, Package]) -> list[Package]:
    """Return the packages of a root file system. Raises ``NotReady`` for one that Debian does not have."""
    if missing := [name for name in root.packages if name not in available]:
        raise NotReady(
            f"Debian {root.suite} gives no package {', '.join(missing)}.",
            remedy=f"Correct [{root.name}] in ops/images/packages.toml; a library's name changes with its version.",
            reason="PACKAGE_MISSING",
        )
    return [available[name] for name in root.packages]


def unpack(root: RootFs, packages: Iterable[Package], tree: Path) -> None:
    """Unpack packages into an empty folder, drop what is not wanted, and add what maintainer scripts would make."""
    tree.mkdir(parents=True)
    (tree / _STATUS).mkdir(parents=True)
    for package in packages:
        subprocess.run(["dpkg-deb", "--extract", package.path, tree], check=True)
        # A stanza a file is how scanners find packages where there is no package manager.
        stanza = package.control.replace("\n", "\nStatus: install ok installed\n", 1)
        (tree / _STATUS / package.name).write_text(f"{stanza}\n", "utf-8")
    if "dash" in root.packages:
        (tree / "usr/bin/sh").unlink(missing_ok=True)
        (tree / "usr/bin/sh").symlink_to("dash")
    if not root.on:
        _complete(tree)
    _drop(root, tree)
    for name in root.folders:
        (tree / name).mkdir(parents=True)


def compile_library(tree: Path) -> None:
    """Compile Python's standard library, where a tree has one, by the interpreter and the loader of the tree itself.

    Nobody may write into an image, so each start would compile anew what is not compiled here. The bytes depend on the
    sources alone. Raises ``NotReady`` where the interpreter does not run here.
    """
    library = next(tree.glob("usr/lib/python3.*/compileall.py"), None)
    if library is None:
        return
    interpreter = tree / "usr/bin" / library.parent.name
    loader = min(tree.glob("lib*/ld-linux-*.so.*"))
    shared = ":".join(str(folder) for pattern in _SHARED for folder in sorted(tree.glob(pattern)))
    options = ("-q", "-f", "-j1", "--invalidation-mode=unchecked-hash", "-s", str(tree), "-p", "/", str(library.parent))
    command = [str(loader), "--library-path", shared, str(interpreter), "-B", "-s", "-S", "-m", "compileall", *options]
    environment = {"PYTHONHOME": str(tree / "usr"), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        raise NotReady(
            f"Python's standard library was not compiled: {(done.stdout + done.stderr).strip()[-600:]}",
            remedy="Make the bases on a machine with the processor of the images.",
            reason="BASE_FAILED",
        )


def _complete(tree: Path) -> None:
    (tree / "etc/passwd").write_text(_PASSWD, "utf-8")
    (tree / "etc/group").write_text(_GROUP, "utf-8")
    for name in ("tmp", "run", "proc", "sys", "dev"):
        (tree / name).mkdir(exist_ok=True)
    certificates = sorted((tree / _CERTIFICATES).glob("*.crt"))
    if certificates:
        (tree / _BUNDLE).parent.mkdir(parents=True, exist_ok=True)
        (tree / _BUNDLE).write_text("".join(file.read_text("utf-8") for file in certificates), "utf-8")
        for file in certificates:
            file.unlink()
        # Where OpenSSL looks when it is told nothing.
        (tree / "usr/lib/ssl").mkdir(parents=True, exist_ok=True)
        (tree / "usr/lib/ssl/certs").symlink_to("/etc/ssl/certs")
        (tree / "usr/lib/ssl/cert.pem").symlink_to(f"/{_BUNDLE}")


def _drop(root: RootFs, tree: Path) -> None:
    for path in sorted(tree.rglob("*"), reverse=True):
        name = path.relative_to(tree).as_posix()
        if path.is_symlink() or not path.is_dir():
            if not root.keeps(name):
                path.unlink()
        elif not any(path.iterdir()) and name.count("/") >= 1:
            path.rmdir()


def check_links(trees: Sequence[Path]) -> None:
    """Prove that every library which a program or library of the first tree asks for is in one of the trees.

    Raises ``NotReady`` with what is missing and who asks for it.
    """
    found = {path.name for tree in trees for path in tree.rglob("*.so*")}
    missing: dict[str, list[str]] = {}
    for path in _files(trees[0]):
        for name in _needed(path):
            if name not in found:
                missing.setdefault(name, []).append(path.relative_to(trees[0]).as_posix())
    if missing:
        said = "; ".join(f"{name} for {', '.join(sorted(users)[:3])}" for name, users in sorted(missing.items()))
        raise NotReady(
            f"Libraries are missing: {said}.",
            remedy="Name their packages in ops/images/packages.toml, or drop what asks for them.",
            reason="LIBRARY_MISSING",
        )


def _needed(path: Path) -> tuple[str, ...]:
    dynamic = read_dynamic(path)
    return dynamic.needed if dynamic else ()


def _files(tree: Path) -> Iterator[Path]:
    return (path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())


def pack(root: RootFs, tree: Path, archive: Path, epoch_s: int) -> str:
    """Pack a tree, the same bytes for the same files; returns the SHA-256.

    Files belong to root, and have no right that their owner alone has: a process of any user may read them all.
    """
    partial = archive.with_suffix(".partial")
    with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(tree.rglob("*"), key=lambda one: one.relative_to(tree).as_posix()):
            tar_info = tar.gettarinfo(path, path.relative_to(tree).as_posix())
            tar_info.uid = tar_info.gid = 0
            tar_info.uname = tar_info.gname = "root"
            tar_info.mtime = epoch_s
            tar_info.mode = 0o775 if tar_info.name in root.folders else _mode(tar_info)
            if tar_info.isreg():
                with path.open("rb") as file:
                    tar.addfile(tar_info, file)
            else:
                tar.addfile(tar_info)
    os.replace(partial, archive)
    return sha256_of(archive)


def _mode(tar_info: tarfile.TarInfo) -> int:
    if tar_info.name == "tmp":
        return 0o1777
    if tar_info.isdir() or tar_info.mode & stat.S_IXUSR:
        return 0o755
    return 0o777 if tar_info.issym() else 0o644
