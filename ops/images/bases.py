"""The base root file systems: fetched from Debian, signed packages only, and the same bytes from the same packages."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from ops.images.archives import archive_path, record_archives, sha256_of
from ops.images.packages import BUILDER, RootFs, read_lock, write_lock
from ops.images.trees import Package, check_links, choose, compile_library, pack, unpack
from services.core.errors import NotReady

_SMALL = ("--aptopt=APT::Install-Recommends false", "--aptopt=Acquire::Languages none")
_UNWANTED = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/doc/*",
)


def make_bases(roots: dict[str, RootFs], folder: Path, *, mirror: str, epoch_s: int, record: bool) -> None:
    """Make the archives of root file systems in ``folder``; all that one is a layer over must be among them.

    Needs mmdebstrap and a Debian mirror (the default one, or ``mirror``); root, or user namespaces with subordinate
    ids. Raises ``NotReady`` for packages and libraries that are missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    used: dict[str, str] = {}
    digests: dict[str, str] = {}
    for suite in sorted({root.suite for root in roots.values() if root.name != BUILDER}):
        of_suite = {name: root for name, root in roots.items() if root.suite == suite and name != BUILDER}
        with TemporaryDirectory(prefix="bases-", dir=folder) as scratch:
            debs = _fetch(suite, {name for root in of_suite.values() for name in root.packages}, Path(scratch), mirror)
            available = {package.name: package for package in _read(debs)}
            for root in of_suite.values():
                packages = choose(root, available)
                unpack(root, packages, Path(scratch) / root.name)
                compile_library(Path(scratch) / root.name)
                used |= _entries(root, packages)
            for root in of_suite.values():
                trees = [Path(scratch) / name for name in (root.name, root.on) if name]
                check_links(trees)
                digests[root.name] = pack(root, trees[0], archive_path(folder, root.name), epoch_s)
                _report(archive_path(folder, root.name), digests[root.name])
    if BUILDER in roots:
        archive = archive_path(folder, BUILDER)
        with TemporaryDirectory(prefix="bases-", dir=folder) as scratch:
            used |= _entries(roots[BUILDER], _make_builder(roots[BUILDER], archive, Path(scratch), mirror, epoch_s))
        digests[BUILDER] = sha256_of(archive)
        _report(archive, digests[BUILDER])
    recorded = read_lock()
    others = {name: digest for name, digest in recorded.items() if name.partition("/")[0] not in roots}
    if record:
        write_lock(others | used)
    else:
        _compare(others | used, recorded)
    # Last: what is made of a package that was refused must not be taken for whole.
    record_archives(folder, digests)


def _fetch(suite: str, packages: Iterable[str], scratch: Path, mirror: str) -> Path:
    """Let mmdebstrap fetch packages and all that they depend on; apt checks their signatures."""
    debs = scratch / "debs"
    debs.mkdir()
    _mmdebstrap(
        suite,
        "/dev/null",
        mirror,
        "--variant=extract",
        "--format=null",
        f"--include={','.join(sorted(packages))}",
        f"--extract-hook=copy-out /var/cache/apt/archives {debs}",
        epoch_s=0,
    )
    return debs / "archives"


def _make_builder(root: RootFs, archive: Path, scratch: Path, mirror: str, epoch_s: int) -> list[Package]:
    """Make the builder, a whole small Debian; returns the packages that it is made of."""
    debs = scratch / "debs"
    debs.mkdir()
    _mmdebstrap(
        root.suite,
        str(archive.with_suffix(".partial")),
        mirror,
        "--variant=minbase",
        "--format=tar",
        f"--include={','.join(root.packages)}",
        *(f"--dpkgopt={option}" for option in _UNWANTED),
        # All package files are there until the end, to be recorded.
        "--skip=essential/unlink",
        f"--customize-hook=copy-out /var/cache/apt/archives {debs}",
        epoch_s=epoch_s,
    )
    archive.with_suffix(".partial").replace(archive)
    return _read(debs / "archives")


def _read(debs: Path) -> list[Package]:
    return [Package.read(path) for path in sorted(debs.glob("*.deb"))]


def _entries(root: RootFs, packages: Iterable[Package]) -> dict[str, str]:
    return {f"{root.name}/{one.name} {one.version} {one.architecture}": one.sha256 for one in packages}


def _mmdebstrap(suite: str, target: str, mirror: str, *options: str, epoch_s: int) -> None:
    if shutil.which("mmdebstrap") is None:
        raise NotReady(
            "mmdebstrap is not installed.",
            remedy="Install it: `apt-get install mmdebstrap`. Elsewhere than on Debian, carry the base archives in.",
            reason="PROGRAM_MISSING",
        )
    command = ["mmdebstrap", *_SMALL, *options, suite, target, *([mirror] if mirror else [])]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s), "LC_ALL": "C"}
    run = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, umask=0o022)
    if run.returncode:
        said = " / ".join(line for line in run.stderr.splitlines() if line.startswith(("E:", "W:")))
        raise NotReady(
            f"mmdebstrap failed: {said[-600:]}",
            remedy="Check DEBIAN_MIRROR=…, and that this user is root or has subordinate ids (/etc/subuid).",
            reason="BASE_FAILED",
        )


def _report(archive: Path, digest: str) -> None:
    print(f"{archive.name}: {archive.stat().st_size / 1e6:.1f} MB, sha256 {digest}", flush=True)


def _compare(used: dict[str, str], recorded: dict[str, str]) -> None:
    for name in sorted(used.keys() - recorded.keys()):
        print(f"not recorded: {name}")
    for name in sorted(name for name in used.keys() & recorded.keys() if used[name] != recorded[name]):
        raise NotReady(
            f"{name} has another SHA-256 than the one that is recorded.",
            remedy="Ask who made the mirror: Debian never gives two files one version.",
            reason="PACKAGE_FOREIGN",
        )
    if used.keys() != recorded.keys():
        print("Debian has other packages than the last release: look at them, and record them with RECORD=1.")
