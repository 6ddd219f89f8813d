"""A mirror has what the sets name and nothing else: whatever differs is refused by its name, with the next step."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.wheels import installer
from ops.wheels.files import read_wheel, sha256_of
from ops.wheels.index import index_files, write_index
from ops.wheels.mirror import fill
from services.core.errors import DataLoss, InvalidArgument, NotReady
from tests.support.wheelhouse import SmallHouse, make_wheel

ROOT = Path(__file__).parents[2]


def test_a_complete_mirror_is_accepted_and_says_what_it_serves(house: SmallHouse) -> None:
    command = [sys.executable, "-m", "ops.wheels", "--root", house.root, "verify", "--mirror", house.mirror]
    command += ["--set", "search", "--set", "dev"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "6 wheels" in run.stdout
    assert f"is equal to search, dev for {house.platform.name}" in run.stdout


def _append(house: SmallHouse) -> str:
    with house.wheel("alpha").open("ab") as file:
        file.write(b"\n")
    return house.wheel("alpha").name


def _flip(house: SmallHouse) -> str:
    path = house.wheel("demo-model")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    return path.name


def _replace(house: SmallHouse) -> str:
    return make_wheel(house.mirror, "beta", files={"beta.py": "import os\n"}).name


def _other_file_of_the_release(house: SmallHouse) -> str:
    return make_wheel(house.mirror, "beta", tags="py2.py3-none-any").name


def _remove_from_image(house: SmallHouse) -> str:
    path = house.wheel("grammar-go")
    path.unlink()
    return path.name


def _remove_from_workstation(house: SmallHouse) -> str:
    house.wheel("tool").unlink()
    return "tool 3.0"


def _add_processor(house: SmallHouse) -> str:
    tags = f"py3-none-manylinux_2_17_{house.other_platform.machine}"
    return make_wheel(house.mirror, "grammar-go", tags=tags).name


def _add_system(house: SmallHouse) -> str:
    return make_wheel(house.mirror, "grammar-go", tags="py3-none-win_amd64").name


def _add_python(house: SmallHouse) -> str:
    return make_wheel(house.mirror, "grammar-go", tags=f"cp38-cp38-manylinux_2_17_{house.platform.machine}").name


def _add_project(house: SmallHouse) -> str:
    return make_wheel(house.mirror, "stranger").name


def _add_version(house: SmallHouse) -> str:
    return make_wheel(house.mirror, "alpha", "1.1").name


def _add_source(house: SmallHouse) -> str:
    (house.mirror / "alpha-1.0.tar.gz").write_bytes(b"")
    return "alpha-1.0.tar.gz"


def _add_folder(house: SmallHouse) -> str:
    (house.mirror / "more").mkdir()
    return "more"


def _add_folder_named_like_a_wheel(house: SmallHouse) -> str:
    (house.mirror / "folder-1.0-py3-none-any.whl").mkdir()
    return "folder-1.0-py3-none-any.whl"


def _add_damaged(house: SmallHouse) -> str:
    (house.mirror / "stranger-1.0-py3-none-any.whl").write_bytes(b"no archive")
    return "stranger-1.0-py3-none-any.whl"


def _add_copy_in_capitals(house: SmallHouse) -> str:
    return shutil.copy(house.wheel("tool"), house.mirror / "Tool-3.0-py3-none-any.whl").name


def _add_copy_with_a_build(house: SmallHouse) -> str:
    return shutil.copy(house.wheel("alpha"), house.mirror / "alpha-1.0-1-py3-none-any.whl").name


def _give_a_build(house: SmallHouse) -> str:
    return house.wheel("alpha").rename(house.mirror / "alpha-1.0-1-py3-none-any.whl").name


def _give_capitals(house: SmallHouse) -> str:
    return house.wheel("tool").rename(house.mirror / "Tool-3.0-py3-none-any.whl").name


def _hide_another_processor(house: SmallHouse) -> str:
    """A file of the release, by its hash, under the name of the one for here."""
    machines = (house.other_platform.machine, house.platform.machine)
    foreign, native = (f"py3-none-manylinux_2_17_{machine}" for machine in machines)
    house.wheel("tool").unlink()
    other = make_wheel(house.mirror, "tool", "3.0", tags=foreign)
    wheels = [house.wheel(name) for name in ("base", "alpha", "beta", "grammar-go")]
    house.lock("dev", [*wheels, other])
    make_wheel(house.mirror, "tool", "3.0", tags=native)
    return other.rename(other.with_name(other.name.replace(foreign, native))).name


def _link_a_wheel(house: SmallHouse) -> str:
    path = house.wheel("alpha")
    path.symlink_to(path.rename(house.root / path.name))
    return path.name


def _link_metadata(house: SmallHouse) -> str:
    path = house.mirror / f"{house.wheel('alpha').name}.metadata"
    path.symlink_to(path.rename(house.root / path.name))
    return path.name


def _link_the_index(house: SmallHouse) -> str:
    (house.mirror / "simple").symlink_to((house.mirror / "simple").rename(house.root / "simple"))
    return "simple"


def _link_a_project(house: SmallHouse) -> str:
    path = house.mirror / "simple" / "alpha"
    path.symlink_to(path.rename(house.root / "alpha"))
    return "simple/alpha"


def _add_an_empty_project(house: SmallHouse) -> str:
    (house.mirror / "simple" / "stranger").mkdir()
    return "simple/stranger"


def _change_a_set(house: SmallHouse) -> str:
    with house.locks.path("search", house.platform).open("a") as file:
        file.write("# a remark\n")
    return f"offline-wheels/locks/{house.platform.name}/search.txt"


@pytest.mark.parametrize(
    ("change", "reason", "remedy"),
    [
        (_append, "TAMPERED", "Delete it. Run `make wheels` again"),
        (_flip, "TAMPERED", "Delete it. Run `make wheels` again"),
        (_replace, "TAMPERED", "Delete it. Run `make wheels` again"),
        (_other_file_of_the_release, "TAMPERED", "Delete it. Run `make wheels` again"),
        (_remove_from_image, "MISSING", "Run `make wheels` again"),
        (_remove_from_workstation, "MISSING", "Run `make wheels` again"),
        (_add_processor, "FOREIGN", "Take it out of the mirror."),
        (_add_system, "FOREIGN", "Take it out of the mirror."),
        (_add_python, "FOREIGN", "Take it out of the mirror."),
        (_add_project, "ORPHAN", "Take it out of the mirror."),
        (_add_version, "ORPHAN", "Take it out of the mirror."),
        (_add_source, "NO_WHEEL", "Take it out of the mirror"),
        (_add_folder, "NO_WHEEL", "Take it out of the mirror"),
        (_add_folder_named_like_a_wheel, "NO_WHEEL", "Take it out of the mirror"),
        (_add_damaged, "ORPHAN", "Take it out of the mirror"),
        (_add_copy_in_capitals, "ORPHAN", "Take it out of the mirror"),
        (_add_copy_with_a_build, "ORPHAN", "Take it out of the mirror"),
        (_give_a_build, "MISNAMED", "Give it that name."),
        (_give_capitals, "MISNAMED", "Give it that name."),
        (_link_a_wheel, "LINK", "Take it out of the mirror. Run `make wheels` again"),
        (_link_metadata, "LINK", "Take it out of the mirror."),
        (_link_the_index, "LINK", "Take it out of the mirror."),
        (_add_an_empty_project, "INDEX", "Run `make index`"),
        (_change_a_set, "LOCK", ""),
    ],
)
def test_a_mirror_that_differs_is_refused_by_the_file(
    house: SmallHouse, change: Callable[[SmallHouse], str], reason: str, remedy: str
) -> None:
    subject = change(house)
    (problem,) = house.problems("search", "dev")
    assert (problem.reason, problem.subject) == (reason, subject)
    assert remedy in problem.remedy


def test_a_wheel_of_another_processor_is_seen_under_any_name(house: SmallHouse) -> None:
    name = _hide_another_processor(house)
    (foreign,) = house.problems("search", "dev")
    assert (foreign.reason, foreign.subject) == ("FOREIGN", name)
    assert foreign.remedy.startswith("Delete it. Run `make wheels`")
    assert house.other_platform.machine in foreign.message


def test_an_index_that_leads_elsewhere_is_refused_and_not_written_through(house: SmallHouse) -> None:
    _link_a_project(house)
    reasons = {problem.reason for problem in house.problems("search", "dev")}
    before = (house.root / "alpha" / "index.html").read_bytes()
    write_index(house.mirror)
    assert (reasons, house.problems("search", "dev")) == ({"INDEX"}, [])
    assert (house.root / "alpha" / "index.html").read_bytes() == before
    _link_the_index(house)
    with pytest.raises(InvalidArgument, match="is a link"):
        write_index(house.mirror)


@pytest.mark.parametrize("change", [_give_a_build, _give_capitals, _append, _remove_from_image, _add_damaged])
def test_filling_does_what_the_verifier_says_or_says_the_same(
    house: SmallHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[SmallHouse], str]
) -> None:
    shutil.copytree(house.mirror, tmp_path / "source")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "source"))
    change(house)
    left = fill(house.selection("search", "dev"), house.mirror)
    assert left == house.problems("search", "dev")
    for problem in left:
        assert (problem.reason, problem.remedy) == ("ORPHAN", "Take it out of the mirror.")
        (house.mirror / problem.subject).unlink()
    assert house.problems("search", "dev") == []


def _large(archive: zipfile.ZipFile, name: str) -> None:
    archive.writestr(name, b" " * (64 << 20), zipfile.ZIP_DEFLATED)


def _as_no_installer_reads(archive: zipfile.ZipFile, name: str) -> None:
    archive.writestr(name, b"Name: bad\n", zipfile.ZIP_BZIP2)


def _twice(archive: zipfile.ZipFile, name: str) -> None:
    archive.writestr(name, b"Name: bad\n")
    archive.writestr(f"other-1.0.dist-info/{name.rpartition('/')[2]}", b"Name: bad\n")


@pytest.mark.parametrize("write", [_large, _as_no_installer_reads, _twice])
@pytest.mark.parametrize("member", ["METADATA", "WHEEL"])
def test_what_a_wheel_says_is_read_within_bounds(
    tmp_path: Path, write: Callable[[zipfile.ZipFile, str], None], member: str
) -> None:
    path = tmp_path / "bad-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        write(archive, f"bad-1.0.dist-info/{member}")
        other = "WHEEL" if member == "METADATA" else "METADATA"
        archive.writestr(f"bad-1.0.dist-info/{other}", "Name: bad\nTag: py3-none-any\n")
    tracemalloc.start()
    with pytest.raises(DataLoss, match=r"bad-1\.0-py3-none-any\.whl is no whole wheel"):
        read_wheel(path)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 16 << 20


@given(st.data())
def test_a_damaged_wheel_is_refused_in_words_wherever_the_damage_is(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = make_wheel(Path(folder), "alpha", compression=zipfile.ZIP_DEFLATED)
        content = bytearray(path.read_bytes())
        for position in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
            content[position] = data.draw(st.integers(0, 255))
        path.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))]))
        with contextlib.suppress(DataLoss):
            read_wheel(path)


def test_names_of_files_forge_no_line_and_reach_no_terminal(house: SmallHouse) -> None:
    name = "a\nMISSING alpha: \x1b[2J"
    (house.mirror / name).write_bytes(b"")
    (problem,) = house.problems("search", "dev")
    assert problem.subject == name
    assert str(problem).isprintable()


def test_a_whole_mirror_may_be_read_only(house: SmallHouse) -> None:
    """Root writes anyway, so the files are watched."""
    before = {path: path.stat().st_mtime_ns for path in house.mirror.rglob("*")}
    assert fill(house.selection("search", "dev"), house.mirror) == []
    assert {path: path.stat().st_mtime_ns for path in house.mirror.rglob("*")} == before


def test_two_that_fill_one_mirror_wait_for_each_other(house: SmallHouse, tmp_path: Path) -> None:
    source = house.mirror.rename(tmp_path / "source")
    command = [sys.executable, "-m", "ops.wheels", "--root", house.root, "fill", "--mirror", house.mirror]
    environment = {**os.environ, "PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(source)}
    runs = [
        subprocess.Popen([*command, "--set", "search", "--set", "dev"], cwd=ROOT, env=environment) for _ in range(3)
    ]
    assert [run.wait(120) for run in runs] == [0, 0, 0]
    assert house.problems("search", "dev") == []


def test_a_full_disk_is_told_in_words(house: SmallHouse) -> None:
    house.wheel("tool").unlink()
    command = [sys.executable, "-m", "ops.wheels", "--root", house.root, "index", "--mirror", house.mirror]
    limited = ["bash", "-c", 'trap "" XFSZ; ulimit -f 0; exec "$@"', "limited", *map(str, command)]
    run = subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert "Mend that, and run this again" in run.stderr
    assert not list(house.mirror.rglob("*.partial"))


def test_a_package_called_pip_in_the_path_proves_nothing(
    house: SmallHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = tmp_path / "forged" / "pip"
    forged.mkdir(parents=True)
    (forged / "__init__.py").write_text("", "utf-8")
    (forged / "__main__.py").write_text("raise SystemExit('forged')\n", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(forged.parent))
    assert house.problems("search", "dev") == []


def test_everything_that_is_wrong_is_told_at_once(house: SmallHouse) -> None:
    wrong = {_append(house), _remove_from_image(house), _add_project(house), _add_source(house)}
    assert {problem.subject for problem in house.problems("search", "dev")} == wrong


def test_a_file_that_no_set_installs_is_an_orphan_although_a_set_knows_it(house: SmallHouse) -> None:
    """Of two files of one release pip takes one; only its report tells which."""
    other = make_wheel(house.mirror, "tool", "3.0", tags="py2.py3-none-any")
    first = house.mirror / "tool-3.0-py3-none-any.whl"
    wheels = [house.wheel(name) for name in ("base", "alpha", "beta", "grammar-go")]
    house.lock("dev", [*wheels, first], hashes=[sha256_of(other)])
    (problem,) = house.problems("search", "dev")
    assert problem.reason == "ORPHAN"
    assert problem.subject in (first.name, other.name)


def test_a_set_that_lacks_what_a_wheel_requires_is_incomplete(house: SmallHouse) -> None:
    """All files are there and whole: that the set does not hold together only resolving shows."""
    house.lock("search", [house.wheel(name) for name in ("base", "alpha", "grammar-go")])
    for name in ("beta", "tool", "demo-model"):
        house.wheel(name).unlink()
    (problem,) = house.problems("search")
    assert (problem.reason, problem.subject) == ("INCOMPLETE", "search")
    assert "beta" in problem.message


def test_settings_of_the_machine_fill_no_gap(
    house: SmallHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside = tmp_path / "aside"
    aside.mkdir()
    house.wheel("beta").rename(aside / house.wheel("beta").name)
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\nfind-links = {aside}\n", "utf-8")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    monkeypatch.setenv("PIP_FIND_LINKS", str(aside))
    with pytest.raises(NotReady, match="beta"):
        installer.resolve([house.locks.path("search", house.platform)], house.mirror, [], tmp_path)


def test_filling_makes_a_mirror_that_is_equal_and_asks_again_for_nothing(
    house: SmallHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = house.mirror.rename(tmp_path / "source")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(source))
    fill(house.selection("search", "dev"), house.mirror)
    assert house.problems("search", "dev") == []
    for wheel in source.glob("*.whl"):
        wheel.unlink()
    fill(house.selection("search", "dev"), house.mirror)
    with pytest.raises(NotReady, match="PIP_REFUSED|alpha|base"):
        fill(house.selection("search", "dev"), tmp_path / "empty")


def test_the_index_serves_pip_by_itself(house: SmallHouse, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "--isolated", "download", f"--index-url={house.mirror.as_uri()}/simple"]
    command += [f"--dest={tmp_path / 'got'}", "--only-binary=:all:", "alpha==1.0", "grammar-go"]
    subprocess.run(command, check=True, capture_output=True, env={"PIP_CONFIG_FILE": "/dev/null", "PATH": ""})
    assert {path.name for path in (tmp_path / "got").iterdir()} == {
        house.wheel(name).name for name in ("alpha", "beta", "grammar-go")
    }


def test_the_index_tells_the_same_in_html_and_json(house: SmallHouse) -> None:
    for wheel in house.mirror.glob("*.whl"):
        (page,) = (house.mirror / "simple").glob(f"{wheel.name.split('-')[0].replace('_', '-')}/index.json")
        (file,) = json.loads(page.read_text("utf-8"))["files"]
        metadata = sha256_of(wheel.with_name(f"{wheel.name}.metadata"))
        assert file["hashes"]["sha256"] == sha256_of(wheel)
        assert file["core-metadata"]["sha256"] == metadata
        assert file["size"] == wheel.stat().st_size
        html = page.with_suffix(".html").read_text("utf-8")
        assert f'href="../../{wheel.name}#sha256={sha256_of(wheel)}" data-core-metadata="sha256={metadata}"' in html


def test_an_index_of_other_wheels_is_refused_and_can_be_written_anew(house: SmallHouse) -> None:
    before = index_files(house.mirror, house.mirror.glob("*.whl"))
    page = house.mirror / "simple" / "beta" / "index.html"
    page.write_text(page.read_text("utf-8").replace("sha256=", "sha256=0"), "utf-8")
    (house.mirror / "simple" / "stranger").mkdir()
    (house.mirror / "simple" / "stranger" / "index.html").write_text("", "utf-8")
    found = {(problem.reason, problem.subject) for problem in house.problems("search", "dev")}
    assert found == {("INDEX", "simple/beta/index.html"), ("INDEX", "simple/stranger")}
    write_index(house.mirror)
    assert house.problems("search", "dev") == []
    assert index_files(house.mirror, house.mirror.glob("*.whl")) == before
