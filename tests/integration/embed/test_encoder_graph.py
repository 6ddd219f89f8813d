"""The graph that is built without torch computes what the papers say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from services.core.errors import InvalidArgument
from services.embed.backends import Lane
from services.embed.backends.openvino import OpenVinoBackend
from services.embed.engine import Engine
from services.embed.preparation.options import Options
from services.embed.preparation.source import read_source
from services.embed.preparation.weights import load_weights
from services.embed.recipe import Purpose, Quantization
from services.embed.shapes import bucket_of
from services.embed.tokenization import TextTokenizer
from tests.integration.embed.tiny_model import Tiny, reference, weights_of, write_source

TEXTS = ("a", "def read(path): return open(path)", "one two three " * 5)


def engine_of(directory: Path) -> Engine:
    source = read_source(directory, Options(quantization=Quantization.FLOAT32))
    return Engine(
        OpenVinoBackend(source.build(source.recipe), threads=1), TextTokenizer(directory, source.recipe), source.recipe
    )


@pytest.mark.parametrize(
    "tiny",
    [
        Tiny(),
        Tiny(pooling="cls"),
        Tiny(pooling="lasttoken"),
        Tiny(normalize=False),
        Tiny(activation="gelu_new"),
        Tiny(activation="relu", layers=1),
        Tiny(model_type="roberta"),
        Tiny(model_type="distilbert", pooling="cls"),
    ],
    ids=lambda tiny: f"{tiny.model_type}-{tiny.pooling}-{tiny.activation}-{tiny.normalize}",
)
def test_vectors_equal_the_reference(tmp_path: Path, tiny: Tiny) -> None:
    engine = engine_of(write_source(tmp_path / "source", tiny))
    embedded = engine.embed(TEXTS, Purpose.PASSAGE)
    for tokens, vector in zip(embedded.tokens, embedded.vectors, strict=True):
        expected = reference(tiny, weights_of(tiny), tokens.ids.tolist())
        np.testing.assert_allclose(vector, expected, atol=2e-5)


def test_padding_beyond_the_bucket_does_not_leak_into_the_vector(tmp_path: Path) -> None:
    engine = engine_of(write_source(tmp_path / "source", Tiny()))
    ids = engine.tokenize(["abc"], Purpose.PASSAGE)[0].ids
    own = engine.infer([ids], bucket_of(len(ids), 96), Lane.BULK)
    np.testing.assert_allclose(engine.infer([ids], 96, Lane.BULK), own, atol=1e-5)


def test_half_precision_and_sharded_weights_are_read(tmp_path: Path) -> None:
    directory = write_source(tmp_path / "source", Tiny())
    weights = load_weights(directory)
    names = sorted(weights)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    (directory / "model.safetensors").unlink()
    for shard, kept in shards.items():
        save_file({name: weights[name].astype(np.float16) for name in kept}, directory / shard)
    weight_map = {name: shard for shard, kept in shards.items() for name in kept}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    again = load_weights(directory)
    assert sorted(again) == names
    for name in names:
        np.testing.assert_array_equal(again[name], weights[name].astype(np.float16).astype(np.float32))


def test_bfloat16_is_the_upper_half_of_float32(tmp_path: Path) -> None:
    values = np.array([[1.5, -2.25], [0.0, 3.0e38]], dtype=np.float32)
    upper = (values.view(np.uint32) >> 16).astype("<u2")
    header = json.dumps({"w": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}}).encode()
    content = len(header).to_bytes(8, "little") + header + upper.tobytes()
    (tmp_path / "model.safetensors").write_bytes(content)
    loaded = load_weights(tmp_path)["w"]
    np.testing.assert_array_equal(loaded, (upper.astype(np.uint32) << 16).view(np.float32))
    assert loaded.dtype == np.float32


def test_missing_weights_are_named(tmp_path: Path) -> None:
    directory = write_source(tmp_path / "source", Tiny())
    weights = load_weights(directory)
    lost = "encoder.layer.1.output.dense.bias"
    del weights[lost]
    save_file(weights, directory / "model.safetensors")
    with pytest.raises(InvalidArgument, match=lost):
        engine_of(directory)


def test_pickled_weights_are_not_read(tmp_path: Path) -> None:
    directory = write_source(tmp_path / "source", Tiny())
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    with pytest.raises(InvalidArgument, match="pickle"):
        load_weights(directory)
    (directory / "model.safetensors").write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00{broken")
    with pytest.raises(InvalidArgument, match="not a readable safetensors"):
        load_weights(directory)
