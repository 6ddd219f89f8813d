"""Fusion of legs: what it computes, and that no order of anything changes it."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.errors import InvalidArgument
from services.search.fusion import (
    Fused,
    Leg,
    Scored,
    reciprocal_rank_fusion,
    total_order,
    weighted_score_interpolation,
)

_hits = st.dictionaries(st.sampled_from("abcdefgh数é"), st.sampled_from([0.0, 0.1, 0.25, 1.0, 7.5]), max_size=8)
_legs = st.dictionaries(st.sampled_from(["dense", "lexical", "trigram", "graph"]), _hits, max_size=4)
_weights = st.fixed_dictionaries({name: st.floats(0, 3) for name in ("dense", "lexical", "trigram", "graph")})


def legs_of(scores: dict[str, dict[str, float]], weights: dict[str, float]) -> list[Leg]:
    return [
        Leg(name, weights[name], [Scored(key, score) for key, score in hits.items()]) for name, hits in scores.items()
    ]


@given(_legs, _weights, st.integers(0, 2**32))
def test_no_order_of_legs_or_hits_changes_a_bit(
    scores: dict[str, dict[str, float]], weights: dict[str, float], seed: int
) -> None:
    order = random.Random(seed)
    legs = legs_of(scores, weights)
    shuffled = [Leg(leg.name, leg.weight, order.sample(list(leg.hits), len(leg.hits))) for leg in legs]
    order.shuffle(shuffled)
    assert reciprocal_rank_fusion(shuffled) == reciprocal_rank_fusion(legs)
    assert weighted_score_interpolation(shuffled) == weighted_score_interpolation(legs)


@given(_legs, _weights)
def test_every_document_of_a_leg_that_counts_comes_out_once_with_its_parts(
    scores: dict[str, dict[str, float]], weights: dict[str, float]
) -> None:
    for fused in (
        reciprocal_rank_fusion(legs_of(scores, weights)),
        weighted_score_interpolation(legs_of(scores, weights)),
    ):
        expected = {
            key: {name for name, hits in scores.items() if key in hits and weights[name] > 0}
            for key in {key for name, hits in scores.items() if weights[name] > 0 for key in hits}
        }
        assert {document.key: {part.leg for part in document.parts} for document in fused} == expected
        assert [document.key for document in fused] == [
            document.key for document in total_order([Scored(d.key, d.score) for d in fused])
        ]
        for document in fused:
            assert math.isclose(document.score, math.fsum(part.share for part in document.parts), abs_tol=1e-12)


@given(_hits)
def test_one_leg_alone_keeps_its_order(hits: dict[str, float]) -> None:
    leg = Leg("only", 1.0, [Scored(key, score) for key, score in hits.items()])
    expected = [hit.key for hit in total_order(leg.hits)]
    assert [document.key for document in reciprocal_rank_fusion([leg])] == expected
    assert [document.key for document in weighted_score_interpolation([leg])] == expected


def scores_of(fused: list[Fused]) -> dict[str, float]:
    return {document.key: document.score for document in fused}


def test_reciprocal_ranks_are_weighted_and_added() -> None:
    legs = [
        Leg("lexical", 0.5, [Scored("a", 9.0), Scored("b", 3.0)]),
        Leg("dense", 1.0, [Scored("b", 0.9), Scored("c", 0.8)]),
    ]
    fused = reciprocal_rank_fusion(legs)
    assert [document.key for document in fused] == ["b", "c", "a"]
    assert scores_of(fused) == {"a": 0.5 / 61, "b": 1 / 61 + 0.5 / 62, "c": 1 / 62}
    assert [(part.leg, part.rank, part.score) for part in fused[0].parts] == [("dense", 1, 0.9), ("lexical", 2, 3.0)]


def test_scores_are_scaled_between_floor_and_best() -> None:
    legs = [
        Leg("lexical", 0.2, [Scored("a", 8.0), Scored("b", 4.0), Scored("c", 2.0)]),
        Leg("dense", 0.8, [Scored("c", 0.75), Scored("b", 0.5), Scored("d", 0.25)]),
    ]
    plain = scores_of(weighted_score_interpolation(legs))
    assert plain == pytest.approx({"a": 0.2, "b": 0.2 / 3 + 0.4, "c": 0.8, "d": 0.0})
    floored = scores_of(weighted_score_interpolation(legs, floors={"lexical": 0.0}))
    assert floored == pytest.approx({"a": 0.2, "b": 0.1 + 0.4, "c": 0.05 + 0.8, "d": 0.0})


def test_ties_take_ranks_by_key_in_bytes() -> None:
    fused = reciprocal_rank_fusion([Leg("lexical", 1.0, [Scored("é", 1.0), Scored("z", 1.0), Scored("Z", 1.0)])])
    assert [document.key for document in fused] == ["Z", "z", "é"]


def test_equal_scores_are_all_the_best_of_their_leg() -> None:
    fused = weighted_score_interpolation([Leg("lexical", 0.5, [Scored("a", 2.0), Scored("b", 2.0)])])
    assert scores_of(fused) == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    "legs",
    [
        [Leg("x", -1.0, [])],
        [Leg("x", math.nan, [])],
        [Leg("x", 1.0, []), Leg("x", 1.0, [])],
        [Leg("x", 1.0, [Scored("a", math.inf)])],
        [Leg("x", 1.0, [Scored("a", 1.0), Scored("a", 2.0)])],
    ],
)
def test_legs_that_make_no_sense_are_refused(legs: list[Leg]) -> None:
    with pytest.raises(InvalidArgument):
        reciprocal_rank_fusion(legs)
    with pytest.raises(InvalidArgument):
        weighted_score_interpolation(legs)
