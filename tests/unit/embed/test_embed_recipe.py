"""The recipe: written and read back, and what of it is the model's identity."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.errors import DataLoss
from services.embed.recipe import Pooling, Prompts, Purpose, Quantization, Recipe

RECIPE = Recipe(
    architecture="bert",
    dimensions=384,
    max_length_tokens=256,
    pooling=Pooling.MEAN,
    normalize=True,
    quantization=Quantization.QINT8,
)

recipes = st.builds(
    Recipe,
    architecture=st.sampled_from(["bert", "roberta"]),
    dimensions=st.integers(1, 4096),
    max_length_tokens=st.integers(1, 8192),
    pooling=st.sampled_from(Pooling),
    normalize=st.booleans(),
    quantization=st.sampled_from(Quantization),
    pad_token_id=st.integers(0, 5),
    lower_case=st.booleans(),
    prompts=st.builds(Prompts, query=st.text(max_size=20), passage=st.text(max_size=20)),
)


@given(recipes)
def test_a_recipe_is_read_back_as_it_was_written(recipe: Recipe) -> None:
    assert Recipe.from_json(recipe.to_json().encode()) == recipe


@given(recipes, recipes)
def test_two_recipes_have_one_identity_only_if_they_are_equal(left: Recipe, right: Recipe) -> None:
    assert (left.identity() == right.identity()) == (left == right)


def test_a_setting_at_its_default_is_left_out_of_the_identity() -> None:
    assert not {"prompts", "lower_case", "pad_token_id"} & set(RECIPE.identity())
    assert "prompts" in replace(RECIPE, prompts=Prompts(query="query: ")).identity()


def test_each_purpose_has_its_own_prompt() -> None:
    prompts = Prompts(query="query: ", passage="passage: ")
    assert [prompts.of(purpose) for purpose in (Purpose.QUERY, Purpose.PASSAGE)] == ["query: ", "passage: "]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dimensions", 0),
        ("dimensions", "384"),
        ("max_length_tokens", True),
        ("pooling", "max"),
        ("quantization", "fp4"),
        ("format", 2),
        ("prompts", None),
    ],
)
def test_a_malformed_recipe_is_refused_not_guessed(key: str, value: object) -> None:
    document = json.loads(RECIPE.to_json())
    with pytest.raises(DataLoss):
        Recipe.from_json(json.dumps({**document, key: value}).encode())
    del document[key]
    with pytest.raises(DataLoss):
        Recipe.from_json(json.dumps(document).encode())
