"""Fusing steps: weighted reciprocal ranks, and weighted interpolation of scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import pydantic

from services.search.fusion import (
    RRF_K,
    Fused,
    Leg,
    Scored,
    reciprocal_rank_fusion,
    weighted_score_interpolation,
)
from services.search.queries import Candidate, Ranked
from services.search.steps.base import FuseStep, StepSettings

_Legs = Mapping[str, Sequence[Candidate]]


class _FuseSettings(StepSettings):
    weights: dict[str, float]
    # Weights for queries that name code; the same ones where none are given.
    code_weights: dict[str, float] = pydantic.Field(default_factory=dict)
    # Score that a leg's candidates must reach where no other leg found anything: nearest neighbours exist for nonsense
    # too, and are no evidence by themselves.
    alone: dict[str, float] = pydantic.Field(default_factory=dict)


class _RankSettings(_FuseSettings):
    k: float = pydantic.Field(RRF_K, ge=0)


class RankFusion(FuseStep):
    """Weighted reciprocal rank fusion."""

    name: ClassVar[str] = "rrf"
    settings_class: ClassVar[type[StepSettings]] = _RankSettings

    def fuse(self, legs: _Legs, *, names_code: bool) -> list[Ranked]:
        assert isinstance(self.settings, _RankSettings)
        return _ranked(legs, reciprocal_rank_fusion(_weighted(legs, self.settings, names_code), k=self.settings.k))


class _ScoreSettings(_FuseSettings):
    # Scores that mean no evidence, by leg; the least score among a leg's candidates where none is given.
    floors: dict[str, float] = pydantic.Field(default_factory=dict)


class ScoreInterpolation(FuseStep):
    """Weighted interpolation of scores, each leg scaled between its floor and its best."""

    name: ClassVar[str] = "wsi"
    settings_class: ClassVar[type[StepSettings]] = _ScoreSettings

    def fuse(self, legs: _Legs, *, names_code: bool) -> list[Ranked]:
        assert isinstance(self.settings, _ScoreSettings)
        weighted = _weighted(legs, self.settings, names_code)
        return _ranked(legs, weighted_score_interpolation(weighted, floors=self.settings.floors))


def _weighted(legs: _Legs, settings: _FuseSettings, names_code: bool) -> list[Leg]:
    weights = (settings.code_weights if names_code else {}) or settings.weights
    finding = [name for name, found in legs.items() if found]
    weighted = []
    for name, found in legs.items():
        least = settings.alone.get(name, -math.inf) if finding == [name] else -math.inf
        hits = [Scored(_identity(one), one.score) for one in found if one.score >= least]
        weighted.append(Leg(name, weights.get(name, 1.0), hits))
    return weighted


def _identity(candidate: Candidate) -> str:
    # Ordered as (project, key): no project id has a NUL.
    return "\0".join(candidate.id)


def _ranked(legs: _Legs, fused: Sequence[Fused]) -> list[Ranked]:
    candidates = {name: {_identity(one): one for one in found} for name, found in legs.items()}
    return [Ranked(one, tuple(candidates[part.leg][one.key] for part in one.parts)) for one in fused]
