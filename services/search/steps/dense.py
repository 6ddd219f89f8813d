"""The dense leg: quantized candidates, rescored exactly in the statement that hydrates them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar

import pydantic

from services.core.drift import DRIFTED_BELOW_COSINE
from services.core.errors import UndercroftError
from services.core.snapshots import Scope
from services.core.vectors import VectorIndex
from services.search import store
from services.search.indexes import DENSE, Problem
from services.search.queries import Candidate, LegReport, Legs
from services.search.steps.base import LegStep, Query, QueryVector, StepSettings, in_order

_NO_VECTORS = Problem(
    "absent",
    "The generation has no vectors.",
    "Give a package a tier that embeds it, or index again if the embed service was away.",
)


def _drift(vector: QueryVector, processors: Mapping[str, float]) -> Problem | None:
    """Tell when vectors of the model were made by processors that compute otherwise than the query's."""
    others = [cosine for fingerprint, cosine in processors.items() if fingerprint != vector.probe_fingerprint]
    least = min((*others, vector.probe_cosine))
    if not others or least >= DRIFTED_BELOW_COSINE:
        return None
    return Problem(
        "degraded",
        "Vectors were made by processors that compute otherwise than the one that embedded the query "
        f"(cosine {least:.4f} to the one that prepared the model): near ties may stand in another order.",
        "Run the embed service on processors of one kind; then `undercroft index --re-embed` makes all vectors alike.",
    )


class _Settings(StepSettings):
    candidates: int = pydantic.Field(100, gt=0, le=1000)
    # Less similar chunks are no evidence. Inner product of normalized vectors.
    min_score: float = pydantic.Field(0.0, ge=-1, le=1)


class Dense(LegStep):
    """Finds chunks that mean what the query means."""

    name: ClassVar[str] = "dense"
    settings_class: ClassVar[type[StepSettings]] = _Settings

    async def find(self, query: Query, legs: Legs) -> None:
        assert isinstance(self.settings, _Settings)
        found: list[Candidate] = []
        for scope, opened in query.targets:
            problem = opened.problems.get(DENSE)
            if opened.dense is None:
                # An empty corpus has no vectors and no problem.
                empty = opened.lexical is not None and len(opened.lexical) == 0
                problem = problem or (None if empty else _NO_VECTORS)
                if problem is not None:
                    report = LegReport(self.name, scope.project, problem.state, problem.reason, problem.remedy)
                    legs.reports.append(report)
                continue
            try:
                vector = await query.vectors.vector(opened.model_name, opened.model_digest)
            except UndercroftError as error:
                legs.reports.append(LegReport(self.name, scope.project, "broken", error.message, error.remedy))
                continue
            here = await self._find_in(query, scope, opened.dense, vector, self.settings)
            found += here
            problem = problem or _drift(vector, opened.processors)
            state, reason, remedy = (problem.state, problem.reason, problem.remedy) if problem else ("ready", "", "")
            legs.reports.append(LegReport(self.name, scope.project, state, reason, remedy, len(here)))
        legs.found[self.name] = in_order(found, self.settings.candidates)

    async def _find_in(
        self, query: Query, scope: Scope, index: VectorIndex, vector: QueryVector, settings: _Settings
    ) -> list[Candidate]:
        """Search one project. A filter that few contents pass is scored whole; else the search is widened until
        enough candidates pass or none is left."""
        connection, limit = query.connection, settings.candidates
        # Writing it out takes longer than searching with it.
        written = vector.text
        if query.restriction:
            allowed = await store.allowed_contents(connection, scope, query.restriction)
            if allowed is not None:
                scored = await store.score_contents(connection, scope, query.restriction, written, allowed, limit)
                return self._candidates(scope, scored, settings)
        wanted = limit
        while True:
            near = await asyncio.to_thread(index.candidates, vector.values, wanted)
            ids = near.ids.tolist()
            scored = await store.score_vectors(connection, scope, query.restriction, written, ids, limit)
            if len(scored) >= limit or len(ids) == len(index):
                return self._candidates(scope, scored, settings)
            wanted *= 4

    @staticmethod
    def _candidates(scope: Scope, scored: list[tuple[store.Located, float]], settings: _Settings) -> list[Candidate]:
        return [
            Candidate(
                project_id=scope.project_id,
                project=scope.project,
                content_id=located.content_id,
                key=located.key,
                text_hash=located.text_hash,
                score=score,
            )
            for located, score in scored
            if score >= settings.min_score
        ]
