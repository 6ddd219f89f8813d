"""A model must leave room for a text: one that does not would empty a project that changes to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.budget import MIN_BUDGET_TOKENS
from services.core.errors import InvalidArgument
from services.embed.manifest import RECIPE_NAME
from services.embed.preparation import Options, PreparedModel, prepare
from services.embed.recipe import Pooling, Prompts, Purpose, Quantization, Recipe
from services.embed.tokenization import TextTokenizer
from services.embed.verify import verify
from tests.integration.embed.test_model_verification import reseal
from tests.integration.embed.tiny_model import Tiny, tokenizer_of, write_source

CONTENT = tokenizer_of(Tiny()).to_str().encode()
RECIPE = Recipe(
    architecture="bert",
    dimensions=32,
    max_length_tokens=96,
    pooling=Pooling.MEAN,
    normalize=True,
    quantization=Quantization.FLOAT32,
)
PLAIN = Options(quantization=Quantization.FLOAT32)


def without_special_tokens(source: Path) -> Path:
    path = source / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "post_processor": None}))
    return source


@given(
    length=st.integers(1, 200),
    prompts=st.builds(
        Prompts,
        *(st.integers(0, 60).map(lambda words: "a " * words), st.integers(0, 60).map(lambda words: "b " * words)),
    ),
)
def test_each_prompt_leaves_the_tokens_that_a_chunk_needs_or_the_model_is_refused(
    length: int, prompts: Prompts
) -> None:
    recipe = replace(RECIPE, max_length_tokens=length, prompts=prompts)
    tokenizer = TextTokenizer(Path("/model"), recipe, content=CONTENT)
    used = max(tokenizer.tokenize([""], purpose)[0].count for purpose in Purpose)
    if length - used >= MIN_BUDGET_TOKENS:
        tokenizer.require_room()
    else:
        with pytest.raises(InvalidArgument) as raised:
            tokenizer.require_room()
        assert raised.value.reason == "MODEL_TOO_SHORT"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (replace(PLAIN, max_length_tokens=1), "--max-length"),
        (replace(PLAIN, max_length_tokens=2), "--max-length"),
        (replace(PLAIN, passage_prompt="hello " * 2000), "--passage-prompt"),
        (replace(PLAIN, query_prompt="hello " * 2000), "--query-prompt"),
    ],
)
def test_settings_that_leave_no_room_are_refused_before_anything_is_built(
    tiny_source: Path, tmp_path: Path, options: Options, named: str
) -> None:
    with pytest.raises(InvalidArgument) as raised:
        prepare(tiny_source, tmp_path / "models" / "model", options=options)
    assert raised.value.reason == "MODEL_TOO_SHORT"
    assert named in raised.value.remedy
    assert not (tmp_path / "models").exists()


def test_the_shortest_model_that_leaves_room_is_prepared(tiny_source: Path, tmp_path: Path) -> None:
    # The query's prompt has one token, and every text two special ones.
    options = replace(PLAIN, max_length_tokens=MIN_BUDGET_TOKENS + 3)
    prepared = prepare(tiny_source, tmp_path / "model", options=options)
    assert verify(prepared.directory, threads=1).recipe.max_length_tokens == MIN_BUDGET_TOKENS + 3


def test_a_directory_without_room_from_elsewhere_is_refused_too(
    tiny_model: PreparedModel, copy_of: Callable[[PreparedModel], Path]
) -> None:
    directory = copy_of(tiny_model)
    path = directory / RECIPE_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "max_length_tokens": MIN_BUDGET_TOKENS}))
    reseal(directory)
    with pytest.raises(InvalidArgument) as raised:
        verify(directory, threads=1)
    assert raised.value.reason == "MODEL_TOO_SHORT"


def test_a_tokenizer_that_can_give_a_text_no_tokens_is_refused(
    tmp_path: Path, tiny_model: PreparedModel, copy_of: Callable[[PreparedModel], Path]
) -> None:
    source = without_special_tokens(write_source(tmp_path / "source", Tiny(layers=1)))
    with pytest.raises(InvalidArgument) as raised:
        prepare(source, tmp_path / "model", options=PLAIN)
    assert raised.value.reason == "MODEL_TOKENIZER_UNSUPPORTED"
    directory = without_special_tokens(copy_of(tiny_model))
    reseal(directory)
    with pytest.raises(InvalidArgument) as raised:
        verify(directory, threads=1)
    assert raised.value.reason == "MODEL_TOKENIZER_UNSUPPORTED"
