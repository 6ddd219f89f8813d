"""Models that need torch: what is prepared from them computes what the library does that they were made with."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from undercroft.embed.v1 import embed_pb2, embed_service_pb2, embed_service_pb2_grpc

from services.core.errors import DataLoss, InvalidArgument
from services.core.grpc import open_channel
from services.embed.backends import Float32Array
from services.embed.backends.openvino import OpenVinoBackend
from services.embed.backends.sentence_transformers import load_library
from services.embed.engine import Engine
from services.embed.manifest import Manifest, describe_file, model_digest
from services.embed.preparation import Calibration, Options, prepare
from services.embed.preparation.exporting import load
from services.embed.preparation.proof import LEAST_AGREEMENT, least_agreement
from services.embed.recipe import EngineKind, Pooling, Purpose, Quantization, Recipe
from services.embed.tokenization import TextTokenizer
from services.embed.verify import verify
from tests.integration.embed.conftest import Server
from tests.models.conftest import MAX_LENGTH, write_model

EXACT = Options(quantization=Quantization.FLOAT32)
TEXTS = (
    "x",
    "def read(path):\n    return open(path).read()",
    "Why are writes ordered before the commit?",
    "a queue that is full refuses new work " * 8,
    "$%&/()= {}[]",
)


def library_vectors(source: Path, purpose: Purpose, dimensions: int) -> Float32Array:
    """Return what sentence-transformers computes, cut and normalised anew as its truncate_dim and users do."""
    model = load_library(source, "cpu")
    prompt = "find: " if purpose is Purpose.QUERY else ""
    vectors = np.asarray(model.encode(list(TEXTS), prompt=prompt, batch_size=1), dtype=np.float32)
    if dimensions == vectors.shape[1]:
        return vectors
    kept = vectors[:, :dimensions]
    return kept / np.linalg.norm(kept, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("architecture", "pooling", "extra"),
    [
        ("mpnet", "mean", ("normalize",)),
        ("modernbert", "cls", ("normalize",)),
        ("modernbert", "mean", ("dense", "normalize")),
        ("deberta-v2", "mean", ()),
        ("qwen3", "lasttoken", ("normalize",)),
        ("t5", "mean", ("normalize",)),
    ],
)
def test_an_exported_model_gives_the_vectors_and_tokens_of_the_library(
    tmp_path: Path, architecture: str, pooling: str, extra: tuple[str, ...]
) -> None:
    source = write_model(tmp_path / "source", architecture, pooling, extra)
    prepared = prepare(source, tmp_path / "models" / "model", options=EXACT)
    recipe = prepared.recipe
    assert recipe.architecture == architecture
    assert (recipe.max_length_tokens, recipe.normalize) == (MAX_LENGTH, "normalize" in extra)
    assert recipe.pooling.value.replace("_", "") == pooling
    engine = verify(prepared.directory, threads=2).engine
    library = load_library(source, "cpu")
    for purpose, prompt in ((Purpose.QUERY, "find: "), (Purpose.PASSAGE, "")):
        expected = library_vectors(source, purpose, recipe.dimensions)
        embedded = engine.embed(TEXTS, purpose)
        assert least_agreement(expected, embedded.vectors) >= LEAST_AGREEMENT
        for text, tokens in zip(TEXTS, embedded.tokens, strict=True):
            assert tokens.ids.tolist() == library.preprocess([prompt + text])["input_ids"][0].tolist()
    assert engine.tokenize([TEXTS[3]], Purpose.PASSAGE)[0].is_truncated


@pytest.mark.parametrize(("architecture", "pooling"), [("bert", "lasttoken"), ("xlm-roberta", "mean")])
def test_both_ways_of_preparing_agree(tmp_path: Path, architecture: str, pooling: str) -> None:
    source = write_model(tmp_path / "source", architecture, pooling)
    plain = prepare(source, tmp_path / "plain", options=EXACT)
    exported = load(source, EXACT, InvalidArgument("It could be prepared without torch."))
    assert plain.recipe == exported.recipe
    backend = OpenVinoBackend(exported.build(exported.recipe), threads=1)
    engines = (
        verify(plain.directory, threads=1).engine,
        Engine(backend, TextTokenizer(plain.directory, exported.recipe), exported.recipe),
    )
    expected = library_vectors(source, Purpose.PASSAGE, plain.recipe.dimensions)
    for engine in engines:
        assert least_agreement(expected, engine.embed(TEXTS, Purpose.PASSAGE).vectors) > 0.99999


def test_an_export_is_the_same_to_the_byte(tmp_path: Path) -> None:
    source = write_model(tmp_path / "source", "modernbert")
    digests = {prepare(source, tmp_path / str(number), options=EXACT).manifest.digest for number in range(2)}
    assert len(digests) == 1


def test_an_exported_model_is_quantized_calibrated_on_given_texts_and_cut(tmp_path: Path) -> None:
    source = write_model(tmp_path / "source", "qwen3", "lasttoken")
    texts = tmp_path / "chunks.jsonl"
    texts.write_text("".join(json.dumps({"text": f"def f{number}(): return {number}"}) + "\n" for number in range(40)))
    prepared = prepare(
        source,
        tmp_path / "model",
        options=Options(dimensions=16, calibration=Calibration.read(texts), passage_prompt="doc: "),
    )
    assert (prepared.recipe.dimensions, prepared.recipe.full_dimensions) == (16, 32)
    assert (prepared.recipe.prompts.query, prepared.recipe.prompts.passage) == ("find: ", "doc: ")
    assert prepared.recipe.pooling is Pooling.LAST_TOKEN
    assert 0.9 < prepared.manifest.fidelity.mean_cosine < 1
    assert prepared.measured is not None
    assert 0 < prepared.measured.cut_top10_overlap <= 1
    vectors = verify(prepared.directory, threads=1).engine.embed(TEXTS, Purpose.QUERY).vectors
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


async def test_the_second_engine_serves_a_model_as_it_is(
    tmp_path: Path, start_server: Callable[..., AbstractContextManager[Server]]
) -> None:
    """One that OpenVINO's converter cannot take over."""
    source = write_model(tmp_path / "source", "gemma3_text", "mean", ("dense", "normalize"))
    with pytest.raises(InvalidArgument, match="gemma3_text") as raised:
        prepare(source, tmp_path / "models" / "first", options=EXACT)
    assert raised.value.reason == "MODEL_NOT_EXPORTABLE"
    assert "--engine sentence-transformers" in raised.value.remedy
    options = Options(quantization=Quantization.FLOAT32, engine=EngineKind.SENTENCE_TRANSFORMERS)
    prepared = prepare(source, tmp_path / "models" / "second", options=options)
    assert prepared.recipe.engine is EngineKind.SENTENCE_TRANSFORMERS
    with start_server(tmp_path / "models") as running:
        async with open_channel(running.target) as channel:
            stub = embed_service_pb2_grpc.EmbedServiceStub(channel)

            async def embed(texts: list[str]) -> Float32Array:
                answer = await stub.Embed(
                    embed_service_pb2.EmbedRequest(model="second", texts=texts, task=embed_pb2.EMBED_TASK_QUERY)
                )
                assert answer.model_digest == prepared.manifest.digest
                packed = answer.vectors
                return np.frombuffer(packed.values, dtype="<f4").reshape(packed.count, packed.dimensions)

            together = await embed(list(TEXTS))
            alone = np.concatenate([await embed([text]) for text in TEXTS])
            assert together.tobytes() == alone.tobytes()
            expected = library_vectors(source, Purpose.QUERY, prepared.recipe.dimensions)
            assert least_agreement(expected, together) >= LEAST_AGREEMENT


def test_the_second_engine_refuses_a_recipe_of_other_dimensions(tmp_path: Path) -> None:
    options = Options(quantization=Quantization.FLOAT32, engine=EngineKind.SENTENCE_TRANSFORMERS)
    directory = prepare(write_model(tmp_path / "source", "mpnet"), tmp_path / "model", options=options).directory
    path = directory / "recipe.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "dimensions": 16}))
    manifest = Manifest.from_json((directory / "manifest.json").read_bytes())
    files = {name: describe_file(directory / name) for name in manifest.files}
    digest = model_digest(Recipe.from_json(path.read_bytes()), "", files)
    (directory / "manifest.json").write_text(replace(manifest, files=files, digest=digest).to_json())
    with pytest.raises(DataLoss) as raised:
        verify(directory, threads=1)
    assert raised.value.reason == "MODEL_DIMENSIONS_DIFFER"


def test_a_tokenizer_that_the_service_reads_otherwise_is_refused(tmp_path: Path) -> None:
    source = write_model(tmp_path / "source", "mpnet")
    config = json.loads((source / "tokenizer_config.json").read_text())
    # The end of a long text is kept then, and not its beginning.
    (source / "tokenizer_config.json").write_text(json.dumps({**config, "truncation_side": "left"}))
    with pytest.raises(InvalidArgument) as raised:
        prepare(source, tmp_path / "model", options=EXACT)
    assert raised.value.reason == "MODEL_NOT_REPRODUCED"
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("adapter_config.json", "{}", "MODEL_IS_ADAPTER"),
        ("modeling_own.py", "", "MODEL_NEEDS_REMOTE_CODE"),
        ("config.json", '{"model_type": "mpnet", "auto_map": {}}', "MODEL_NEEDS_REMOTE_CODE"),
        ("modules.json", '[{"idx": 0, "path": "", "type": "mine.Transformer"}]', "MODEL_NEEDS_REMOTE_CODE"),
        ("config.json", '{"model_type": "unheard-of"}', "MODEL_UNSUPPORTED"),
    ],
)
def test_what_would_run_foreign_code_or_is_unknown_is_refused(
    tmp_path: Path, name: str, content: str, reason: str
) -> None:
    source = write_model(tmp_path / "source", "mpnet")
    (source / name).write_text(content)
    with pytest.raises(InvalidArgument) as raised:
        prepare(source, tmp_path / "model", options=EXACT)
    assert raised.value.reason == reason
    assert raised.value.remedy


def test_pickled_weights_are_not_read(tmp_path: Path) -> None:
    source = write_model(tmp_path / "source", "mpnet")
    (source / "model.safetensors").rename(source / "pytorch_model.bin")
    with pytest.raises(InvalidArgument, match="pickle"):
        prepare(source, tmp_path / "model", options=EXACT)
