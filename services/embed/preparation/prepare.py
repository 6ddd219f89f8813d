"""Source directory in, verified model directory out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import openvino as ov  # type: ignore[import-untyped]

from services.core.cpu import cpu_threads
from services.embed.backends.openvino import OpenVinoBackend, describe_engine, read_graph
from services.embed.directory import published_directory
from services.embed.engine import Engine
from services.embed.manifest import (
    MANIFEST_NAME,
    TOKENIZER_NAME,
    Fidelity,
    Manifest,
    describe_file,
    digest_of,
)
from services.embed.preparation import fidelity
from services.embed.preparation.finishing import finish
from services.embed.preparation.graph import build_encoder, name_by_place
from services.embed.preparation.quantization import quantize
from services.embed.preparation.source import Source, read_source
from services.embed.preparation.texts import CALIBRATION, HOLDOUT, read_bytes, read_texts
from services.embed.preparation.weights import load_weights, weight_files
from services.embed.recipe import Prompts, Purpose, Quantization, Recipe
from services.embed.tokenization import TextTokenizer
from services.embed.verify import check_files

Progress = Callable[[str, float], None]

# Raised when the way that this module prepares changes, so that an older directory is not taken for a current one.
PREPARATION_FORMAT = 1

_CARRIED = ("LICENSE*", "LICENCE*", "NOTICE*", "README.md")
_TOOLS = ("openvino", "nncf", "tokenizers", "safetensors", "numpy")
_SETTINGS = (
    "config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    TOKENIZER_NAME,
)


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model directory that can be served. ``is_new`` is false when it was already there from the same inputs."""

    directory: Path
    recipe: Recipe
    manifest: Manifest
    is_new: bool


def prepare(
    source: Path,
    destination: Path,
    *,
    progress: Progress = lambda stage, share: None,
    quantization: Quantization = Quantization.QINT8,
    prompts: Prompts | None = None,
) -> PreparedModel:
    """Prepare the model of ``source`` into ``destination``; both are absolute directories.

    ``progress`` is called with the name of a stage and the share of the whole that is done, 0 to 1. ``prompts``
    replaces those of the source. A ``destination`` that holds the result of exactly these inputs is checked and
    returned as it is; one that holds anything else raises ``Conflict``. Raises ``InvalidArgument`` or ``NotFound``
    when the source is not a model that this can prepare.
    """
    progress("read", 0.0)
    understood = read_source(source, quantization=quantization, prompts=prompts)
    inputs = _inputs(understood)
    existing = _existing(destination, inputs)
    if existing is not None:
        progress("done", 1.0)
        return existing
    with published_directory(destination) as temporary:
        manifest = _build(understood, inputs, temporary, progress)
    progress("done", 1.0)
    return PreparedModel(directory=destination, recipe=understood.recipe, manifest=manifest, is_new=True)


def _build(source: Source, inputs: dict[str, str], directory: Path, progress: Progress) -> Manifest:
    recipe = source.recipe
    shutil.copyfile(source.directory / TOKENIZER_NAME, directory / TOKENIZER_NAME)
    tokenizer = TextTokenizer(directory, recipe)
    progress("build", 0.05)
    reference = build_encoder(source.shape, load_weights(source.directory), recipe.pooling, normalize=recipe.normalize)
    holdout = read_texts(HOLDOUT)
    threads = cpu_threads()
    progress("reference", 0.1)
    float_recipe = replace(recipe, quantization=Quantization.FLOAT32)
    expected = Engine(OpenVinoBackend(reference, threads=threads), tokenizer, float_recipe).embed(
        holdout, Purpose.PASSAGE
    )
    progress("quantize", 0.2)
    quantized = quantize(
        reference,
        tokenizer.tokenize(read_texts(CALIBRATION), Purpose.PASSAGE),
        recipe,
        report=lambda share: progress("quantize", 0.2 + 0.6 * share),
    )
    graph = f"openvino_model_{recipe.quantization.value}"
    name_by_place(quantized)
    ov.save_model(quantized, directory / f"{graph}.xml", compress_to_fp16=False)
    progress("measure", 0.8)
    # Fidelity and probes come from the file, as the service will read it.
    engine = Engine(
        OpenVinoBackend(read_graph(directory / f"{graph}.xml", recipe.dimensions), threads=threads), tokenizer, recipe
    )
    measured: Fidelity = fidelity.measure(expected.vectors, engine.embed(holdout, Purpose.PASSAGE).vectors)
    _carry(source.directory, directory)
    return finish(directory, graph, engine, measured, inputs)


def _inputs(source: Source) -> dict[str, str]:
    """Name everything that the result depends on: files, texts, recipe and tools."""
    names = [*(path.name for path in weight_files(source.directory)), *_SETTINGS]
    return {
        "format": str(PREPARATION_FORMAT),
        **{f"file {name}": describe_file(source.directory / name).sha256 for name in names},
        "recipe": digest_of(source.recipe.identity()),
        "calibration": digest_of({"texts": read_bytes(CALIBRATION).decode("utf-8")}),
        "holdout": digest_of({"texts": read_bytes(HOLDOUT).decode("utf-8")}),
        **{f"tool {name}": metadata.version(name) for name in _TOOLS},
        "engine": describe_engine(),
    }


def _existing(destination: Path, inputs: dict[str, str]) -> PreparedModel | None:
    if not (destination / MANIFEST_NAME).is_file():
        return None
    manifest = Manifest.from_json((destination / MANIFEST_NAME).read_text(encoding="utf-8"))
    if manifest.inputs_digest != digest_of(inputs):
        return None
    recipe = check_files(destination, manifest)
    return PreparedModel(directory=destination, recipe=recipe, manifest=manifest, is_new=False)


def _carry(source: Path, directory: Path) -> None:
    """Copy licence and model card, so that they stay with the weights."""
    for pattern in _CARRIED:
        for path in sorted(source.glob(pattern)):
            if path.is_file():
                shutil.copyfile(path, directory / path.name)
