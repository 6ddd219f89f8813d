"""The measures that the benchmarks print."""

from __future__ import annotations

import math

import pytest

from ops.bench.metrics import interval, ndcg, paired_difference, recall, reciprocal_rank

RANKING = ["a", "b", "c", "d"]


def test_reciprocal_rank_is_of_the_first_relevant_hit() -> None:
    assert reciprocal_rank(RANKING, {"c", "d"}) == 1 / 3
    assert reciprocal_rank(RANKING, {"z"}) == 0.0
    assert reciprocal_rank([], {"z"}) == 0.0


def test_recall_counts_relevant_hits_above_the_cut() -> None:
    assert recall(RANKING, {"b", "d"}, 3) == 0.5
    assert recall(RANKING, {"b", "d"}, 4) == 1.0


def test_ndcg_discounts_by_rank_and_is_one_for_the_ideal_order() -> None:
    assert ndcg(RANKING, {"b"}, 4) == pytest.approx(1 / math.log2(3))
    assert ndcg(RANKING, {"a", "b"}, 4) == 1.0
    assert ndcg(RANKING, {"d"}, 3) == 0.0


def test_intervals_hold_the_mean_and_repeat() -> None:
    values = [float(n % 3) for n in range(300)]
    found = interval(values)
    assert found.low < found.mean == 1.0 < found.high
    assert interval(values) == found


def test_a_constant_gain_is_certain_although_queries_differ() -> None:
    theirs = [float(n % 7) for n in range(100)]
    found = paired_difference([value + 0.5 for value in theirs], theirs)
    assert (found.low, found.mean, found.high) == pytest.approx((0.5, 0.5, 0.5))
