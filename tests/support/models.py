"""A second real model for tests: a prepared one whose vectors are projected to fewer dimensions."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import services.embed  # noqa: F401  (sets the offline switches before anything else is imported)

# isort: split
import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset15 as op

from services.core.cpu import cpu_threads
from services.embed.backends.openvino import OpenVinoBackend, describe_engine, read_graph
from services.embed.directory import published_directory
from services.embed.engine import Engine
from services.embed.manifest import RECIPE_NAME, digest_of
from services.embed.preparation import fidelity
from services.embed.preparation.finishing import finish
from services.embed.preparation.head import SENTENCE_EMBEDDING, name_by_place
from services.embed.preparation.texts import HOLDOUT, read_texts
from services.embed.recipe import Purpose
from services.embed.tokenization import TextTokenizer
from services.embed.verify import read_manifest, verify

_SEED = 256
_MEASURED_TEXTS = 12
_SMALLEST_NORM = np.float32(1e-12)


def projection(from_dimensions: int, to_dimensions: int) -> npt.NDArray[np.float32]:
    """Return a matrix, from x to, with orthonormal columns; the same for the same numbers."""
    gaussian = np.random.default_rng(_SEED).standard_normal((from_dimensions, to_dimensions))
    columns, triangle = np.linalg.qr(gaussian)
    # The decomposition leaves signs open.
    return (columns * np.sign(np.diag(triangle))).astype(np.float32)


def project(vectors: npt.NDArray[np.float32], matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Project unit vectors and normalise them again, as the graph of a projected model does."""
    projected = vectors @ matrix
    return projected / np.linalg.norm(projected, axis=1, keepdims=True)


def make_projected_model(source: Path, into: Path, dimensions: int = 256) -> Path:
    """Make a model directory of the prepared model in ``source`` with a projection behind its graph; return it.

    It has another digest and other probes, and passes every check of a model that is side-loaded.
    """
    original = verify(source, threads=cpu_threads())
    recipe = replace(original.recipe, dimensions=dimensions)
    matrix = projection(original.recipe.dimensions, dimensions)
    graph = original.manifest.graph
    with published_directory(into) as directory:
        for name in original.manifest.files:
            if name not in (RECIPE_NAME, f"{graph}.xml", f"{graph}.bin"):
                shutil.copyfile(source / name, directory / name)
        core = ov.Core()
        core.set_property({"ENABLE_MMAP": False})
        projected = _projected(core.read_model(source / f"{graph}.xml"), matrix)
        ov.save_model(projected, directory / f"{graph}.xml", compress_to_fp16=False)
        engine = Engine(
            OpenVinoBackend(read_graph(directory / f"{graph}.xml", recipe.dimensions), threads=cpu_threads()),
            TextTokenizer(directory, recipe),
            recipe,
        )
        texts = read_texts(HOLDOUT)[:_MEASURED_TEXTS]
        expected = project(original.engine.embed(texts, Purpose.PASSAGE).vectors, matrix)
        measured = fidelity.measure(expected, engine.embed(texts, Purpose.PASSAGE).vectors)
        inputs = {
            "model": read_manifest(source).digest,
            "projection": digest_of({"seed": _SEED, "shape": list(matrix.shape)}),
            "engine": describe_engine(),
        }
        finish(directory, graph, engine, measured, inputs)
    return into


def _projected(model: ov.Model, matrix: npt.NDArray[np.float32]) -> ov.Model:
    result = model.get_results()[0]
    vectors = result.input_value(0)
    projected = op.matmul(vectors, op.constant(matrix), False, False)
    squares = op.reduce_sum(op.multiply(projected, projected), op.constant(np.array([-1], np.int64)), True)
    unit = op.divide(projected, op.maximum(op.sqrt(squares), op.constant(_SMALLEST_NORM)))
    vectors.get_tensor().set_names(set())
    unit.output(0).get_tensor().set_names({SENTENCE_EMBEDDING})
    longer = ov.Model([op.result(unit)], model.get_parameters(), model.get_friendly_name())
    name_by_place(longer)
    return longer
