"""Fusion of ranked legs: weighted reciprocal ranks, or weighted scores between the least and the most of each leg.

Fused scores depend on the legs alone. Each leg is put into total order (score descending, key ascending by bytes)
before ranks are given; a document's parts are added in byte order of the legs' names in float64; so neither the order
of legs nor that of hits changes a bit of the answer. A leg with no hits, or of weight zero, changes nothing.

Values of which a query makes hundreds are named tuples: a frozen dataclass takes three times as long to make.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from services.core.errors import InvalidArgument

#: Cormack, Clarke and Buettcher, 2009: how far the first ranks of a leg stand out.
RRF_K = 60.0


class Scored(NamedTuple):
    """A document by its stable key, with its score in one leg."""

    key: str
    score: float


@dataclass(frozen=True, slots=True)
class Leg:
    """The hits of one retriever, each key once, in any order; ``weight`` is its share in the fusion."""

    name: str
    weight: float
    hits: Sequence[Scored]


class Part(NamedTuple):
    """What one leg adds to a fused score: the document's rank there (from 1), its score, and the share."""

    leg: str
    rank: int
    score: float
    share: float


class Fused(NamedTuple):
    """A document with its fused score, which is the sum of its parts' shares, in byte order of the legs."""

    key: str
    score: float
    parts: tuple[Part, ...]


def total_order(hits: Sequence[Scored]) -> list[Scored]:
    """Order hits by (score descending, key ascending by bytes)."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.key.encode()))


def reciprocal_rank_fusion(legs: Sequence[Leg], *, k: float = RRF_K) -> list[Fused]:
    """Fuse by ranks: a document gets ``weight / (k + rank)`` from each leg that has it."""
    if not (math.isfinite(k) and k >= 0.0):
        raise InvalidArgument(f"k of reciprocal rank fusion is {k}.", remedy="Give a number of 0 or more.")
    return _fuse(
        [(leg, hits, [leg.weight / (k + rank) for rank in range(1, len(hits) + 1)]) for leg, hits in _ordered(legs)]
    )


def weighted_score_interpolation(legs: Sequence[Leg], *, floors: Mapping[str, float] | None = None) -> list[Fused]:
    """Fuse by scores: each leg is scaled so that its best hit gets ``weight``, and its floor gets nothing.

    The floor of a leg is its least score among its hits, or what ``floors`` says for its name (0 for BM25, where 0
    means no evidence). A leg whose hits all score its floor gives each of them its whole weight: all are its best.
    """
    scaled = []
    for leg, hits in _ordered(legs):
        low = (floors or {}).get(leg.name, hits[-1].score)
        span = hits[0].score - low
        scaled.append(
            (leg, hits, [leg.weight * (max(0.0, hit.score - low) / span if span > 0.0 else 1.0) for hit in hits])
        )
    return _fuse(scaled)


def _ordered(legs: Sequence[Leg]) -> list[tuple[Leg, list[Scored]]]:
    """Put legs in byte order of their names and hits in total order; leave out what can add nothing."""
    if len({leg.name for leg in legs}) != len(legs):
        raise InvalidArgument("Two legs of a fusion have one name.", remedy="Give each leg its own name.")
    ordered = []
    for leg in sorted(legs, key=lambda leg: leg.name.encode()):
        if not (math.isfinite(leg.weight) and leg.weight >= 0.0):
            raise InvalidArgument(f"The weight of leg {leg.name} is {leg.weight}.", remedy="Give 0 or more.")
        if not all(math.isfinite(hit.score) for hit in leg.hits):
            raise InvalidArgument(f"Leg {leg.name} has a score that is not finite.")
        if len({hit.key for hit in leg.hits}) != len(leg.hits):
            raise InvalidArgument(f"Leg {leg.name} has a document twice.")
        if leg.hits and leg.weight > 0.0:
            ordered.append((leg, total_order(leg.hits)))
    return ordered


def _fuse(legs: Sequence[tuple[Leg, Sequence[Scored], Sequence[float]]]) -> list[Fused]:
    parts: dict[str, list[Part]] = {}
    for leg, hits, shares in legs:
        for rank, (hit, share) in enumerate(zip(hits, shares, strict=True), 1):
            parts.setdefault(hit.key, []).append(Part(leg.name, rank, hit.score, share))
    fused = []
    for key, own in parts.items():
        score = 0.0
        for part in own:
            score += part.share
        fused.append(Fused(key, score, tuple(own)))
    return sorted(fused, key=lambda document: (-document.score, document.key.encode()))
