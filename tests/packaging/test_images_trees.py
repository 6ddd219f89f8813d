"""Root file systems: what of a package is kept, that nothing is missing, and the same bytes every time."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.images.elf import read_dynamic
from ops.images.packages import BUILDER, RootFs, load_packages, read_lock, write_lock
from ops.images.trees import Package, check_links, choose, compile_library, pack, unpack
from services.core.errors import NotReady
from tests.support.files import write

PYTHON = Path(sys.executable).resolve()
EPOCH_S = 1_700_000_000


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """A real Debian package with a program, a library's folder, a manual page, a licence and a man page."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("no dpkg-deb here")
    root = write(
        tmp_path / "package",
        {
            "DEBIAN/control": "Package: tool\nVersion: 1.2-3\nArchitecture: all\nMaintainer: Nobody <n@example.org>\n"
            "Description: a tool\n of several lines\n",
            "usr/bin/tool": "#!/bin/sh\n",
            "usr/bin/other": "#!/bin/sh\n",
            "usr/share/tool/data": "data",
            "usr/share/tool/extra/data": "data",
            "usr/share/man/man1/tool.1": "manual",
            "usr/share/doc/tool/copyright": "licence",
            "usr/share/doc/tool/changelog": "changes",
        },
    )
    deb = tmp_path / "tool.deb"
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", root, deb], check=True, capture_output=True)
    return Package.read(deb)


def test_of_a_package_wanted_programs_data_and_licence_stay(package: Package, tmp_path: Path) -> None:
    root = RootFs("r", "s", ("tool",), frozenset({"usr/bin/tool"}), ("usr/share/tool/extra/*",), ("data",), on="base")
    unpack(root, [package], tmp_path / "root")
    found = {
        path.relative_to(tmp_path / "root").as_posix() for path in (tmp_path / "root").rglob("*") if path.is_file()
    }
    status = "var/lib/dpkg/status.d/tool"
    assert found == {"usr/bin/tool", "usr/share/tool/data", "usr/share/doc/tool/copyright", status}
    assert "Status: install ok installed" in (tmp_path / "root" / status).read_text()
    assert (tmp_path / "root" / "data").is_dir()


def test_a_package_that_debian_does_not_have_is_named(package: Package) -> None:
    with pytest.raises(NotReady) as told:
        choose(RootFs("runtime", "bookworm", ("tool", "libgone1")), {"tool": package})
    assert "libgone1" in told.value.message
    assert "[runtime]" in told.value.remedy


def test_a_library_that_is_missing_is_named_with_who_asks_for_it(tmp_path: Path) -> None:
    needed = read_dynamic(PYTHON)
    assert needed is not None
    (tmp_path / "usr/bin").mkdir(parents=True)
    shutil.copy(PYTHON, tmp_path / "usr/bin/python3")
    with pytest.raises(NotReady) as told:
        check_links([tmp_path])
    assert told.value.reason == "LIBRARY_MISSING"
    assert "libc.so.6 for usr/bin/python3" in told.value.message
    base = write(tmp_path / "base", {f"lib/{name}": "" for name in needed.needed})
    check_links([tmp_path, base])


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0, 1))
def test_a_cut_program_is_never_misread(share: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    content = PYTHON.read_bytes()
    path = tmp_path_factory.mktemp("elf") / "cut"
    path.write_bytes(content[: int(len(content) * share)])
    try:
        found = read_dynamic(path)
    except ValueError:
        return
    whole = read_dynamic(PYTHON)
    assert whole is not None
    assert found is None or set(found.needed) <= set(whole.needed)


def test_what_is_no_program_asks_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("#!/bin/sh\n")
    assert read_dynamic(tmp_path / "text") is None


def test_the_same_files_give_the_same_archive_whoever_made_them(tmp_path: Path) -> None:
    root = RootFs("r", "s", (), folders=("data",))
    files = {"usr/lib/b": "b", "usr/lib/a": "a", "etc/c": "c", "tmp/x": "", "data/y": ""}
    first, second = write(tmp_path / "1", files), write(tmp_path / "2", dict(reversed(files.items())))
    (first / "usr/lib/l").symlink_to("a")
    (second / "usr/lib/l").symlink_to("a")
    for path in second.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (1, 1))
            path.chmod(0o700 if path.is_dir() else 0o600)
    digests = [pack(root, each, tmp_path / f"{each.name}.tar", EPOCH_S) for each in (first, second)]
    assert digests[0] == digests[1]
    with tarfile.open(tmp_path / "1.tar") as tar:
        members = tar.getmembers()
    assert {member.mtime for member in members} == {EPOCH_S}
    assert {(member.uid, member.gid) for member in members} == {(0, 0)}
    modes = {member.name: member.mode for member in members}
    assert modes["tmp"] == 0o1777
    assert modes["data"] == 0o775
    assert modes["usr/lib/a"] == 0o644
    assert not any(mode & (stat.S_ISUID | stat.S_ISGID) for mode in modes.values())


def test_no_image_but_postgres_has_a_shell_and_every_package_is_recorded() -> None:
    roots = load_packages()
    for root in roots.values():
        shells = {name for name in root.programs if Path(name).name in {"sh", "bash", "dash", "perl", "apt", "dpkg"}}
        assert not shells or root.name == "postgres"
        recorded = {name.partition("/")[2].split(" ")[0] for name in read_lock() if name.startswith(f"{root.name}/")}
        # The builder takes all that its packages depend on along.
        assert recorded == set(root.packages) or (root.name == BUILDER and recorded > set(root.packages))


def test_a_record_of_packages_is_read_as_it_was_written(tmp_path: Path) -> None:
    packages = {"runtime/libc6 2.36-9 amd64": "a" * 64, "git/git 1:2.39 amd64": "b" * 64}
    write_lock(packages, tmp_path / "lock")
    assert read_lock(tmp_path / "lock") == packages


def python_tree(folder: Path, interpreter: Path) -> Path:
    """Lay out the system's own Python as a root file system: no more of its library than compiling needs."""
    code = (
        "import argparse, compileall, locale, runpy, sys\n"
        "print(*(one.__file__ for one in sys.modules.values() if getattr(one, '__file__', None)))"
    )
    named = subprocess.run([interpreter, "-I", "-S", "-c", code], check=True, capture_output=True, text=True).stdout
    listed = subprocess.run(["ldd", interpreter], check=True, capture_output=True, text=True).stdout
    libraries = [Path(word) for word in listed.split() if word.startswith("/")]
    for path in (interpreter, *map(Path, named.split()), *Path("/usr/lib/python3.11/encodings").glob("*.py")):
        copied = folder / path.relative_to("/")
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copied)
    for path in libraries:
        place = folder / ("lib64" if path.name.startswith("ld-linux") else "usr/lib/x-linux-gnu") / path.name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    return folder


def test_python_s_library_is_compiled_to_bytes_that_depend_on_the_sources_alone(tmp_path: Path) -> None:
    interpreter = Path("/usr/bin/python3.11")
    if not interpreter.is_file() or not Path("/usr/lib/python3.11/compileall.py").is_file():
        pytest.skip("the system has no Python 3.11 of its own")
    compiled = []
    for name in ("1", "second"):
        root = python_tree(tmp_path / name, interpreter)
        compile_library(root)
        library = root / "usr/lib/python3.11"
        sources = {path.relative_to(library) for path in library.rglob("*.py")}
        made = {path.relative_to(library): path.read_bytes() for path in library.rglob("*.pyc")}
        assert {path.parent.parent / f"{path.name.split('.')[0]}.py" for path in made} == sources
        assert not any(str(tmp_path).encode() in content for content in made.values())
        # Flags of PEP 552: a hash that is not checked, so that no time and no look at the source counts.
        assert {content[4:8] for content in made.values()} == {b"\1\0\0\0"}
        compiled.append(made)
    assert compiled[0] == compiled[1]
