"""Preparing a model: reproducible to the byte, whole or not at all, the source untouched."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from services.core.errors import Conflict, DataLoss, InvalidArgument
from services.embed.preparation import Options, PreparedModel, prepare
from services.embed.recipe import Pooling, Prompts, Purpose, Quantization
from services.embed.verify import verify
from tests.integration.embed.tiny_model import Tiny, reference, weights_of, write_source


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_the_directory_holds_everything_and_the_licence_comes_along(quantized_model: PreparedModel) -> None:
    assert {path.name for path in quantized_model.directory.iterdir()} == {
        "LICENSE",
        "manifest.json",
        "openvino_model_qint8.bin",
        "openvino_model_qint8.xml",
        "recipe.json",
        "tokenizer.json",
    }
    recipe = quantized_model.recipe
    assert (recipe.dimensions, recipe.max_length_tokens, recipe.pooling) == (32, 96, Pooling.MEAN)
    assert recipe.prompts == Prompts(query="q ")
    assert recipe.quantization is Quantization.QINT8


def test_preparing_twice_gives_the_same_bytes_and_so_the_same_digest(
    quantized_model: PreparedModel, tiny_source: Path, tmp_path: Path
) -> None:
    again = prepare(tiny_source, tmp_path / "elsewhere" / "model")
    assert again.manifest.digest == quantized_model.manifest.digest
    assert contents(again.directory) == contents(quantized_model.directory)


def test_fidelity_is_measured_on_held_out_texts(quantized_model: PreparedModel, tiny_model: PreparedModel) -> None:
    assert tiny_model.manifest.fidelity.min_cosine == pytest.approx(1.0, abs=1e-5)
    measured = quantized_model.manifest.fidelity
    assert measured.texts > 100
    assert 0.9 < measured.min_cosine <= measured.mean_cosine < 1.0
    assert 0.5 < measured.top10_overlap <= 1.0


def test_the_probes_are_what_the_reference_computes(tiny_model: PreparedModel) -> None:
    engine = verify(tiny_model.directory, threads=1).engine
    tiny = Tiny()
    for probe in tiny_model.manifest.probes:
        ids = engine.tokenize([probe.text], probe.purpose)[0].ids.tolist()
        np.testing.assert_allclose(probe.vector, reference(tiny, weights_of(tiny), ids), atol=2e-5)
    assert {probe.purpose for probe in tiny_model.manifest.probes} == set(Purpose)


def test_vectors_are_cut_before_they_are_normalised(tiny_source: Path, tmp_path: Path) -> None:
    options = Options(quantization=Quantization.FLOAT32, dimensions=16)
    prepared = prepare(tiny_source, tmp_path / "model", options=options)
    assert prepared.measured is not None
    assert 0 < prepared.measured.cut_top10_overlap < 1
    engine = verify(prepared.directory, threads=1).engine
    embedded = engine.embed(["def read(path): return open(path)"], Purpose.PASSAGE)
    whole = reference(Tiny(), weights_of(Tiny()), embedded.tokens[0].ids.tolist())[:16]
    np.testing.assert_allclose(embedded.vectors[0], whole / np.linalg.norm(whole), atol=2e-5)


def test_the_same_inputs_are_not_prepared_again(tiny_model: PreparedModel, tiny_source: Path) -> None:
    stages: list[str] = []
    again = prepare(
        tiny_source,
        tiny_model.directory,
        options=Options(quantization=Quantization.FLOAT32),
        progress=lambda stage, share: stages.append(stage),
    )
    assert not again.is_new
    assert again.manifest.digest == tiny_model.manifest.digest
    assert stages == ["read", "done"]


def test_other_inputs_do_not_overwrite_a_model(
    tiny_model: PreparedModel, copy_of: Callable[[PreparedModel], Path], tiny_source: Path
) -> None:
    directory = copy_of(tiny_model)
    before = contents(directory)
    with pytest.raises(Conflict) as raised:
        prepare(tiny_source, directory, options=Options(quantization=Quantization.INT8))
    assert raised.value.remedy
    assert contents(directory) == before


def test_a_damaged_result_is_not_taken_for_a_good_one(
    tiny_model: PreparedModel, copy_of: Callable[[PreparedModel], Path], tiny_source: Path
) -> None:
    directory = copy_of(tiny_model)
    (directory / "tokenizer.json").write_text("{}")
    with pytest.raises(DataLoss):
        prepare(tiny_source, directory, options=Options(quantization=Quantization.FLOAT32))


def test_a_read_only_source_is_enough_and_stays_as_it_was(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", Tiny(layers=1))
    before = contents(source)
    for path in [*source.rglob("*"), source]:
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    try:
        prepared = prepare(source, tmp_path / "model", options=Options(quantization=Quantization.INT8))
    finally:
        source.chmod(0o755)
        (source / "1_Pooling").chmod(0o755)
    assert contents(source) == before
    assert verify(prepared.directory, threads=1).probe.min_cosine > 0.9999


def test_a_source_that_cannot_be_prepared_leaves_no_trace(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", Tiny(layers=1))
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    with pytest.raises(InvalidArgument, match=r"layer\.1"):
        prepare(source, tmp_path / "models" / "model", options=Options(quantization=Quantization.FLOAT32))
    assert list((tmp_path / "models").iterdir()) == []


def test_a_hub_id_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="never fetched"):
        prepare(Path("sentence-transformers/all-MiniLM-L6-v2"), tmp_path / "model")


def test_progress_only_moves_forward_and_ends_at_one(tiny_source: Path, tmp_path: Path) -> None:
    seen: list[float] = []
    prepare(
        tiny_source,
        tmp_path / "model",
        options=Options(quantization=Quantization.FLOAT32, query_prompt="find: "),
        progress=lambda stage, share: seen.append(share),
    )
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_prompts_given_by_the_caller_change_the_identity(
    tiny_model: PreparedModel, tiny_source: Path, tmp_path: Path
) -> None:
    other = prepare(
        tiny_source,
        tmp_path / "model",
        options=Options(quantization=Quantization.FLOAT32, query_prompt="find: "),
    )
    assert other.recipe.prompts.query == "find: "
    assert other.manifest.digest != tiny_model.manifest.digest
