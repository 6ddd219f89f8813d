"""The embed stage of a run: embedding what the cache does not have, or with re-embed all that the run needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from services.core.db import Connection, Database
from services.ingest.embedder import Embedder, EmbeddingModel
from services.ingest.reports import RunReport, StageCount
from services.ingest.store import vectors
from services.ingest.store.vectors import MissingText


@dataclass(frozen=True, slots=True)
class EmbedSettings:
    """Texts per call to the embed service, and calls at a time."""

    batch_texts: int
    concurrency: int


class Wanted(Enum):
    """Which texts of a run are embedded."""

    # Those of new and changed files that the cache lacks: the live generation has the vectors of all others.
    MISSING_OF_CHANGED = 1
    # All that the cache lacks.
    MISSING = 2
    # All, whatever the cache has.
    ALL = 3


class Embedding:
    """Embeds the texts of one run, several calls at a time, committing each answer (DESIGN I7)."""

    def __init__(
        self,
        database: Database,
        embedder: Embedder,
        settings: EmbedSettings,
        report: RunReport,
        progress: Callable[[RunReport], Awaitable[None]],
    ) -> None:
        self._database = database
        self._embedder = embedder
        self._settings = settings
        self._report = report
        self._progress = progress

    async def count(self, project_id: int, run_id: int, wanted: Wanted) -> None:
        """Count the texts of the run, and keep their vectors from being pruned."""
        async with self._database.transaction() as connection:
            await vectors.keep(connection, run_id)
            texts, hits = await vectors.count_texts(
                connection, project_id, run_id, everything=wanted is not Wanted.MISSING_OF_CHANGED
            )
        report = self._report
        report.texts, report.cache_hits, report.cache_misses = texts, hits, texts - hits
        if wanted is Wanted.ALL:
            report.cache_hits, report.cache_misses = 0, texts

    async def embed(
        self, project_id: int, run_id: int, model: EmbeddingModel, stage: StageCount, wanted: Wanted
    ) -> None:
        """Embed what is missing. Raises NotReady or Unavailable, in a group, when the embed service can't."""
        renew = wanted is Wanted.ALL
        async with self._database.transaction() as connection:
            if renew:
                left = await vectors.not_renewed(connection, project_id, run_id)
            else:
                everything = wanted is Wanted.MISSING
                left = await vectors.missing(connection, project_id, run_id, everything=everything)
        size = self._settings.batch_texts
        round_size = size * self._settings.concurrency
        for first in range(0, len(left), round_size):
            async with self._database.transaction() as connection:
                texts = await vectors.texts(connection, project_id, left[first : first + round_size])
            async with asyncio.TaskGroup() as group:
                for start in range(0, len(texts), size):
                    batch = texts[start : start + size]
                    group.create_task(self._embed_batch(model, batch, run_id if renew else None))
            stage.items += len(texts)
            await self._progress(self._report)

    async def _embed_batch(self, model: EmbeddingModel, batch: Sequence[MissingText], renewing_run: int | None) -> None:
        start = asyncio.get_running_loop().time()
        embedded = await self._embedder.embed(model, [one.model_input for one in batch])
        report = self._report
        report.embed_calls += 1
        report.embed_ms += round((asyncio.get_running_loop().time() - start) * 1000)
        report.embedded += len(batch)
        report.truncated += embedded.truncated
        fingerprints = [one.fingerprint for one in batch]

        async def store(connection: Connection) -> None:
            if renewing_run is None:
                await vectors.insert_vectors(connection, model.digest, fingerprints, embedded.vectors)
            else:
                await vectors.stage_vectors(connection, renewing_run, fingerprints, embedded.vectors)

        await self._database.retry(store)
