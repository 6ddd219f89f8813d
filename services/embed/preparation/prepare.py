"""Source directory in, verified model directory out."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Protocol

import openvino as ov  # type: ignore[import-untyped]

from services.core.cpu import cpu_threads
from services.core.errors import Conflict, DataLoss, InvalidArgument, NotReady
from services.embed.backends import Float32Array
from services.embed.backends.openvino import OpenVinoBackend, describe_engine, read_graph
from services.embed.directory import published_directory
from services.embed.engine import Engine
from services.embed.installation import manifest_of
from services.embed.manifest import TOKENIZER_NAME, Manifest, describe_file, digest_of
from services.embed.preparation import fidelity
from services.embed.preparation.exporting import load
from services.embed.preparation.finishing import finish
from services.embed.preparation.head import name_by_place
from services.embed.preparation.options import Calibration, Options
from services.embed.preparation.proof import Library, prove
from services.embed.preparation.quantization import quantize
from services.embed.preparation.source import UNSUPPORTED, read_source
from services.embed.preparation.texts import HOLDOUT, read_bytes, read_texts
from services.embed.recipe import EngineKind, Purpose, Quantization, Recipe
from services.embed.tokenization import TextTokenizer
from services.embed.verify import check_files, check_probes, open_backend

Progress = Callable[[str, float], None]

# Raised when the way that this module prepares changes, so that an older directory is not taken for a current one.
PREPARATION_FORMAT = 1

_CARRIED = ("LICENSE*", "LICENCE*", "NOTICE*", "README.md")
_TOOLS = ("openvino", "nncf", "tokenizers", "safetensors", "numpy")


class Encoder(Protocol):
    """A source directory, understood."""

    @property
    def directory(self) -> Path: ...

    @property
    def recipe(self) -> Recipe: ...

    def build(self, recipe: Recipe) -> ov.Model: ...

    def tokenizer_json(self) -> bytes: ...

    def files(self) -> list[Path]: ...

    @property
    def tools(self) -> Sequence[str]: ...

    @property
    def library(self) -> Library | None: ...


@dataclass(frozen=True, slots=True)
class Measured:
    """What a preparation measured besides the fidelity, over the same texts.

    Texts per second are those of one thread of this machine; ``cut_top10_overlap`` is the share of each text's ten
    nearest neighbours that the float32 vectors keep when they are cut, 1 when they are not.
    """

    float32_texts_per_s: float
    texts_per_s: float
    cut_top10_overlap: float


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model directory that can be served. ``measured`` is None when it was already there from the same inputs."""

    directory: Path
    recipe: Recipe
    manifest: Manifest
    measured: Measured | None

    @property
    def is_new(self) -> bool:
        return self.measured is not None


def prepare(
    source: Path,
    destination: Path,
    *,
    options: Options = Options(),  # noqa: B008  (frozen)
    progress: Progress = lambda stage, share: None,
) -> PreparedModel:
    """Prepare the model of ``source`` into ``destination``; both are absolute directories.

    ``progress`` is called with the name of a stage and the share of the whole that is done, 0 to 1. A ``destination``
    that holds the result of exactly these inputs is checked and returned as it is; one that holds anything else raises
    ``Conflict``. Raises ``InvalidArgument`` or ``NotFound`` when the source is not a model that this can prepare.
    """
    progress("read", 0.0)
    encoder = _understand(source, options)
    # Here too, for an earlier release prepared models that leave no room.
    TextTokenizer(source, encoder.recipe, content=encoder.tokenizer_json()).require_room()
    calibration = options.calibration or Calibration.built_in()
    inputs = _inputs(encoder, calibration)
    existing = _existing(destination, inputs)
    if existing is not None:
        progress("done", 1.0)
        return existing
    try:
        with published_directory(destination) as temporary:
            if encoder.recipe.engine is EngineKind.SENTENCE_TRANSFORMERS:
                manifest, measured = _copy(encoder, inputs, temporary, progress)
            else:
                manifest, measured = _build(encoder, calibration, inputs, temporary, progress)
    except Conflict:
        # Another preparation of the same inputs may have been first.
        existing = _existing(destination, inputs)
        if existing is None:
            raise
        progress("done", 1.0)
        return existing
    progress("done", 1.0)
    return PreparedModel(destination, encoder.recipe, manifest, measured)


def _understand(source: Path, options: Options) -> Encoder:
    """Read a source of the BERT family without torch, and any other with it."""
    try:
        plain = read_source(source, options)
    except InvalidArgument as refusal:
        if refusal.reason != UNSUPPORTED:
            raise
        return load(source, options, refusal)
    if options.engine is EngineKind.SENTENCE_TRANSFORMERS:
        return load(source, options, InvalidArgument("The second engine needs torch."))
    return plain


def _build(
    encoder: Encoder, calibration: Calibration, inputs: dict[str, str], directory: Path, progress: Progress
) -> tuple[Manifest, Measured]:
    recipe = encoder.recipe
    (directory / TOKENIZER_NAME).write_bytes(encoder.tokenizer_json())
    tokenizer = TextTokenizer(directory, recipe)
    progress("build", 0.05)
    with _told(encoder):
        reference = encoder.build(recipe)
    holdout = read_texts(HOLDOUT)
    threads = cpu_threads()
    progress("reference", 0.1)
    with _told(encoder):
        exact = Engine(
            OpenVinoBackend(reference, threads=threads), tokenizer, replace(recipe, quantization=Quantization.FLOAT32)
        )
        expected, float32_rate = _embed(exact, holdout)
    if encoder.library is not None:
        prove(exact, encoder.library, holdout)
    cut_overlap = 1.0
    if recipe.full_dimensions:
        full = replace(recipe, quantization=Quantization.FLOAT32, dimensions=recipe.full_dimensions, full_dimensions=0)
        whole = Engine(OpenVinoBackend(encoder.build(full), threads=threads), tokenizer, full)
        cut_overlap = fidelity.neighbours_kept(_embed(whole, holdout)[0], expected)
    progress("quantize", 0.2)
    with _told(encoder):
        quantized = quantize(
            reference,
            tokenizer.tokenize(calibration.texts, Purpose.PASSAGE),
            recipe,
            report=lambda share: progress("quantize", 0.2 + 0.6 * share),
        )
    graph = f"openvino_model_{recipe.quantization.value}"
    name_by_place(quantized)
    try:
        ov.save_model(quantized, directory / f"{graph}.xml", compress_to_fp16=False)
    except RuntimeError as error:
        # OpenVINO does not say why: "basic_ios::clear: iostream error".
        raise OSError(f"OpenVINO cannot write the graph ({error})") from error
    progress("measure", 0.8)
    # Fidelity and probes come from the file, as the service will read it.
    backend = OpenVinoBackend(read_graph(directory / f"{graph}.xml", recipe.dimensions), threads=threads)
    engine = Engine(backend, tokenizer, recipe)
    vectors, rate = _embed(engine, holdout)
    _carry(encoder.directory, directory)
    manifest = _finish(directory, graph, engine, (expected, vectors), inputs)
    return manifest, Measured(float32_rate, rate, cut_overlap)


def _copy(encoder: Encoder, inputs: dict[str, str], directory: Path, progress: Progress) -> tuple[Manifest, Measured]:
    """Take a model as it is, for the second engine."""
    recipe = encoder.recipe
    for path in encoder.files():
        place = directory / path.relative_to(encoder.directory)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    (directory / TOKENIZER_NAME).write_bytes(encoder.tokenizer_json())
    progress("measure", 0.5)
    engine = Engine(open_backend(directory, "", recipe, threads=1), TextTokenizer(directory, recipe), recipe)
    holdout = read_texts(HOLDOUT)
    assert encoder.library is not None
    expected = prove(engine, encoder.library, holdout)
    vectors, rate = _embed(engine, holdout)
    _carry(encoder.directory, directory)
    manifest = _finish(directory, "", engine, (expected, vectors), inputs)
    return manifest, Measured(rate, rate, 1.0)


def _finish(
    directory: Path, graph: str, engine: Engine, vectors: tuple[Float32Array, Float32Array], inputs: dict[str, str]
) -> Manifest:
    """Write the manifest of a model that serves: its ``vectors`` make sense beside the float32 ones before them."""
    measured = fidelity.measure(*vectors)
    fidelity.require_sense(vectors[0], measured)
    manifest = finish(directory, graph, engine, measured, inputs)
    try:
        check_probes(engine, manifest)
    except (DataLoss, NotReady) as error:
        raise InvalidArgument(
            error.message,
            remedy="Check that tokenizer, configuration and weights of the source belong to one model.",
            reason=error.reason,
        ) from error
    return manifest


@contextlib.contextmanager
def _told(encoder: Encoder) -> Iterator[None]:
    """Say in words what OpenVINO finds wrong with a graph."""
    try:
        yield
    except RuntimeError as error:
        raise InvalidArgument(
            f"OpenVINO cannot run the graph of {encoder.directory}: {str(error).strip()[-300:]}",
            remedy="Check that config.json and the weights belong to the same model.",
            reason="MODEL_GRAPH_UNUSABLE",
        ) from error


def _embed(engine: Engine, texts: Sequence[str]) -> tuple[Float32Array, float]:
    """Return vectors, and how many texts one thread embedded in a second."""
    started = time.perf_counter()
    vectors = engine.embed(texts, Purpose.PASSAGE).vectors
    return vectors, len(texts) / (time.perf_counter() - started)


def _inputs(encoder: Encoder, calibration: Calibration) -> dict[str, str]:
    """Name everything that the result depends on: files, texts, recipe and tools."""
    directory = encoder.directory
    return {
        "format": str(PREPARATION_FORMAT),
        **{f"file {path.relative_to(directory)}": describe_file(path).sha256 for path in encoder.files()},
        "recipe": digest_of(encoder.recipe.identity()),
        "calibration": calibration.digest,
        "holdout": digest_of({"texts": read_bytes(HOLDOUT).decode("utf-8")}),
        **{f"tool {name}": metadata.version(name) for name in (*_TOOLS, *encoder.tools)},
        "engine": describe_engine(),
    }


def _existing(destination: Path, inputs: dict[str, str]) -> PreparedModel | None:
    manifest = manifest_of(destination)
    if manifest is None or manifest.inputs_digest != digest_of(inputs):
        return None
    recipe = check_files(destination, manifest)
    return PreparedModel(destination, recipe, manifest, None)


def _carry(source: Path, directory: Path) -> None:
    """Copy licence and model card, so that they stay with the weights."""
    for pattern in _CARRIED:
        for path in sorted(source.glob(pattern)):
            if path.is_file():
                shutil.copyfile(path, directory / path.name)
