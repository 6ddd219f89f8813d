"""The symbol leg: definitions that the query names."""

from __future__ import annotations

from typing import ClassVar

import pydantic

from services.search import store
from services.search.queries import Candidate, LegReport, Legs
from services.search.steps.base import LegStep, Query, StepSettings, in_order


class _Settings(StepSettings):
    candidates: int = pydantic.Field(50, gt=0, le=1000)


class Symbol(LegStep):
    """Finds the chunks of definitions whose name, or the end of whose qualified name, stands in the query."""

    name: ClassVar[str] = "symbol"
    settings_class: ClassVar[type[StepSettings]] = _Settings

    async def find(self, query: Query, legs: Legs) -> None:
        assert isinstance(self.settings, _Settings)
        found: list[Candidate] = []
        for scope, _ in query.targets if query.identifiers else ():
            named = await store.named_contents(
                query.connection, scope, query.restriction, query.identifiers, self.settings.candidates
            )
            found += [
                Candidate(scope.project_id, scope.project, one.content_id, one.key, one.text_hash, score=1.0)
                for one in named
            ]
            legs.reports.append(LegReport(self.name, scope.project, "ready", candidates=len(named)))
        legs.found[self.name] = in_order(found, self.settings.candidates)
