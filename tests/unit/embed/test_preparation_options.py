"""What a preparation may be told: calibration texts of one's own, and settings that go together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
