"""Steps of a pipeline, each a named class in the registry. A preset is a list of them with their settings.

Legs find candidates, and a fusing step makes one ranking of them. Every order is total: score descending, then project
and chunk key ascending.
"""

from __future__ import annotations

from services.search.steps.base import FuseStep, LegStep, Step, StepSettings, build_step, step_names
from services.search.steps.dense import Dense
from services.search.steps.fuse import RankFusion, ScoreInterpolation
from services.search.steps.lexical import Lexical
from services.search.steps.symbol import Symbol

__all__ = [
    "Dense",
    "FuseStep",
    "LegStep",
    "Lexical",
    "RankFusion",
    "ScoreInterpolation",
    "Step",
    "StepSettings",
    "Symbol",
    "build_step",
    "step_names",
]
