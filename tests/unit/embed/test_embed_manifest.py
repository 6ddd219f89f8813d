"""The manifest: identity of a model, and no way out of its directory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from services.core.errors import DataLoss
from services.embed.manifest import Fidelity, Manifest, ModelFile, Probe, describe_file, model_digest
from services.embed.recipe import Pooling, Prompts, Purpose, Quantization, Recipe

RECIPE = Recipe(
    architecture="bert",
    dimensions=4,
    max_length_tokens=64,
    pooling=Pooling.CLS,
    normalize=True,
    quantization=Quantization.QINT8,
)
FILES = {
    name: ModelFile(size_bytes=3, sha256=f"{number:064x}")
    for number, name in enumerate(("graph.xml", "graph.bin", "tokenizer.json", "recipe.json", "README.md"))
}
MANIFEST = Manifest(
    digest=model_digest(RECIPE, "graph", FILES),
    graph="graph",
    files=FILES,
    probes=(Probe(text="a ☃ b", purpose=Purpose.QUERY, vector=np.array([0.5, -0.5, 1e-30, 3], dtype=np.float32)),),
    fidelity=Fidelity(texts=9, mean_cosine=0.99, min_cosine=0.9, top10_overlap=0.95),
    inputs={"tool": "1"},
    inputs_digest="aa",
    processor="avx2",
)


def test_a_manifest_is_read_back_as_it_was_written_to_the_last_bit_of_its_probes() -> None:
    read = Manifest.from_json(MANIFEST.to_json().encode())
    assert replace(read, probes=()) == replace(MANIFEST, probes=())
    assert read.probes[0].vector.tobytes() == MANIFEST.probes[0].vector.tobytes()
    assert read.to_json() == MANIFEST.to_json()


@pytest.mark.parametrize("name", ["graph.xml", "graph.bin", "tokenizer.json"])
def test_each_file_that_determines_a_vector_changes_the_digest(name: str) -> None:
    changed = {**FILES, name: ModelFile(size_bytes=3, sha256="f" * 64)}
    assert model_digest(RECIPE, "graph", changed) != MANIFEST.digest


def test_a_carried_file_or_a_file_name_does_not_change_the_digest() -> None:
    changed = {**FILES, "README.md": ModelFile(size_bytes=4, sha256="e" * 64)}
    assert model_digest(RECIPE, "graph", changed) == MANIFEST.digest
    renamed = {name.replace("graph", "other"): file for name, file in FILES.items()}
    assert model_digest(RECIPE, "other", renamed) == MANIFEST.digest


@pytest.mark.parametrize(
    "changed",
    [
        replace(RECIPE, pooling=Pooling.MEAN),
        replace(RECIPE, normalize=False),
        replace(RECIPE, dimensions=8),
        replace(RECIPE, max_length_tokens=32),
        replace(RECIPE, quantization=Quantization.INT8),
        replace(RECIPE, prompts=Prompts(passage="p: ")),
        replace(RECIPE, lower_case=True),
    ],
)
def test_each_setting_that_determines_a_vector_changes_the_digest(changed: Recipe) -> None:
    assert model_digest(changed, "graph", FILES) != MANIFEST.digest


@pytest.mark.parametrize("name", ["../weights.bin", "/etc/passwd", "a//b", "a/../b", "..", ".hidden", "a/.b", "a\\b"])
def test_a_manifest_that_names_files_outside_of_its_directory_is_refused(name: str) -> None:
    document = json.loads(MANIFEST.to_json())
    for place in ({**document, "graph": name}, {**document, "files": {name: document["files"]["graph.xml"]}}):
        with pytest.raises(DataLoss):
            Manifest.from_json(json.dumps(place).encode())


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"format": 99}', "\u0000"])
def test_a_malformed_manifest_is_refused_in_words(text: str) -> None:
    with pytest.raises(DataLoss) as raised:
        Manifest.from_json(text.encode())
    assert raised.value.remedy


def test_a_file_is_described_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert describe_file(path) == ModelFile(
        size_bytes=3, sha256="ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )
