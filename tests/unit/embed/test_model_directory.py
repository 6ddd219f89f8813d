"""What may be opened as a model directory, and how one comes to be: whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.errors import Conflict, DataLoss, InvalidArgument, NotFound, NotReady, UndercroftError
from services.embed.directory import (
    decode_json,
    published_directory,
    read_bytes,
    read_document,
    refuse_foreign_code,
    require_model_directory,
)


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


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["config.json", "nested/tokenizer_config.json"])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(InvalidArgument, match="regular file"):
        refuse_foreign_code(tmp_path)
    for special in (tmp_path / name, Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match="regular file|directory"):
            read_bytes(special)


def test_a_document_of_another_size_than_any_document_has_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(InvalidArgument, match="bytes"):
        read_document(path)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"model_type": "\\ud800"}', '{"a": ', "{}}", '{"\\udfff": 1}'])
def test_what_is_no_document_is_refused_by_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=r"config\.json") as raised:
        read_document(path)
    raised.value.message.encode()


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none() | st.booleans()), st.booleans())
def test_every_document_is_read_as_it_was_written(document: dict[str, object], is_ascii: bool) -> None:
    assert decode_json(json.dumps(document, ensure_ascii=is_ascii)) == document


def test_partial_directories_of_ended_owners_are_removed_and_those_at_work_are_not(tmp_path: Path) -> None:
    abandoned, other = tmp_path / ".model.abcd1234.partial", tmp_path / ".model.partial"
    for directory in (abandoned, other):
        directory.mkdir()
        (directory / "weights").touch()
    (tmp_path / ".file.abcd1234.partial").touch()
    with published_directory(tmp_path / "model") as at_work:
        (at_work / "file").touch()
        assert not abandoned.exists()
        with published_directory(tmp_path / "second") as second:
            assert {path.name for path in at_work.iterdir()} == {"file"}
            (second / "file").touch()
    assert {path.name for path in tmp_path.iterdir()} == {"model", "second", ".model.partial", ".file.abcd1234.partial"}


def test_a_killed_owner_leaves_what_the_next_one_removes(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, time\n"
        "from services.embed.directory import published_directory\n"
        "with published_directory(pathlib.Path(sys.argv[1])) as temporary:\n"
        "    (temporary / 'half').touch()\n"
        "    print(temporary, flush=True)\n"
        "    time.sleep(60)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "a")], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        partial = Path(owner.stdout.readline().strip())
        with published_directory(tmp_path / "b"):
            assert (partial / "half").exists()
    finally:
        owner.kill()
        owner.communicate()
    assert (partial / "half").exists()
    with published_directory(tmp_path / "c"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"b", "c"}


@pytest.mark.parametrize("place", ["file/model", "/proc/model"])
def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotReady) as raised, published_directory(tmp_path / place):
        pass
    assert raised.value.reason == "MODEL_NOT_WRITTEN"
    assert ".partial" not in raised.value.message


def test_errors_name_the_destination_and_not_what_is_gone_when_they_are_read(tmp_path: Path) -> None:
    def fail(error: Callable[[Path], Exception]) -> None:
        with published_directory(tmp_path / "model") as temporary:
            raise error(temporary / "tokenizer.json")

    for error in (
        lambda path: OSError(errno.ENOSPC, "No space left on device", str(path)),
        lambda path: DataLoss(f"{path} is damaged."),
    ):
        with pytest.raises(UndercroftError, match=str(tmp_path / "model" / "tokenizer.json")) as raised:
            fail(error)
        assert ".partial" not in str(raised.value)


def test_a_link_in_the_place_of_the_destination_is_told_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(tmp_path / "nowhere")
    with pytest.raises(Conflict), published_directory(tmp_path / "model"):
        pytest.fail("the work began")
