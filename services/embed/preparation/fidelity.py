"""How near one set of vectors comes to another."""

from __future__ import annotations

import numpy as np

from services.core.errors import InvalidArgument
from services.embed.manifest import Fidelity, Float32Array

NEIGHBOURS = 10
LEAST_MEAN_COSINE = 0.9
# Texts whose vectors all come to this have the same one, but for rounding.
_SAME_COSINE = 0.99999


def measure(reference: Float32Array, measured: Float32Array) -> Fidelity:
    """Compare two sets of vectors (float32, texts x dimensions) of the same texts.

    Cosines are per text; the overlap is over each text's ten nearest other texts, in either set.
    """
    reference, measured = _unit(reference), _unit(measured)
    cosines = np.einsum("ij,ij->i", reference, measured)
    return Fidelity(
        texts=len(reference),
        mean_cosine=round(float(cosines.mean()), 6),
        min_cosine=round(float(cosines.min()), 6),
        top10_overlap=neighbours_kept(reference, measured),
    )


def require_sense(reference: Float32Array, fidelity: Fidelity) -> None:
    """Refuse float32 vectors that tell no texts apart, and a fidelity that no arithmetic should cost.

    Raises ``InvalidArgument``. ``reference`` is float32, texts x dimensions.
    """
    lengths = np.linalg.norm(reference, axis=1)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise _senseless("The model gives texts vectors without a direction.")
    if float((_unit(reference) @ _unit(reference)[0]).min()) > _SAME_COSINE:
        raise _senseless("The model gives every text the same vector.")
    if not fidelity.mean_cosine >= LEAST_MEAN_COSINE:
        raise InvalidArgument(
            f"The prepared model comes to a mean cosine of {fidelity.mean_cosine:.4f} to float32,"
            f" at least {LEAST_MEAN_COSINE} is needed.",
            remedy="Choose --quantization int8 or float32, or other calibration texts.",
            reason="MODEL_FIDELITY_TOO_LOW",
        )


def _senseless(message: str) -> InvalidArgument:
    return InvalidArgument(
        message,
        remedy="Check that the weights are whole, and those of this configuration.",
        reason="MODEL_WEIGHTS_FOREIGN",
    )


def neighbours_kept(reference: Float32Array, measured: Float32Array) -> float:
    """Return the share of each text's ten nearest other texts that both sets agree on; widths may differ."""
    pairs = zip(_nearest(_unit(reference)), _nearest(_unit(measured)), strict=True)
    overlaps = [len(left & right) / max(1, len(left)) for left, right in pairs]
    return round(float(np.mean(overlaps)), 6)


def _unit(vectors: Float32Array) -> Float32Array:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Float32Array = (vectors / np.maximum(lengths, np.float32(1e-12))).astype(np.float32)
    return unit


def _nearest(vectors: Float32Array) -> list[set[int]]:
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")
    return [set(row[: min(NEIGHBOURS, len(vectors) - 1)].tolist()) for row in order]
