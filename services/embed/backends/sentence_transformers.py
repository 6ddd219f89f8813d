"""sentence-transformers with torch: the second engine, for models that OpenVINO cannot run.

The one module of the service that imports torch, and only when a model asks for it: the image that serves such models
has the ``models`` extra. On a GPU when there is one.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from services.core.errors import DataLoss, InvalidArgument, NotReady
from services.embed.backends import Float32Array, Int64Array, Lane
from services.embed.recipe import Recipe

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class SentenceTransformersBackend:
    """A sentence-transformers directory, its pooling and normalisation included."""

    def __init__(self, directory: Path, recipe: Recipe, *, threads: int) -> None:
        self._model = load_library(directory)
        import torch

        width = self._model.get_embedding_dimension()
        if width != (recipe.full_dimensions or recipe.dimensions):
            raise DataLoss(
                f"{directory} gives vectors of {width} dimensions, its recipe says {recipe.dimensions}.",
                remedy="Prepare the model again.",
                reason="MODEL_DIMENSIONS_DIFFER",
            )
        self.threads = threads
        self._recipe = recipe
        self._device = self._model.device
        # Each call runs on one thread of its own, so how many there are changes no result.
        torch.set_num_threads(1)

    def infer(self, input_ids: Int64Array, attention_mask: Int64Array, lane: Lane) -> Float32Array:
        """Run one batch: two arrays of rows x tokens, padded on the right; return float32, rows x dimensions."""
        import torch

        features = {
            "input_ids": torch.from_numpy(input_ids).to(self._device),
            "attention_mask": torch.from_numpy(attention_mask).to(self._device),
        }
        with torch.inference_mode():
            vectors = self._model(features)["sentence_embedding"].float().cpu().numpy()
        return cut(vectors, self._recipe)


def cut(vectors: Float32Array, recipe: Recipe) -> Float32Array:
    """Cut vectors to the recipe's dimensions, at length 1 again where it says so."""
    if not recipe.full_dimensions:
        return vectors
    kept = np.ascontiguousarray(vectors[:, : recipe.dimensions])
    return kept / np.linalg.norm(kept, axis=1, keepdims=True) if recipe.normalize else kept


def load_library(directory: Path, device: str | None = None) -> SentenceTransformer:
    """Load a local directory with sentence-transformers, in float32, on ``device`` or on the best one there is.

    Raises ``NotReady`` where the ``models`` extra is not installed, ``InvalidArgument`` when the library refuses.
    """
    try:
        import sentence_transformers
        import transformers
    except ImportError as error:
        raise NotReady(
            f"{directory} needs torch and sentence-transformers, which are not installed here.",
            remedy="Use the image with the `models` extra.",
            reason="ENGINE_NOT_INSTALLED",
        ) from error
    transformers.utils.logging.disable_progress_bar()
    with _quiet():
        try:
            return sentence_transformers.SentenceTransformer(
                str(directory),
                device=device,
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"use_safetensors": True, "dtype": "float32"},
            )
        except Exception as error:
            raise InvalidArgument(
                f"sentence-transformers cannot load {directory}: {error}",
                remedy="Check that the directory is whole, and of a kind that this release of the library knows.",
                reason="MODEL_UNSUPPORTED",
            ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries' notes off the log."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(level)
