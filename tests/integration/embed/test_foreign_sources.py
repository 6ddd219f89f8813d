"""A source whose parts do not belong together is refused in words: it would give wrong vectors, and no error."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from services.core.errors import Conflict, InvalidArgument, NotReady, UndercroftError
from services.embed.preparation import Options, PreparedModel, prepare
from services.embed.recipe import Quantization
from tests.integration.embed.tiny_model import Float32Array, Tiny, weights_of, write_source

PLAIN = Options(quantization=Quantization.FLOAT32)
TINY = Tiny(layers=1)
WEIGHTS = weights_of(TINY)
_OUTPUT = "encoder.layer.0.output.dense.weight"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "source", TINY)


def configure(source: Path, name: str = "config.json", **changes: object) -> None:
    path = source / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def weigh(source: Path, changes: Mapping[str, Float32Array | None]) -> None:
    """Replace, add or (None) take away tensors."""
    weights = {**load_file(source / "model.safetensors"), **changes}
    save_file({name: value for name, value in weights.items() if value is not None}, source / "model.safetensors")


def refusal(source: Path, options: Options = PLAIN) -> UndercroftError:
    models = source.parent / "models"
    with pytest.raises(UndercroftError) as raised:
        prepare(source, models / "model", options=options)
    assert not models.exists() or list(models.iterdir()) == []
    assert raised.value.remedy
    return raised.value


def test_heads_that_are_not_used_are_no_reason_to_refuse(source: Path) -> None:
    square = np.zeros((32, 32), np.float32)
    weigh(source, {"pooler.dense.weight": square, "cls.predictions.decoder.weight": square, "lm_head.bias": square[0]})
    assert prepare(source, source.parent / "model", options=PLAIN).is_new


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoder.layer.1.output.dense.weight", WEIGHTS[_OUTPUT]),
        ("encoder.layer.0.attention.self.distance_embedding.weight", np.ones((4, 4), np.float32)),
        ("projection.weight", np.ones((4, 4), np.float32)),
        (f"bert.{_OUTPUT}", WEIGHTS[_OUTPUT]),
        ("embeddings.token_type_embeddings.weight", None),
        (_OUTPUT, WEIGHTS[_OUTPUT].T.copy()),
        ("encoder.layer.0.output.dense.bias", np.ones((2, 16), np.float32)),
        (_OUTPUT, np.where(WEIGHTS[_OUTPUT] == WEIGHTS[_OUTPUT].max(), np.float32("nan"), WEIGHTS[_OUTPUT])),
        (_OUTPUT, np.ones((32, 64), np.int32)),
        ("embeddings.position_embeddings.weight", np.ones((48, 32), np.float32)),
    ],
)
def test_weights_that_are_not_what_the_configuration_promises_are_refused(
    source: Path, name: str, value: Float32Array | None
) -> None:
    weigh(source, {name: value})
    refused = refusal(source)
    assert refused.reason == "MODEL_WEIGHTS_FOREIGN"
    assert name.removeprefix("bert.") in refused.message


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 0},
        {"num_hidden_layers": 99},
        {"num_hidden_layers": 10**30},
        {"num_attention_heads": 3},
        {"num_attention_heads": 10**30},
        {"hidden_size": 64},
        {"max_position_embeddings": 8192},
        {"max_position_embeddings": 90, "pad_token_id": 10**30},
        {"intermediate_size": 65},
        {"vocab_size": 10**6},
        {"pad_token_id": 10**6},
    ],
)
def test_a_configuration_of_another_model_is_refused(source: Path, changes: Mapping[str, object]) -> None:
    configure(source, **changes)
    if "hidden_size" in changes:
        configure(source, "1_Pooling/config.json", word_embedding_dimension=64)
    assert isinstance(refusal(source), InvalidArgument)


ADDED = {
    "id": 0,
    "content": "[PAD]",
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
    "normalized": False,
    "special": True,
}


def renumber(source: Path, change: Callable[[dict[str, int]], dict[str, int]]) -> None:
    path = source / "tokenizer.json"
    document = json.loads(path.read_text())
    document["model"]["vocab"] = change(document["model"]["vocab"])
    path.write_text(json.dumps(document))


def test_token_ids_beyond_the_embeddings_are_refused(source: Path) -> None:
    renumber(source, lambda ids: {token: number + 1000 * (number > 50) for token, number in ids.items()})
    assert refusal(source).reason == "MODEL_TOKENIZER_FOREIGN"


@pytest.mark.parametrize("name", ["vocab.txt", "vocab.json"])
def test_a_vocabulary_in_another_order_than_its_list_is_refused(source: Path, name: str) -> None:
    ids: dict[str, int] = json.loads((source / "tokenizer.json").read_text())["model"]["vocab"]
    (source / name).write_text("\r\n".join([*ids, ""]) if name == "vocab.txt" else json.dumps(ids), newline="")
    assert prepare(source, source.parent / "whole", options=PLAIN).is_new
    tokens = list(ids)
    renumber(source, lambda _: {token: ids[token] for token in tokens if token != "[PAD]"})
    configure(source, "tokenizer.json", added_tokens=[ADDED])
    assert prepare(source, source.parent / "added", options=PLAIN).is_new
    renumber(source, lambda _: dict(zip([*tokens[:20], *tokens[60:], *tokens[20:60]], range(len(ids)), strict=True)))
    assert refusal(source).reason == "MODEL_TOKENIZER_FOREIGN"
    (source / name).write_bytes(b"\xff")
    assert name in refusal(source).message


def test_a_tokenizer_that_does_not_know_english_is_refused_here_and_not_by_the_service(source: Path) -> None:
    renumber(source, lambda ids: {token: number for token, number in ids.items() if token not in {"e", "##e"}})
    assert refusal(source).reason == "MODEL_TOKENIZER_FOREIGN"


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("kept", ["", "output.LayerNorm.bias"])
def test_weights_that_tell_no_texts_apart_are_refused(tmp_path: Path, kept: str, normalize: bool) -> None:
    source = write_source(tmp_path / "source", Tiny(layers=1, normalize=normalize))
    weigh(
        source, {name: np.zeros_like(value) for name, value in WEIGHTS.items() if not kept or not name.endswith(kept)}
    )
    assert refusal(source).reason == "MODEL_WEIGHTS_FOREIGN"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("model.safetensors.index.json", "[]"),
        ("model.safetensors.index.json", "{"),
        ("model.safetensors.index.json", '{"weight_map": []}'),
        ("model.safetensors.index.json", '{"weight_map": {"a": 1}}'),
        ("model.safetensors.index.json", '{"weight_map": {"a": "1", "b": 1}}'),
        ("model.safetensors.index.json", json.dumps({"weight_map": {"a": "n" * 300}})),
        ("model.safetensors.index.json", json.dumps({"weight_map": {"a": "n\0"}})),
        ("config.json", "[" * 100_000),
        ("config.json", '{"model_type": "\\ud800"}'),
        ("config_sentence_transformers.json", '{"prompts": {"query": "\\ud800"}}'),
        ("config_sentence_transformers.json", '{"prompts": {"query": null}}'),
        ("tokenizer.json", "{}"),
        ("tokenizer.json", "[]"),
        ("tokenizer.json", "[" * 100_000),
    ],
)
def test_documents_that_are_none_are_refused_in_words(source: Path, name: str, text: str) -> None:
    if name.startswith("model."):
        (source / "model.safetensors").unlink()
    (source / name).write_text(text)
    refused = refusal(source)
    assert name in refused.message
    assert ".partial" not in refused.message


@pytest.mark.parametrize("change", [{"idx": "a"}, {"idx": None}, {"path": "a\0b"}, {"path": None}, {"path": "n" * 300}])
def test_modules_in_no_place_are_refused(source: Path, change: dict[str, object]) -> None:
    modules = json.loads((source / "modules.json").read_text())
    modules[1] |= change
    (source / "modules.json").write_text(json.dumps(modules))
    assert isinstance(refusal(source), InvalidArgument)


def test_a_folder_that_links_to_itself_is_refused(source: Path) -> None:
    (source / "1_Pooling" / "config.json").unlink()
    (source / "1_Pooling").rmdir()
    (source / "1_Pooling").symlink_to("1_Pooling")
    assert isinstance(refusal(source), InvalidArgument)


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Let writes fail as on a full volume."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size_bytes", [1_000, 20_000])
def test_a_full_volume_is_told_and_leaves_nothing(source: Path, size_bytes: int) -> None:
    with files_of_at_most(size_bytes):
        refused = refusal(source)
    assert isinstance(refused, NotReady)
    assert refused.reason == "MODEL_NOT_WRITTEN"
    assert ".partial" not in refused.message


@pytest.mark.parametrize("content", [b"\xff", b"{", b"[]"])
def test_a_destination_whose_manifest_cannot_be_read_is_taken(source: Path, content: bytes) -> None:
    destination = source.parent / "model"
    destination.mkdir()
    (destination / "manifest.json").write_bytes(content)
    with pytest.raises(Conflict):
        prepare(source, destination, options=PLAIN)
    assert (destination / "manifest.json").read_bytes() == content


def test_the_second_of_two_equal_preparations_finds_what_the_first_made(source: Path) -> None:
    destination = source.parent / "model"
    first: list[PreparedModel] = []

    def overtake(stage: str, share: float) -> None:
        if stage == "measure" and not first:
            first.append(prepare(source, destination, options=PLAIN))

    second = prepare(source, destination, options=PLAIN, progress=overtake)
    assert first[0].is_new
    assert not second.is_new
    assert second.manifest.digest == first[0].manifest.digest
    assert {path.name for path in source.parent.iterdir()} == {"source", "model"}
