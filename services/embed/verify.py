"""Is a model directory what its manifest says, and does this processor compute what the preparing one did?

Checked in this order, each with its own words: bit-flipped weights load in silence, a missing tokenizer gives wrong
vectors, and neither raises an error in any library. Only the probes show a processor that computes otherwise
(microsoft/onnxruntime#6004: int8 without VNNI).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from services.core.cpu import cpu_threads
from services.core.drift import DRIFTED_BELOW_COSINE
from services.core.errors import DataLoss, NotReady
from services.embed.backends import Backend
from services.embed.backends.openvino import OpenVinoBackend, read_graph
from services.embed.directory import MOST_DOCUMENT_BYTES, read_bytes, refuse_foreign_code, require_model_directory
from services.embed.engine import Engine
from services.embed.manifest import (
    MANIFEST_NAME,
    RECIPE_NAME,
    TOKENIZER_NAME,
    Manifest,
    ModelFile,
    describe_file,
    model_digest,
)
from services.embed.recipe import EngineKind, Recipe
from services.embed.tokenization import TextTokenizer

REFUSED_BELOW_COSINE = 0.99
_NORM_TOLERANCE = 1e-3
_MOST_NAMED = 5

Document = TypeVar("Document")


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """How near this processor comes to the preparing one, over the manifest's probes.

    ``fingerprint`` is the hex SHA-256 over the vectors that this processor gives the probes.
    """

    mean_cosine: float
    min_cosine: float
    fingerprint: str

    @property
    def has_drifted(self) -> bool:
        return self.min_cosine < DRIFTED_BELOW_COSINE


@dataclass(frozen=True, slots=True)
class VerifiedModel:
    """A model directory that passed every check, with its engine ready."""

    directory: Path
    recipe: Recipe
    manifest: Manifest
    engine: Engine
    probe: ProbeResult


def verify(directory: Path, *, threads: int) -> VerifiedModel:
    """Check a model directory and load it.

    Raises ``InvalidArgument`` or ``NotFound`` when it is no model directory, ``NotReady`` when a file is missing or
    the probes differ too much, and ``DataLoss`` when a file is damaged.
    """
    require_model_directory(directory)
    manifest = read_manifest(directory)
    recipe = check_files(directory, manifest)
    tokenizer = TextTokenizer(directory, recipe)
    tokenizer.require_room()
    engine = Engine(open_backend(directory, manifest.graph, recipe, threads=threads), tokenizer, recipe)
    return VerifiedModel(
        directory=directory,
        recipe=recipe,
        manifest=manifest,
        engine=engine,
        probe=check_probes(engine, manifest),
    )


def open_backend(directory: Path, graph: str, recipe: Recipe, *, threads: int) -> Backend:
    """Load what the recipe's engine runs; ``graph`` is the stem of OpenVINO's files."""
    if recipe.engine is EngineKind.OPENVINO:
        return OpenVinoBackend(read_graph(directory / f"{graph}.xml", recipe.dimensions), threads=threads)
    # Not before a model asks for it: it brings torch.
    from services.embed.backends.sentence_transformers import SentenceTransformersBackend

    return SentenceTransformersBackend(directory, recipe, threads=threads)


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a model directory; ``NotReady`` when it has none."""
    path = directory / MANIFEST_NAME
    if not path.is_file():
        raise NotReady(
            f"{directory} has no {MANIFEST_NAME}: it is not a prepared model.",
            remedy="Run `undercroft models prepare` on the model's source directory.",
            reason="MODEL_NOT_PREPARED",
        )
    return _parsed(path, Manifest.from_json)


def read_recipe(directory: Path) -> Recipe:
    """Read the recipe of a model directory."""
    return _parsed(directory / RECIPE_NAME, Recipe.from_json)


def _parsed(path: Path, parse: Callable[[bytes], Document]) -> Document:
    try:
        return parse(read_bytes(path, most_bytes=MOST_DOCUMENT_BYTES))
    except DataLoss as error:
        raise DataLoss(f"{path}: {error.message}", remedy=error.remedy, reason=error.reason) from error
    except OSError as error:
        raise DataLoss(f"{path} cannot be read: {error}.", remedy="Copy the whole model directory again.") from error


def check_files(directory: Path, manifest: Manifest) -> Recipe:
    """Check every file of the manifest by size and SHA-256, and the digest over them; return the recipe.

    What needs no reading comes first, so that a refusal need not wait for gigabytes of weights. Files that the manifest
    does not name are not read by anything, but code and adapters among them are refused.
    """
    of_engine = (f"{manifest.graph}.xml", f"{manifest.graph}.bin") if manifest.graph else ("modules.json",)
    required = (RECIPE_NAME, TOKENIZER_NAME, *of_engine)
    unlisted = [name for name in required if name not in manifest.files]
    if unlisted:
        raise DataLoss(
            f"The manifest of {directory} does not name {', '.join(unlisted)}.", remedy="Prepare the model again."
        )
    check_sizes(directory, manifest)
    refuse_foreign_code(directory)
    _check_contents(directory / RECIPE_NAME, manifest.files[RECIPE_NAME])
    recipe = read_recipe(directory)
    if model_digest(recipe, manifest.graph, manifest.files) != manifest.digest:
        raise DataLoss(
            f"The digest in the manifest of {directory} is not that of its files.",
            remedy="Prepare or copy the model again.",
            reason="MODEL_DIGEST_MISMATCH",
        )
    # Hashing leaves the GIL, so the largest file alone decides how long this takes.
    with ThreadPoolExecutor(cpu_threads()) as pool:
        for checked in [pool.submit(_check_contents, directory / name, file) for name, file in manifest.files.items()]:
            checked.result()
    return recipe


def check_sizes(directory: Path, manifest: Manifest) -> None:
    """Check that every file of the manifest is there and as long as it says; no file is read."""
    # Not Path.is_file, which raises for a path that is too long.
    missing = [name for name in manifest.files if not os.path.isfile(directory / name)]
    if missing:
        raise NotReady(
            f"{directory} lacks {', '.join(missing[:_MOST_NAMED])}{' and more' if len(missing) > _MOST_NAMED else ''}.",
            remedy="Copy the whole model directory again.",
            reason="MODEL_FILE_MISSING",
        )
    for name, expected in manifest.files.items():
        size_bytes = (directory / name).stat().st_size
        if size_bytes != expected.size_bytes:
            how = f"it has {size_bytes} bytes, the manifest says {expected.size_bytes}"
            raise _damaged(directory / name, how)


def _check_contents(path: Path, expected: ModelFile) -> None:
    found = describe_file(path)
    if found != expected:
        raise _damaged(path, f"its SHA-256 is {found.sha256[:12]}…, the manifest says {expected.sha256[:12]}…")


def _damaged(path: Path, how: str) -> DataLoss:
    return DataLoss(
        f"{path} is damaged: {how}.", remedy="Copy the whole model directory again.", reason="MODEL_FILE_DAMAGED"
    )


def check_probes(engine: Engine, manifest: Manifest) -> ProbeResult:
    """Embed the probes and compare; raise ``NotReady`` when this processor's vectors are too far off."""
    cosines: list[float] = []
    computed = hashlib.sha256()
    for probe in manifest.probes:
        embedded = engine.embed([probe.text], probe.purpose)
        vector = embedded.vectors[0]
        if probe.vector.shape != vector.shape:
            raise DataLoss(
                f"The model gives {vector.shape[0]} dimensions, its probes have {probe.vector.shape[0]}.",
                remedy="Prepare the model again.",
            )
        if not np.isfinite(probe.vector).all() or not probe.vector.any():
            raise DataLoss("The vector of a probe is no direction.", remedy="Prepare or copy the model again.")
        norm = float(np.linalg.norm(vector))
        if not np.isfinite(norm) or (engine.recipe.normalize and abs(norm - 1.0) > _NORM_TOLERANCE):
            raise DataLoss(
                f"A probe's vector has length {norm:.4f}, its recipe says 1.", remedy="Prepare the model again."
            )
        if engine.count_unknown(embedded.tokens[0]):
            raise DataLoss(
                "The tokenizer does not know the words of the probes: it belongs to another model.",
                remedy="Prepare the model again.",
                reason="MODEL_TOKENIZER_FOREIGN",
            )
        computed.update(vector.astype("<f4", copy=False).tobytes())
        cosines.append(float(vector @ probe.vector) / (norm * float(np.linalg.norm(probe.vector))))
    if not cosines:
        raise DataLoss("The manifest holds no probes.", remedy="Prepare the model again.")
    result = ProbeResult(mean_cosine=float(np.mean(cosines)), min_cosine=min(cosines), fingerprint=computed.hexdigest())
    if not result.min_cosine >= REFUSED_BELOW_COSINE:
        raise NotReady(
            f"This processor's vectors are too far from those of the machine that prepared the model: "
            f"cosine {result.min_cosine:.4f}, at least {REFUSED_BELOW_COSINE} is needed.",
            remedy="Prepare the model on a machine like this one.",
            reason="MODEL_PROBES_DIFFER",
        )
    return result
