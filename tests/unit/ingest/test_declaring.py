from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from services.ingest.declaring import Declarations
from services.ingest.projects import FOLDER, WHEEL, Source

PURE = "py3-none-any.whl"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    (tmp_path / "wheels").mkdir()
    return tmp_path / "wheels"


def source(number: int, location: Path, kind: str = FOLDER, *, name: str = "", package: str = "") -> Source:
    name = name or f"source-{number}"
    return Source(number, 1, name, package or name, kind, str(location), datetime(2026, 1, 1, tzinfo=UTC))


def folder(root: Path, *dependencies: str) -> Path:
    root.mkdir()
    (root / "pyproject.toml").write_text(f"[project]\ndependencies = {list(dependencies)}\n")
    return root


def test_what_folders_declare_is_found_with_its_archive(tmp_path: Path, wheels: Path) -> None:
    (wheels / f"a-1.0-{PURE}").touch()
    found = Declarations(wheels).find([source(1, folder(tmp_path / "one", "a", "b"))])
    assert found.archives == {"a": wheels / f"a-1.0-{PURE}"}
    assert len(found.warnings) == 1
    assert found.is_complete


@pytest.mark.parametrize("linked", [False, True])
def test_an_archive_that_is_a_source_under_any_name_is_not_added_again(
    tmp_path: Path, wheels: Path, linked: bool
) -> None:
    (wheels / f"a-1.0-{PURE}").touch()
    (wheels / f"b-1.0-{PURE}").touch()
    location = wheels / f"a-1.0-{PURE}"
    if linked:
        location = wheels / f"c-1.0-{PURE}"
        location.symlink_to(f"a-1.0-{PURE}")
    own = [source(1, folder(tmp_path / "one", "a", "b")), source(2, location, WHEEL, name="pinned", package="other")]
    found = Declarations(wheels).find(own)
    assert found.archives == {"b": wheels / f"b-1.0-{PURE}"}
    assert found.warnings == []
    assert found.is_complete


def test_another_archive_of_that_package_is_added(tmp_path: Path, wheels: Path) -> None:
    for version in ("1.0", "2.0"):
        (wheels / f"a-{version}-{PURE}").touch()
    pinned = source(2, wheels / f"a-1.0-{PURE}", WHEEL, name="pinned", package="other")
    found = Declarations(wheels).find([source(1, folder(tmp_path / "one", "a")), pinned])
    assert found.archives == {"a": wheels / f"a-2.0-{PURE}"}


def test_a_package_that_is_a_source_is_not_looked_for(tmp_path: Path, wheels: Path) -> None:
    (wheels / f"a-2.0-{PURE}").touch()
    pinned = source(2, wheels / f"a-1.0-{PURE}", WHEEL, name="pinned", package="a")
    found = Declarations(wheels).find([source(1, folder(tmp_path / "one", "a")), pinned])
    assert (found.archives, found.warnings) == ({}, [])


def test_a_source_that_cannot_be_read_concerns_itself_alone(tmp_path: Path, wheels: Path) -> None:
    (wheels / f"a-1.0-{PURE}").touch()
    hostile = folder(tmp_path / "hostile")
    (hostile / "uv.lock").write_text(f"[[package]]\nname = 0x{'f' * 5000}\n")
    own = [source(1, tmp_path / "gone"), source(2, hostile), source(3, folder(tmp_path / "one", "a"))]
    found = Declarations(wheels).find(own)
    assert found.archives == {"a": wheels / f"a-1.0-{PURE}"}
    assert len(found.warnings) == 2
    assert not found.is_complete


def test_an_archive_that_could_not_be_stored_is_a_warning(tmp_path: Path, wheels: Path) -> None:
    (wheels / os.fsdecode(b"a-1.0-1\xff-py3-none-any.whl")).touch()
    found = Declarations(wheels).find([source(1, folder(tmp_path / "one", "a"))])
    assert found.archives == {}
    assert "not valid UTF-8" in found.warnings[0]
    found.warnings[0].encode()


def test_a_wheel_directory_that_is_away_removes_nothing(tmp_path: Path) -> None:
    found = Declarations(tmp_path / "gone").find([source(1, folder(tmp_path / "one", "a"))])
    assert not found.is_complete
    assert len(found.warnings) == 1
