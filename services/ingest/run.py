"""One index run: from looking at the sources to the published generation.

A run writes nothing that a reader can see before its last transaction. What it has extracted and embedded is committed
as it goes, so a run that is taken up again after a kill goes on where it was (DESIGN I7).
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from services.core.errors import UndercroftError
from services.ingest.reports import RunReport, Stage
from services.ingest.stages.context import RunContext, Workshop
from services.ingest.stages.discover import DiscoverStage
from services.ingest.stages.embed import EmbedStage
from services.ingest.stages.extract import ExtractStage
from services.ingest.stages.publish import PublishStage
from services.ingest.stages.scope import Scope, ScopeStage, SourceState
from services.ingest.store.operations import Claim


class Cancelled(UndercroftError):
    """The run was cancelled."""

    reason = "CANCELLED"


class IndexRun:
    """Runs one claimed operation. ``progress`` is called at every step; it raises to stop the run."""

    def __init__(self, workshop: Workshop, claim: Claim, progress: Callable[[RunReport], Awaitable[None]]) -> None:
        self._run = RunContext(workshop, claim, progress)

    @property
    def report(self) -> RunReport:
        return self._run.report

    async def execute(self) -> RunReport:
        """Bring the project up to date, or empty it; the report says what was done."""
        run = self._run
        publishing = PublishStage(run)
        try:
            scope = await ScopeStage(run).read()
            if scope.live is not None and scope.live.run_id == run.id:
                # The attempt before was killed after its last transaction: all is done.
                run.report = RunReport.from_json(run.claim.operation.report)
                run.report.published, run.report.generation = True, scope.live.number
            elif run.is_clear:
                await publishing.clear(scope)
            else:
                found = await self._look_and_extract(scope)
                if await publishing.is_current(scope):
                    await publishing.record_unchanged(scope, found)
                else:
                    await EmbedStage(run).embed(scope)
                    await publishing.publish(scope, found)
        finally:
            await asyncio.to_thread(shutil.rmtree, run.scratch, ignore_errors=True)
            await asyncio.to_thread(run.shop.builder.discard, run.claim.operation.project_id, run.attempt)
        run.report.stage = Stage.DONE
        return run.report

    async def _look_and_extract(self, scope: Scope) -> dict[int, SourceState]:
        """Take one source after the other, so that local disk holds the files of one archive or commit at a time."""
        discovering, extracting = DiscoverStage(self._run), ExtractStage(self._run, scope)
        found: dict[int, SourceState] = {}
        self._run.looked_at = datetime.now(UTC)
        for source in scope.sources:
            found[source.id] = state = await discovering.look_at(scope, source)
            await extracting.extract(state, found)
            await asyncio.to_thread(shutil.rmtree, self._run.scratch, ignore_errors=True)
        discovering.refuse_nothing(scope)
        await extracting.finish(found)
        return found
