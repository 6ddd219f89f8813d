"""Exact BM25, and the bound that says when enough candidates have been fetched.

**Score.** For a document ``d`` and the distinct terms ``t`` of a query, in byte order of the terms, in float64::

    score(d) = Σ idf(t) · (K1 + 1) · tf / (tf + norm(d))        norm(d) = K1 · (1 − B + B · length(d) / mean)
    idf(t)   = ln(1 + (N − n(t) + ½) / (n(t) + ½))

``N``, ``n(t)`` and ``mean`` are of the live documents alone, from integer counts. ``length`` is the number of terms
rounded down as tantivy rounds it to fit a byte (no loss in quality: CoSQA MRR .3625 against .3629), so it is a
function of the document alone. Nothing here depends on how the index came to be.

**Bound.** tantivy scores the same formula with statistics that count deleted documents: ``idf'``, ``mean'``. Each term
of the query is boosted by ``idf / idf'``, so what remains is ``mean'`` and rounding. For every term of every document::

    (tf + norm') / (tf + norm) ≤ max(1, norm' / norm) ≤ max(1, mean / mean')

since ``norm'/norm = (1 − B + B·l/mean') / (1 − B + B·l/mean)`` lies between 1 and ``mean/mean'``. Hence
``score(d) ≤ r · score'(d)`` with ``r = max(1, mean / mean') · (1 + ε)``; ε covers single precision. tantivy returns
the ``m`` documents of highest ``score'``; let the last have ``s``. Every document that it did not return scores at
most ``r · s``. So as soon as the k-th exact score among those fetched is **greater** than ``r · s``, the top k and all
that tie with its last are among them; otherwise fetch more. If fewer than ``m`` came back there are no others.
This needs every match to be scored: tantivy's pruning (block-max WAND) keeps block maxima that were chosen with the
mean length of the day when the block was written, and may then drop a document that belongs. The searches here ask
for the count of matches too, which switches pruning off, at no cost that shows (50,000 documents, 8 terms: 1.0 ms
against 0.8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: tantivy's constants; they are not settings there.
K1 = 1.2
B = 0.75

_F32_EPSILON = 2.0**-23


def _length_table() -> npt.NDArray[np.int64]:
    """Return the 256 lengths that tantivy can store: Lucene's 4-bit floats, exact up to 40."""
    table = list(range(24))
    for code in range(256 - 24):
        mantissa, shift = code & 7, (code >> 3) - 1
        table.append(24 + (mantissa if shift < 0 else (mantissa | 8) << shift))
    return np.array(table, dtype=np.int64)


_LENGTHS = _length_table()


def stored_lengths(lengths: npt.NDArray[np.uint32]) -> Floats:
    """Return ``lengths`` as tantivy stores them: rounded down to one of 256 values."""
    places = np.searchsorted(_LENGTHS, lengths.astype(np.int64), side="right") - 1
    return _LENGTHS[places].astype(np.float64)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts of live documents, and the sum of their lengths before rounding."""

    documents: int
    length_total: int

    @property
    def mean_length(self) -> float:
        return self.length_total / self.documents

    def idf(self, frequency: int) -> float:
        """Return the inverse document frequency of a term that ``frequency`` live documents have."""
        return math.log(1.0 + (self.documents - frequency + 0.5) / (frequency + 0.5))

    def norms(self, lengths: Floats) -> Floats:
        """Return ``norm(d)`` for stored lengths."""
        return K1 * (1.0 - B + B * (lengths / self.mean_length))


@dataclass(frozen=True, slots=True)
class ApproximateStatistics:
    """What tantivy computes with: dead documents count."""

    documents: int
    mean_length: float

    def boost(self, idf: float, frequency: int) -> float | None:
        """Return the factor that turns tantivy's idf of a term into ``idf``; None where tantivy's rounds to zero."""
        # Step by step as tantivy does it: the sum rounds coarsely where the term is in nearly every document.
        half = np.float32(0.5)
        odds = (np.float32(self.documents - frequency) + half) / (np.float32(frequency) + half)
        approximate = float(np.log(np.float32(1.0) + odds))
        return idf / approximate if approximate > 0.0 else None

    def ratio(self, exact: Statistics, terms: int) -> float:
        """Return ``r``: no score exceeds this many times what tantivy says."""
        slack = 1.0 + (terms + 32) * _F32_EPSILON
        return max(1.0, exact.mean_length / self.mean_length) * slack


def contributions(idfs: Floats, counts: Floats, norms: Floats) -> Floats:
    """Return what each term adds to each document: ``idfs`` (terms), ``counts`` (terms × documents), ``norms``."""
    parts: Floats = idfs[:, None] * (counts * (K1 + 1.0)) / (counts + norms[None, :])
    return parts


def totals(parts: Floats) -> Floats:
    """Add the contributions per document, term by term in their order (``np.sum`` would pair them by shape)."""
    scores: Floats = np.zeros(parts.shape[1], dtype=np.float64)
    for part in parts:
        scores += part
    return scores
