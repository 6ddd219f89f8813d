"""Measures of ranked retrieval, and how sure they are. Nothing here knows where a ranking came from."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

RESAMPLES = 10_000
SEED = 20_240_229


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval by percentile bootstrap over queries."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def reciprocal_rank(ranking: Sequence[Hashable], relevant: Collection[Hashable]) -> float:
    """Return 1 / rank of the first relevant item, 0 where the ranking has none."""
    return next((1.0 / rank for rank, item in enumerate(ranking, 1) if item in relevant), 0.0)


def recall(ranking: Sequence[Hashable], relevant: Collection[Hashable], depth: int) -> float:
    """Return the share of the relevant items that is among the first ``depth``."""
    return len(set(ranking[:depth]) & set(relevant)) / len(relevant)


def ndcg(ranking: Sequence[Hashable], relevant: Collection[Hashable], depth: int) -> float:
    """Return the normalised discounted cumulative gain of the first ``depth``, each relevant item worth 1."""
    gain = sum(1.0 / math.log2(rank + 1) for rank, item in enumerate(ranking[:depth], 1) if item in relevant)
    ideal = sum(1.0 / math.log2(rank + 1) for rank in range(1, min(depth, len(relevant)) + 1))
    return gain / ideal


def interval(values: Sequence[float]) -> Interval:
    """Return the mean over queries and its interval."""
    array = np.asarray(values, dtype=np.float64)
    means = _resampled_means(array)
    return Interval(float(array.mean()), float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975)))


def paired_difference(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Return the mean of ``ours - theirs`` over the same queries and its interval (paired bootstrap)."""
    return interval(np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64))  # type: ignore[arg-type]


def _resampled_means(values: Values) -> Values:
    generator = np.random.default_rng(SEED)
    picks = generator.integers(0, len(values), size=(RESAMPLES, len(values)))
    means: Values = values[picks].mean(axis=1)
    return means
