"""What may be opened as a model directory, and how one comes to be: whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.core.errors import Conflict, InvalidArgument, NotFound
from services.embed.directory import published_directory, refuse_foreign_code, require_model_directory


@pytest.mark.parametrize(
    "name", ["sentence-transformers/all-MiniLM-L6-v2", "all-minilm", "./model", "../model", "https://host/model", ""]
)
def test_whatever_is_no_absolute_path_is_refused_at_once_with_a_remedy(name: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        require_model_directory(Path(name))
    assert "never fetched" in raised.value.message
    assert raised.value.remedy


def test_a_path_that_is_no_directory_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "absent", tmp_path / "file"):
        with pytest.raises(NotFound):
            require_model_directory(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("adapter_config.json", "{}"),
        ("modeling_custom.py", "raise SystemExit"),
        ("nested/custom.py", ""),
        ("config.json", json.dumps({"auto_map": {"AutoModel": "other/repo--modeling.Model"}})),
        ("tokenizer_config.json", json.dumps({"auto_map": {}})),
    ],
)
def test_code_and_adapters_are_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidArgument):
        refuse_foreign_code(tmp_path)


def test_a_directory_appears_whole_and_readable_by_others(tmp_path: Path) -> None:
    destination = tmp_path / "deep" / "model"
    with published_directory(destination) as temporary:
        (temporary / "nested").mkdir()
        (temporary / "nested" / "file").write_text("x")
        assert not destination.exists()
    assert (destination / "nested" / "file").read_text() == "x"
    assert destination.stat().st_mode & 0o055 == 0o055
    assert [path.name for path in destination.parent.iterdir()] == ["model"]


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail() -> None:
        with published_directory(tmp_path / "model") as temporary:
            (temporary / "file").write_text("half")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    destination = tmp_path / "model"
    destination.mkdir()
    (destination / "mine").write_text("keep")
    with pytest.raises(Conflict), published_directory(destination):
        pass
    assert (destination / "mine").read_text() == "keep"


def test_a_destination_that_was_filled_meanwhile_is_not_overwritten_either(tmp_path: Path) -> None:
    destination = tmp_path / "model"

    def race() -> None:
        with published_directory(destination) as temporary:
            (temporary / "file").write_text("second")
            destination.mkdir()
            (destination / "file").write_text("first")

    with pytest.raises(Conflict):
        race()
    assert (destination / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_empty_destination_is_taken(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with published_directory(tmp_path / "model") as temporary:
        (temporary / "file").touch()
    assert (tmp_path / "model" / "file").exists()
