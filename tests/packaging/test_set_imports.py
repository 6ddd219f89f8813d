"""A set imports what the code of its image imports: read from the code, tried in a process that sees nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ops.wheels import installer
from ops.wheels.imports import prove_imports, read_needs
from ops.wheels.locks import Locks
from tests.support.wheelhouse import SmallHouse

ROOT = Path(__file__).parents[2]


@pytest.fixture
def installed(house: SmallHouse, tmp_path: Path) -> Path:
    target = tmp_path / "target"
    installer.install(house.selection().requirements(house.locks.named("search")), house.mirror, [], target)
    return target


def _failures(house: SmallHouse, target: Path) -> list[str]:
    wanted = house.locks.named("search")
    return prove_imports(house.locks, wanted, read_needs(house.locks, wanted), target)


def test_imports_are_read_from_the_code_of_the_image(house: SmallHouse) -> None:
    """Those inside functions and by a name in a variable too; not what type checkers see or another image has."""
    needs = read_needs(house.locks, house.locks.named("search"))
    assert needs.own == ("services", "services.search", "services.search.grammars")
    assert needs.top_levels() == ["alpha", "base", "beta", "grammar_go"]
    assert read_needs(house.locks, house.locks.named("models")).top_levels()[-1] == "torch"


def test_a_whole_set_imports(house: SmallHouse, installed: Path) -> None:
    assert _failures(house, installed) == []


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("alpha/words.py", "alpha.words, which services/search/__init__.py:3 imports: ModuleNotFoundError"),
        ("beta/__init__.py", "beta"),
        ("grammar_go/__init__.py", "grammar_go"),
    ],
)
def test_what_is_missing_is_told_with_the_line_that_imports_it(
    house: SmallHouse, installed: Path, file: str, told: str
) -> None:
    (installed / file).unlink()
    if not file.startswith("alpha"):
        (installed / file).parent.rmdir()
    assert any(told in line for line in _failures(house, installed))


def test_a_name_that_a_module_lacks_is_told(house: SmallHouse, installed: Path) -> None:
    (installed / "base.py").write_text("", "utf-8")
    assert any("base.ANSWER" in line for line in _failures(house, installed))


def test_packages_of_the_interpreter_that_runs_the_test_do_not_count(house: SmallHouse, installed: Path) -> None:
    """Pytest is installed here, and no set brings it."""
    with (house.root / "services" / "search" / "grammars.py").open("a") as file:
        file.write("import pytest\n")
    assert any(line.startswith("search: pytest, which") for line in _failures(house, installed))


def test_the_command_refuses_a_set_that_does_not_import(house: SmallHouse) -> None:
    command = [sys.executable, "-m", "ops.wheels", "--root", house.root, "imports", "--mirror", house.mirror]
    command += ["--set", "search"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if sys.version_info[:2] != (3, 11):
        assert "not tested" in run.stderr
        return
    assert run.returncode == 0, run.stderr
    with (house.root / "services" / "search" / "grammars.py").open("a") as file:
        file.write("import tool\n")
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "tool, which services/search/grammars.py:" in run.stderr


def test_inside_an_image_what_is_installed_there_is_tried(house: SmallHouse) -> None:
    command = [sys.executable, "-m", "ops.wheels", "imports", "--installed", "--set", "migrate"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    command[3:3] = ["--root", str(house.root)]
    command[-1] = "search"
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "alpha" in run.stderr


def test_each_image_of_ours_needs_the_libraries_that_its_work_is_done_with() -> None:
    locks = Locks.open(ROOT)
    needs = {found.name: read_needs(locks, found).top_levels() for found in locks.images()}
    assert {"openvino", "tokenizers", "uvloop"} <= set(needs["embed"])
    assert {"tree_sitter", "tree_sitter_go", "dulwich", "tantivy"} <= set(needs["ingest"])
    assert {"tantivy", "turbovec", "psycopg"} <= set(needs["search"])
    assert {"alembic", "psycopg"} <= set(needs["migrate"])
    assert {"torch", "nncf"} <= set(needs["models"])
    for wanted in locks.images():
        own = read_needs(locks, wanted).own
        assert all(module in own for module in wanted.modules)
        for module in wanted.without:
            path = ROOT / module.replace(".", "/")
            assert path.is_dir() or path.with_suffix(".py").is_file()
    for name, found in needs.items():
        assert name == "models" or not {"torch", "transformers", "nncf"} & set(found), json.dumps(needs)
