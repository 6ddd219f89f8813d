"""A model directory that is not what it should be is refused before it gives a wrong vector."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from services.core.drift import DRIFTED_BELOW_COSINE
from services.core.errors import DataLoss, InvalidArgument, NotFound, NotReady, UndercroftError
from services.embed.manifest import Manifest, ModelFile, Probe, describe_file, model_digest
from services.embed.preparation import Options, PreparedModel
from services.embed.recipe import Recipe
from services.embed.verify import verify
from tests.integration.embed.tiny_model import Tiny, write_source

Copy = Callable[[PreparedModel], Path]


def turned(probe: Probe, cosine: float) -> Probe:
    """Return the probe with a vector at a given cosine from its own."""
    away = np.roll(probe.vector, 1)
    away = away - (away @ probe.vector) * probe.vector
    away /= np.linalg.norm(away)
    vector = cosine * probe.vector + np.sqrt(1 - cosine**2) * away
    return replace(probe, vector=vector.astype(np.float32))


def rewrite(directory: Path, change: Callable[[Manifest], Manifest]) -> None:
    path = directory / "manifest.json"
    path.write_text(change(Manifest.from_json(path.read_bytes())).to_json())


def reseal(directory: Path) -> None:
    """Make manifest and digest agree with the files again, as a careless copy tool or a forger would."""

    def change(manifest: Manifest) -> Manifest:
        files = {name: describe_file(directory / name) for name in manifest.files}
        recipe = Recipe.from_json((directory / "recipe.json").read_bytes())
        return replace(manifest, files=files, digest=model_digest(recipe, manifest.graph, files))

    rewrite(directory, change)


def test_a_good_directory_passes_and_computes_its_probes(quantized_model: PreparedModel) -> None:
    verified = verify(quantized_model.directory, threads=2)
    assert verified.probe.min_cosine > 0.999999
    assert not verified.probe.has_drifted


@pytest.mark.parametrize(
    "name", ["openvino_model_float32.bin", "openvino_model_float32.xml", "tokenizer.json", "recipe.json", "LICENSE"]
)
def test_each_missing_or_flipped_file_is_named(tiny_model: PreparedModel, copy_of: Copy, name: str) -> None:
    directory = copy_of(tiny_model)
    content = bytearray((directory / name).read_bytes())
    content[len(content) // 2] ^= 1
    (directory / name).write_bytes(content)
    with pytest.raises(DataLoss, match=name) as damaged:
        verify(directory, threads=1)
    assert damaged.value.reason == "MODEL_FILE_DAMAGED"
    (directory / name).unlink()
    with pytest.raises(NotReady, match=name) as missing:
        verify(directory, threads=1)
    assert missing.value.reason == "MODEL_FILE_MISSING"


def test_a_truncated_file_is_named(tiny_model: PreparedModel, copy_of: Copy) -> None:
    directory = copy_of(tiny_model)
    weights = directory / "openvino_model_float32.bin"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(DataLoss, match=r"openvino_model_float32\.bin"):
        verify(directory, threads=1)


def test_a_directory_without_a_manifest_is_no_model(tiny_source: Path) -> None:
    with pytest.raises(NotReady, match="not a prepared model") as raised:
        verify(tiny_source, threads=1)
    assert "models prepare" in raised.value.remedy


def test_a_hub_id_and_an_absent_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument):
        verify(Path("org/model"), threads=1)
    with pytest.raises(NotFound):
        verify(tmp_path / "absent", threads=1)


@pytest.mark.parametrize(("name", "text"), [("adapter_config.json", "{}"), ("tokenization_x.py", "")])
def test_adapters_and_code_beside_a_good_model_are_refused(
    tiny_model: PreparedModel, copy_of: Copy, name: str, text: str
) -> None:
    directory = copy_of(tiny_model)
    (directory / name).write_text(text)
    with pytest.raises(InvalidArgument):
        verify(directory, threads=1)


@pytest.mark.parametrize(("key", "value"), [("normalize", False), ("pooling", "cls"), ("max_length_tokens", 32)])
def test_an_edited_recipe_is_noticed_though_its_hash_was_renewed(
    tiny_model: PreparedModel, copy_of: Copy, key: str, value: object
) -> None:
    directory = copy_of(tiny_model)
    path = directory / "recipe.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    rewrite(
        directory,
        lambda manifest: replace(manifest, files={**manifest.files, "recipe.json": describe_file(path)}),
    )
    with pytest.raises(DataLoss) as raised:
        verify(directory, threads=1)
    assert raised.value.reason == "MODEL_DIGEST_MISMATCH"


def test_wrong_dimensions_are_noticed_even_when_everything_was_resealed(
    tiny_model: PreparedModel, copy_of: Copy
) -> None:
    directory = copy_of(tiny_model)
    path = directory / "recipe.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "dimensions": 16}))
    reseal(directory)
    with pytest.raises(DataLoss, match="dimensions"):
        verify(directory, threads=1)


def test_a_foreign_tokenizer_is_noticed_even_when_everything_was_resealed(
    tiny_model: PreparedModel, copy_of: Copy
) -> None:
    directory = copy_of(tiny_model)
    path = directory / "tokenizer.json"
    document = json.loads(path.read_text())
    vocabulary = document["model"]["vocab"]
    document["model"]["vocab"] = {(token.upper() if len(token) < 4 else token): i for token, i in vocabulary.items()}
    path.write_text(json.dumps(document))
    reseal(directory)
    with pytest.raises(UndercroftError) as raised:
        verify(directory, threads=1)
    assert raised.value.reason == "MODEL_TOKENIZER_FOREIGN"


def test_weights_of_another_model_are_noticed_by_the_probes(
    tiny_model: PreparedModel, copy_of: Copy, tmp_path: Path
) -> None:
    from services.embed.preparation import prepare

    directory = copy_of(tiny_model)
    other = prepare(
        write_source(tmp_path / "other-source", Tiny(seed=2)),
        tmp_path / "other",
        options=Options(quantization=tiny_model.recipe.quantization),
    )
    name = "openvino_model_float32.bin"
    (directory / name).write_bytes((other.directory / name).read_bytes())
    reseal(directory)
    with pytest.raises(NotReady) as raised:
        verify(directory, threads=1)
    assert raised.value.reason == "MODEL_PROBES_DIFFER"


def test_a_processor_that_computes_a_little_otherwise_drifts_and_serves(
    tiny_model: PreparedModel, copy_of: Copy
) -> None:
    directory = copy_of(tiny_model)
    rewrite(directory, lambda manifest: replace(manifest, probes=tuple(turned(p, 0.995) for p in manifest.probes)))
    probe = verify(directory, threads=1).probe
    assert probe.min_cosine == pytest.approx(0.995, abs=1e-4)
    assert probe.min_cosine < DRIFTED_BELOW_COSINE
    assert probe.has_drifted


def test_a_processor_that_computes_something_else_is_refused(tiny_model: PreparedModel, copy_of: Copy) -> None:
    directory = copy_of(tiny_model)
    rewrite(
        directory,
        lambda manifest: replace(manifest, probes=(*manifest.probes[1:], turned(manifest.probes[0], 0.98))),
    )
    with pytest.raises(NotReady) as raised:
        verify(directory, threads=1)
    assert raised.value.reason == "MODEL_PROBES_DIFFER"


def test_a_manifest_without_probes_proves_nothing(tiny_model: PreparedModel, copy_of: Copy) -> None:
    directory = copy_of(tiny_model)
    rewrite(directory, lambda manifest: replace(manifest, probes=()))
    with pytest.raises(DataLoss, match="no probes"):
        verify(directory, threads=1)


@pytest.mark.parametrize("name", ["manifest.json", "recipe.json"])
@pytest.mark.parametrize("content", [b"{", b"\xff", b"[]", b'{"format": 99}'])
def test_a_document_that_is_none_is_named_by_its_path(
    tiny_model: PreparedModel, copy_of: Copy, name: str, content: bytes
) -> None:
    directory = copy_of(tiny_model)
    (directory / name).write_bytes(content)
    if name == "recipe.json":
        rewrite(
            directory,
            lambda manifest: replace(manifest, files={**manifest.files, name: describe_file(directory / name)}),
        )
    with pytest.raises(DataLoss, match=str(directory / name)):
        verify(directory, threads=1)


def test_a_file_at_a_path_that_no_volume_holds_is_missing(tiny_model: PreparedModel, copy_of: Copy) -> None:
    directory = copy_of(tiny_model)
    deep = "/".join(["folder"] * 1000)
    rewrite(directory, lambda manifest: replace(manifest, files={**manifest.files, deep: ModelFile(1, "0" * 64)}))
    with pytest.raises(NotReady) as raised:
        verify(directory, threads=1)
    assert raised.value.reason == "MODEL_FILE_MISSING"
