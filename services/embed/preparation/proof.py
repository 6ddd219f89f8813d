"""A graph is served only when it gives what the library gives that the model was made with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from services.core.errors import InvalidArgument
from services.embed.backends import Float32Array
from services.embed.backends.sentence_transformers import cut
from services.embed.engine import Engine
from services.embed.preparation.options import SECOND_ENGINE
from services.embed.recipe import Purpose

LEAST_AGREEMENT = 0.9999


class Library(Protocol):
    """Computes vectors and tokens of a model the way it is meant to be computed."""

    def embed(self, texts: Sequence[str], purpose: Purpose) -> Float32Array: ...

    def tokenize(self, texts: Sequence[str], purpose: Purpose) -> list[list[int]]: ...


def prove(engine: Engine, library: Library, texts: Sequence[str]) -> Float32Array:
    """Compare the tokens and vectors of a float32 engine with the library's, for queries and for passages.

    ``texts`` are taken as they are, with one that is too long for the model. Returns the library's vectors of the texts
    as passages. Raises ``InvalidArgument`` when one differs: the engine cannot serve this model.
    """
    too_long = " ".join(texts)[: 8 * engine.recipe.max_length_tokens]
    compared = [*texts, too_long, "x"]
    for purpose in (Purpose.QUERY, Purpose.PASSAGE):
        tokens = engine.tokenize(compared, purpose)
        for text, ours, theirs in zip(compared, tokens, library.tokenize(compared, purpose), strict=True):
            if ours.ids.tolist() != theirs:
                raise _not_reproduced(f"it reads {text[:30]!r} as other tokens than the library does")
        expected = cut(library.embed(compared, purpose), engine.recipe)
        agreement = least_agreement(expected, engine.embed(compared, purpose).vectors)
        if not agreement >= LEAST_AGREEMENT:
            raise _not_reproduced(f"its float32 vectors agree to {agreement:.4f} only")
    return expected[: len(texts)]


def least_agreement(expected: Float32Array, found: Float32Array) -> float:
    """Return the least 2ab / (a² + b²) of two sets of vectors: a cosine that counts lengths too."""
    products = 2 * np.einsum("ij,ij->i", expected, found)
    return float((products / ((expected**2).sum(axis=1) + (found**2).sum(axis=1))).min())


def _not_reproduced(how: str) -> InvalidArgument:
    return InvalidArgument(
        f"The exported graph is not the model: {how}.",
        remedy=f"Serve it by the second engine: {SECOND_ENGINE}.",
        reason="MODEL_NOT_REPRODUCED",
    )
