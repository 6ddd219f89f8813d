"""A mirror has what the sets name and nothing else: whatever differs is refused by its name, with the next step."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.wheels import installer
from ops.wheels.files import sha256_of
from ops.wheels.index import index_files, write_index
from ops.wheels.mirror import fill
from services.core.errors import NotReady
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
    ],
)
def test_a_mirror_that_differs_is_refused_by_the_file(
    house: SmallHouse, change: Callable[[SmallHouse], str], reason: str, remedy: str
) -> None:
    subject = change(house)
    (problem,) = house.problems("search", "dev")
    assert (problem.reason, problem.subject) == (reason, subject)
    assert remedy in problem.remedy


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
    before = index_files(house.mirror)
    page = house.mirror / "simple" / "beta" / "index.html"
    page.write_text(page.read_text("utf-8").replace("sha256=", "sha256=0"), "utf-8")
    (house.mirror / "simple" / "stranger").mkdir()
    (house.mirror / "simple" / "stranger" / "index.html").write_text("", "utf-8")
    found = {(problem.reason, problem.subject) for problem in house.problems("search", "dev")}
    assert found == {("INDEX", "simple/beta/index.html"), ("INDEX", "simple/stranger/index.html")}
    write_index(house.mirror)
    assert house.problems("search", "dev") == []
    assert index_files(house.mirror) == before
