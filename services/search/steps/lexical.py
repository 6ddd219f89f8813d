"""The lexical leg: BM25 with exact scores."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import ClassVar

import pydantic

from services.core.lexical import LexicalHit, LexicalIndex
from services.core.snapshots import Scope
from services.core.words import COMMON_WORDS
from services.search import store
from services.search.indexes import LEXICAL, Problem
from services.search.queries import Candidate, LegReport, Legs
from services.search.steps.base import LegStep, Query, StepSettings, in_order

_UNAVAILABLE = Problem("broken", "The lexical index is not open.", "Repair it with `undercroft repair`.")


class _Settings(StepSettings):
    candidates: int = pydantic.Field(100, gt=0, le=1000)


class Lexical(LegStep):
    """Finds chunks that have words of the query, as identifiers and in their parts."""

    name: ClassVar[str] = "lexical"
    settings_class: ClassVar[type[StepSettings]] = _Settings

    async def find(self, query: Query, legs: Legs) -> None:
        assert isinstance(self.settings, _Settings)
        found: list[Candidate] = []
        for scope, opened in query.targets:
            problem = opened.problems.get(LEXICAL)
            if opened.lexical is None:
                problem = problem or _UNAVAILABLE
                legs.reports.append(LegReport(self.name, scope.project, problem.state, problem.reason, problem.remedy))
                continue
            here = await self._find_in(query, scope, opened.lexical, self.settings.candidates)
            found += here
            legs.reports.append(LegReport(self.name, scope.project, "ready", candidates=len(here)))
        legs.found[self.name] = in_order(found, self.settings.candidates)

    async def _find_in(self, query: Query, scope: Scope, index: LexicalIndex, limit: int) -> list[Candidate]:
        """Search one project. A filter that few contents pass becomes an allowlist; else the search is widened until
        enough hits pass or none is left."""
        allowed = None
        if query.restriction:
            allowed = await store.allowed_contents(query.connection, scope, query.restriction)
            if allowed == []:
                return []
        wanted = limit
        while True:
            hits = await asyncio.to_thread(index.search, query.terms, wanted, allowed_ids=allowed)
            located = await store.locate(query.connection, scope, query.restriction, [hit.id for hit in hits.hits])
            found = [_candidate(scope, hit, located[hit.id], query.words) for hit in hits.hits if hit.id in located]
            if len(found) >= limit or len(hits.hits) < wanted:
                return _with_evidence(in_order(found, limit), query.words.values())
            wanted *= 4


def _with_evidence(found: list[Candidate], asked: Iterable[str]) -> list[Candidate]:
    """Leave out what has nothing of the query but words of any question, unless the query has nothing else."""
    if all(word.lower() in COMMON_WORDS for word in asked):
        return found
    return [one for one in found if any(word.lower() not in COMMON_WORDS for word in one.matched_terms)]


def _candidate(scope: Scope, hit: LexicalHit, located: store.Located, words: Mapping[str, str]) -> Candidate:
    return Candidate(
        project_id=scope.project_id,
        project=scope.project,
        content_id=hit.id,
        key=located.key,
        text_hash=located.text_hash,
        score=hit.score,
        matched_terms=tuple(dict.fromkeys(words.get(term, term) for term, _ in hit.terms)),
    )
