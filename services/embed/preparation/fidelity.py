"""How near one set of vectors comes to another."""

from __future__ import annotations

import numpy as np

from services.embed.manifest import Fidelity, Float32Array

NEIGHBOURS = 10


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
