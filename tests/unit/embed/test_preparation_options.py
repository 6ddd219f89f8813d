"""What a preparation may be told: calibration texts of one's own, and settings that go together."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.errors import InvalidArgument
from services.embed.preparation.options import Calibration, Options
from services.embed.recipe import EngineKind, Prompts, Quantization


def test_calibration_texts_are_read_in_both_forms_and_the_same_ones_are_taken_each_time(tmp_path: Path) -> None:
    texts = [f"text {number}\nof two lines" for number in range(1000)]
    lines = tmp_path / "chunks.jsonl"
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    read = Calibration.read(lines)
    assert 200 < len(read.texts) <= 300
    assert set(read.texts) <= set(texts)
    assert read == Calibration.read(lines)
    plain = tmp_path / "chunks.txt"
    plain.write_text("\n\n".join(f"{{ {number} is no JSON" for number in range(40)))
    assert Calibration.read(plain).texts[:2] == ("{ 0 is no JSON", "{ 1 is no JSON")
    assert Calibration.read(plain).digest != read.digest


@pytest.mark.parametrize("content", [b"", b"one\n" * 500, b"\xff\xfe" * 100])
def test_too_few_texts_and_other_encodings_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "chunks.txt"
    path.write_bytes(content)
    with pytest.raises(InvalidArgument) as raised:
        Calibration.read(path)
    assert raised.value.remedy
    with pytest.raises(InvalidArgument):
        Calibration.read(tmp_path / "absent")


@pytest.mark.timeout(20)
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, Path("/dev/zero")):
        with pytest.raises(InvalidArgument, match="cannot be read"):
            Calibration.read(path)


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=32, max_size=60, unique=True))
def test_json_lines_are_ended_by_line_feeds_alone(texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "chunks.jsonl")
        lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in [*texts, "a\u2028b\x85c"])
        path.write_bytes("".join(lines).encode())
        assert set(Calibration.read(path).texts) == {*texts, "a\u2028b\x85c"}


def test_a_line_that_only_looks_like_json_is_a_text_and_half_a_character_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "chunks.jsonl"
    lines = [json.dumps({"text": f"text {number}"}) for number in range(40)]
    path.write_text("\r\n".join([*lines, '{"text":' + "[" * 100_000]))
    assert Calibration.read(path).texts[-1].startswith('{"text":[[')
    assert Calibration.read(path).texts[0] == "text 0"
    path.write_text("\n".join([*lines, '{"text": "\\ud800"}']))
    with pytest.raises(InvalidArgument, match="cannot be read"):
        Calibration.read(path)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidArgument):
        Options(quantization=Quantization.FLOAT32, calibration=Calibration.built_in())
    with pytest.raises(InvalidArgument):
        Options(engine=EngineKind.SENTENCE_TRANSFORMERS)


def test_a_prompt_that_is_given_leaves_the_other_one() -> None:
    source = Prompts(query="q: ", passage="p: ")
    assert Options(query_prompt="find: ").prompts_over(source) == Prompts("find: ", "p: ")
    assert Options(passage_prompt="").prompts_over(source) == Prompts("q: ", "")
    assert Options().prompts_over(source) == source
