"""Presets are data that is checked, and fusing knows what is no evidence."""

from __future__ import annotations

import pytest

from services.core.errors import InvalidArgument
from services.search.pipeline import load_presets, parse_preset
from services.search.queries import Candidate
from services.search.steps import RankFusion, ScoreInterpolation, build_step
from services.search.steps.base import identifiers_in


def candidate(key: str, score: float, project: str = "p") -> Candidate:
    return Candidate(
        project_id=1, project=project, content_id=hash(key) % 1000, key=key, text_hash=key.encode(), score=score
    )


def test_the_presets_of_the_package_are_valid_and_described() -> None:
    presets = load_presets(None)
    assert {"hybrid", "lexical", "dense", "rrf"} <= presets.keys()
    for preset in presets.values():
        assert preset.description
        assert preset.legs


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("steps: []", "description"),
        ("description: x\nsteps: [{step: none}]", "no step"),
        ("description: x\nsteps: [{step: lexical, candidates: 0}, {step: wsi, weights: {}}]", "candidates"),
        ("description: x\nsteps: [{step: lexical, colour: red}, {step: wsi, weights: {}}]", "colour"),
        ("description: x\nsteps: [{step: wsi, weights: {}}, {step: lexical}]", "legs"),
        ("description: x\nsteps: [{step: lexical}]", "fusing"),
        ("description: x\nsteps: [{candidates: 3}]", "step"),
        ("description: [", "read"),
    ],
)
def test_a_wrong_preset_is_refused_and_what_is_wrong_is_named(text: str, told: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_preset("mine", text)
    assert told in str(refused.value)


@pytest.mark.parametrize("step", ["wsi", "rrf"])
def test_neighbours_alone_are_evidence_only_when_they_are_near(step: str) -> None:
    fuse = build_step(step, {"weights": {"lexical": 0.2, "dense": 0.8}, "alone": {"dense": 0.45}})
    assert isinstance(fuse, ScoreInterpolation | RankFusion)
    near, far = candidate("near", 0.6), candidate("far", 0.3)
    alone = fuse.fuse({"lexical": [], "dense": [near, far]}, names_code=False)
    assert [one.candidate.key for one in alone] == ["near"]
    together = fuse.fuse({"lexical": [candidate("word", 3.0)], "dense": [near, far]}, names_code=False)
    assert {one.candidate.key for one in together} == {"near", "far", "word"}


def test_a_hit_of_two_legs_has_a_part_of_each_and_their_sum() -> None:
    fuse = build_step("rrf", {"weights": {"lexical": 0.5, "dense": 0.5}, "k": 0})
    assert isinstance(fuse, RankFusion)
    (both,) = fuse.fuse({"lexical": [candidate("a", 7.0)], "dense": [candidate("a", 0.7)]}, names_code=False)
    assert [(part.leg, part.rank, part.score) for part in both.parts] == [("dense", 1, 0.7), ("lexical", 1, 7.0)]
    assert both.score == pytest.approx(1.0)


def test_equal_keys_of_two_projects_are_two_hits_in_the_order_of_their_projects() -> None:
    fuse = build_step("wsi", {"weights": {"lexical": 1.0}})
    assert isinstance(fuse, ScoreInterpolation)
    ranked = fuse.fuse({"lexical": [candidate("k", 1.0, "b"), candidate("k", 1.0, "a")]}, names_code=False)
    assert [one.candidate.project for one in ranked] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "identifiers"),
    [
        ("where are sessions expired?", ()),
        ("wait_for timeout", ("wait_for",)),
        ("Session.send", ("Session.send",)),
        ("who calls HTTPAdapter and getConn?", ("HTTPAdapter", "getConn")),
        ("session", ("session",)),
        ("Client::new", ("Client.new",)),
        ("who calls net::Client::new or (*Store).Get?", ("net.Client.new", "Store.Get")),
        ("`merge_setting`", ("merge_setting",)),
        ("python open file. Then close it", ()),
        ("_private thing", ("_private",)),
        ("base64 in python3 with md5 over REST APIs", ()),
        ("", ()),
    ],
)
def test_identifiers_are_told_from_prose(text: str, identifiers: tuple[str, ...]) -> None:
    assert identifiers_in(text) == identifiers


def test_a_query_that_names_code_has_weights_of_its_own() -> None:
    fuse = build_step(
        "wsi", {"weights": {"lexical": 0.0, "dense": 1.0}, "code_weights": {"lexical": 1.0, "dense": 0.0}}
    )
    assert isinstance(fuse, ScoreInterpolation)
    legs = {"lexical": [candidate("word", 1.0)], "dense": [candidate("meaning", 0.9)]}
    assert fuse.fuse(legs, names_code=True)[0].candidate.key == "word"
    assert fuse.fuse(legs, names_code=False)[0].candidate.key == "meaning"
