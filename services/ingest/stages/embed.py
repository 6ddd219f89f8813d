"""The embed stage of a run: embedding what the cache does not have, or with re-embed all that the run needs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum

from services.core.db import Connection
from services.core.errors import NotReady, Unavailable
from services.ingest.embedder import EmbeddingModel
from services.ingest.projects import DENSE
from services.ingest.reports import Stage, StageCount
from services.ingest.stages.context import RunContext
from services.ingest.stages.scope import Scope
from services.ingest.store import vectors
from services.ingest.store.vectors import MissingText


class Wanted(Enum):
    """Which texts of a run are embedded."""

    # Those of new and changed files that the cache lacks: the live generation has the vectors of all others.
    MISSING_OF_CHANGED = 1
    # All that the cache lacks.
    MISSING = 2
    # All, whatever the cache has.
    ALL = 3


class EmbedStage:
    """Embeds the texts of one run, several calls at a time, committing each answer (DESIGN I7)."""

    def __init__(self, run: RunContext) -> None:
        self._run = run

    async def embed(self, scope: Scope) -> None:
        """Embed what the cache does not have. Without the embed service the run goes on degraded, where it may."""
        if scope.model is None:
            return
        if scope.options.re_embed:
            wanted = Wanted.ALL
        else:
            wanted = Wanted.MISSING_OF_CHANGED if scope.keeps_vectors else Wanted.MISSING
        project_id, run_id = scope.project.id, self._run.id
        with self._run.report.timed(Stage.EMBED) as stage:
            await self._count(project_id, run_id, wanted)
            await self._run.progress()
            if not self._run.report.cache_misses:
                # The embed service may be away: nothing is missing without it.
                self._run.degraded.pop(DENSE, None)
            if DENSE in self._run.degraded:
                return
            try:
                await self._fill(project_id, run_id, scope.model, stage, wanted)
            except (NotReady, Unavailable) as error:
                if wanted is Wanted.ALL or scope.replaces_model:
                    # Half of the vectors would be worse than the live ones; what is embedded stays in the cache.
                    raise
                self._run.degrade(DENSE, error)

    async def _count(self, project_id: int, run_id: int, wanted: Wanted) -> None:
        """Count the texts of the run, and keep their vectors from being pruned."""

        async def count(connection: Connection) -> tuple[int, int]:
            await vectors.keep(connection, run_id)
            return await vectors.count_texts(
                connection, project_id, run_id, everything=wanted is not Wanted.MISSING_OF_CHANGED
            )

        texts, hits = await self._run.shop.database.retry(count)
        report = self._run.report
        report.texts, report.cache_hits, report.cache_misses = texts, hits, texts - hits
        if wanted is Wanted.ALL:
            report.cache_hits, report.cache_misses = 0, texts

    async def _fill(
        self, project_id: int, run_id: int, model: EmbeddingModel, stage: StageCount, wanted: Wanted
    ) -> None:
        """Embed what is missing. Raises NotReady or Unavailable when the embed service can't."""
        renew = wanted is Wanted.ALL
        async with self._run.shop.database.transaction() as connection:
            if renew:
                left = await vectors.not_renewed(connection, project_id, run_id)
            else:
                everything = wanted is Wanted.MISSING
                left = await vectors.missing(connection, project_id, run_id, everything=everything)
        size = min(self._run.shop.embed.batch_texts, model.max_texts or self._run.shop.embed.batch_texts)
        round_size = size * self._run.shop.embed.concurrency
        for first in range(0, len(left), round_size):
            async with self._run.shop.database.transaction() as connection:
                texts = await vectors.texts(connection, project_id, left[first : first + round_size])
            try:
                async with asyncio.TaskGroup() as group:
                    for start in range(0, len(texts), size):
                        batch = texts[start : start + size]
                        group.create_task(self._embed_batch(model, batch, run_id if renew else None))
            except ExceptionGroup as failed:
                raise _first(failed) from failed
            stage.items += len(texts)
            await self._run.progress()

    async def _embed_batch(self, model: EmbeddingModel, batch: Sequence[MissingText], renewing_run: int | None) -> None:
        start = asyncio.get_running_loop().time()
        embedded = await self._run.shop.embedder.embed(model, [one.model_input for one in batch])
        report = self._run.report
        report.embed_calls += 1
        report.embed_ms += round((asyncio.get_running_loop().time() - start) * 1000)
        report.embedded += len(batch)
        report.truncated += embedded.truncated
        fingerprints = [one.fingerprint for one in batch]

        async def store(connection: Connection) -> None:
            processor_id = await vectors.note_processor(connection, model.digest, embedded.processor)
            if renewing_run is None:
                await vectors.insert_vectors(connection, model.digest, fingerprints, embedded.vectors, processor_id)
            else:
                await vectors.stage_vectors(connection, renewing_run, fingerprints, embedded.vectors, processor_id)

        await self._run.shop.database.retry(store)


def _first(failed: ExceptionGroup[Exception]) -> Exception:
    """Return the first of the errors: each of them ends the stage, and callers tell them apart."""
    first = failed.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first
