"""Reading a source directory: nothing is guessed, whatever is missing or foreign is refused in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from services.core.errors import InvalidArgument
from services.embed.preparation.options import Options
from services.embed.preparation.source import read_source
from services.embed.recipe import Pooling, Prompts, Quantization, Recipe

Write = Callable[..., Path]
_ST = "sentence_transformers.models."
FILES: dict[str, object] = {
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": f"{_ST}Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{_ST}Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": f"{_ST}Normalize"},
    ],
    "1_Pooling/config.json": {
        "word_embedding_dimension": 32,
        "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_max_tokens": False,
    },
    "sentence_bert_config.json": {"max_seq_length": 48, "do_lower_case": False},
    "config_sentence_transformers.json": {"__version__": {}},
    "config.json": {
        "model_type": "bert",
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "hidden_size": 32,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
    },
    "tokenizer.json": {},
}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def build(**changes: object) -> Path:
        for name, document in {**FILES, **changes}.items():
            if document is None:
                continue
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(document if isinstance(document, str) else json.dumps(document))
        return tmp_path

    return build


def read(directory: Path, query_prompt: str | None = None) -> Recipe:
    return read_source(directory, Options(query_prompt=query_prompt)).recipe


def merged(name: str, **changes: object) -> dict[str, object]:
    document = FILES[name]
    assert isinstance(document, dict)
    return {**document, **changes}


def test_a_complete_directory_gives_its_recipe(write: Write) -> None:
    assert read(write()) == Recipe(
        architecture="bert",
        dimensions=32,
        max_length_tokens=48,
        pooling=Pooling.MEAN,
        normalize=True,
        quantization=Quantization.QINT8,
    )


@pytest.mark.parametrize("name", sorted(FILES))
def test_each_missing_file_is_refused_by_its_name(write: Write, name: str) -> None:
    with pytest.raises(InvalidArgument, match=Path(name).name.replace(".", r"\.")) as raised:
        read(write(**{name: None}))
    assert raised.value.remedy


@pytest.mark.parametrize("name", [name for name in sorted(FILES) if name != "tokenizer.json"])
def test_each_damaged_file_is_refused(write: Write, name: str) -> None:
    with pytest.raises(InvalidArgument, match=Path(name).name.replace(".", r"\.")):
        read(write(**{name: '{"cut": '}))


def test_a_model_without_normalisation_is_not_normalised(write: Write) -> None:
    modules = FILES["modules.json"]
    assert isinstance(modules, list)
    assert read(write(**{"modules.json": modules[:2]})).normalize is False


def test_cls_pooling_in_both_spellings(write: Write) -> None:
    old = merged("1_Pooling/config.json", pooling_mode_cls_token=True, pooling_mode_mean_tokens=False)
    assert read(write(**{"1_Pooling/config.json": old})).pooling is Pooling.CLS
    new = {"embedding_dimension": 32, "pooling_mode": "cls", "include_prompt": True}
    assert read(write(**{"1_Pooling/config.json": new})).pooling is Pooling.CLS


@pytest.mark.parametrize(
    ("tokenizer", "tokens"), [({"model_max_length": 40}, 40), ({"model_max_length": 1e30}, 64), ({}, 64), (None, 64)]
)
def test_where_the_length_is_left_to_the_tokenizer_its_limit_counts(
    write: Write, tokenizer: dict[str, object] | None, tokens: int
) -> None:
    """sentence-transformers 6 writes no max_seq_length."""
    files = {"sentence_bert_config.json": {"do_lower_case": False}, "tokenizer_config.json": tokenizer}
    assert read(write(**files)).max_length_tokens == tokens


def test_vectors_are_cut_only_to_what_the_index_can_pack_and_the_model_was_trained_for(write: Write) -> None:
    def cut(dimensions: int) -> Recipe:
        return read_source(directory, Options(dimensions=dimensions)).recipe

    directory = write()
    assert (cut(16).dimensions, cut(16).full_dimensions) == (16, 32)
    assert cut(32) == read(directory)
    for wrong in (40, 12, 0, -8):
        with pytest.raises(InvalidArgument) as raised:
            cut(wrong)
        assert raised.value.reason == "DIMENSIONS_NOT_POSSIBLE"
    directory = write(**{"config.json": merged("config.json", matryoshka_dimensions=[8, 32])})
    assert cut(8).matryoshka_dimensions == (8, 32)
    with pytest.raises(InvalidArgument, match="trained"):
        cut(16)


@pytest.mark.parametrize(
    "changes",
    [
        {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": False},
        {"pooling_mode_mean_tokens": False},
        {"pooling_mode_cls_token": True},
        {"pooling_mode": "max"},
        {"include_prompt": False},
        {"word_embedding_dimension": 64},
    ],
)
def test_pooling_that_cannot_be_prepared_is_refused(write: Write, changes: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        read(write(**{"1_Pooling/config.json": merged("1_Pooling/config.json", **changes)}))


@pytest.mark.parametrize(
    "modules",
    [
        [],
        {},
        [{"idx": 0, "path": "", "type": f"{_ST}Transformer"}],
        [
            {"idx": 0, "path": "", "type": "custom_st.Transformer"},
            {"idx": 1, "path": "1_Pooling", "type": f"{_ST}Pooling"},
        ],
        [
            {"idx": 0, "path": "", "type": f"{_ST}Transformer"},
            {"idx": 1, "path": "1_Pooling", "type": f"{_ST}Pooling"},
            {"idx": 2, "path": "2_Dense", "type": f"{_ST}Dense"},
        ],
        [
            {"idx": 0, "path": "", "type": f"{_ST}Transformer"},
            {"idx": 1, "path": "../elsewhere", "type": f"{_ST}Pooling"},
        ],
    ],
)
def test_modules_that_cannot_be_prepared_are_refused(write: Write, modules: object) -> None:
    with pytest.raises(InvalidArgument):
        read(write(**{"modules.json": modules}))


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "qwen3"},
        {"model_type": ""},
        {"hidden_act": "swish"},
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
        {"num_hidden_layers": None},
        {"hidden_size": "32"},
        {"layer_norm_eps": 0},
        {"auto_map": {"AutoModel": "x.y"}},
    ],
)
def test_a_configuration_that_cannot_be_prepared_is_refused(write: Write, changes: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument) as raised:
        read(write(**{"config.json": merged("config.json", **changes)}))
    assert raised.value.remedy


def test_a_length_beyond_the_positions_is_refused_and_an_open_one_takes_them_all(write: Write) -> None:
    with pytest.raises(InvalidArgument):
        read(write(**{"sentence_bert_config.json": {"max_seq_length": 65}}))
    assert read(write(**{"sentence_bert_config.json": {"max_seq_length": None}})).max_length_tokens == 64


def test_roberta_loses_the_positions_before_its_first(write: Write) -> None:
    config = merged("config.json", model_type="roberta", pad_token_id=1, max_position_embeddings=66)
    recipe = read(write(**{"config.json": config, "sentence_bert_config.json": {"max_seq_length": None}}))
    assert (recipe.max_length_tokens, recipe.pad_token_id) == (64, 1)


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        ({}, Prompts()),
        ({"prompts": {"query": "q: ", "passage": "p: "}}, Prompts("q: ", "p: ")),
        ({"prompts": {"query": "q: ", "document": "d: "}}, Prompts("q: ", "d: ")),
        ({"prompts": {"code": "c: "}, "default_prompt_name": "code"}, Prompts("c: ", "c: ")),
        ({"prompts": None, "default_prompt_name": None}, Prompts()),
    ],
)
def test_prompts_come_from_the_directory(write: Write, library: dict[str, object], expected: Prompts) -> None:
    directory = write(**{"config_sentence_transformers.json": library})
    assert read(directory).prompts == expected
    assert read(directory, "mine: ").prompts == Prompts("mine: ", expected.passage)
