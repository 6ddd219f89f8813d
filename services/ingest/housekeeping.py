"""What the service does by itself: repair at its start; from time to time verify projects, sweep, prune the cache."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable

import psycopg
import structlog

from services.core.db import Database
from services.core.errors import UndercroftError
from services.ingest.caching import keep_house
from services.ingest.git.checkouts import Checkouts
from services.ingest.projects import GIT
from services.ingest.repairing import Repairs
from services.ingest.store import operations, projects
from services.ingest.sweeping import Sweeper
from services.ingest.uploads import Uploads

log = structlog.get_logger(__name__)

# Looking for what is unused takes seconds for each 100,000 vectors.
_PRUNE_INTERVAL_S = 3600.0
# A third of the shortest interval that a project may have.
_SYNC_LOOK_S = 3.0
# Finished runs of a project that are kept.
_KEPT_RUNS = 200


class Housekeeper:
    """Runs in every replica; what two of them would do at the same time, one of them does."""

    def __init__(
        self,
        database: Database,
        repairs: Repairs,
        sweeper: Sweeper,
        uploads: Uploads,
        checkouts: Checkouts,
        *,
        interval_s: float,
        verify_interval_s: float,
        orphan_grace_s: float,
        cache_retention_s: float,
    ) -> None:
        self._database = database
        self._repairs = repairs
        self._sweeper = sweeper
        self._uploads = uploads
        self._checkouts = checkouts
        self._interval_s = interval_s
        self._verify_interval_s = verify_interval_s
        self._orphan_grace_s = orphan_grace_s
        self._cache_retention_s = cache_retention_s

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep house while the block runs."""
        tasks = [asyncio.create_task(self._keep()), asyncio.create_task(self._sync())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self) -> None:
        # Searches that meet a damaged sidecar ask for its repair at once; this finds damage before any search does.
        await self._attempt("repair", self._repairs.repair_all())
        prune_at = 0.0
        while True:
            if self._verify_interval_s:
                await self._attempt("verify", self._queue_verifies())
            await self._attempt("sweep", self._sweeper.sweep_all())
            await self._attempt("uploads", self._uploads.collect(self._orphan_grace_s))
            await self._attempt("mirrors", self._forget_mirrors())
            if time.monotonic() >= prune_at:
                await self._attempt("prune", self._prune())
                await self._attempt("runs", self._forget_runs())
                prune_at = time.monotonic() + min(_PRUNE_INTERVAL_S, self._cache_retention_s / 10)
            await asyncio.sleep(min(self._interval_s, self._verify_interval_s or self._interval_s))

    @staticmethod
    async def _attempt(what: str, work: Awaitable[None]) -> None:
        try:
            await work
        except (psycopg.Error, UndercroftError, OSError) as error:
            log.warning("housekeeping failed", what=what, error=str(error))
        except Exception:
            # The next round may go well; what failed is in the log.
            log.exception("housekeeping failed", what=what)

    async def _sync(self) -> None:
        """Queue a run for each project whose own interval is over."""
        while True:
            await self._attempt("sync", self._queue_syncs())
            await asyncio.sleep(_SYNC_LOOK_S)

    async def _queue_syncs(self) -> None:
        async with self._database.transaction() as connection:
            for project_id in await projects.due_for_sync(connection):
                await operations.enqueue(connection, project_id, {})

    async def _queue_verifies(self) -> None:
        """Queue a run with verify for each project whose files were not all read for an interval."""
        async with self._database.transaction() as connection:
            for project_id in await projects.due_for_verify(connection, self._verify_interval_s):
                await operations.enqueue(connection, project_id, {"verify": True})

    async def _forget_mirrors(self) -> None:
        # Looked up before the sources: what is on disk by then is of one that exists, or of one that is gone.
        fetched = await asyncio.to_thread(self._checkouts.fetched)
        async with self._database.transaction() as connection:
            kept = await projects.source_ids(connection, GIT)
        await asyncio.to_thread(self._checkouts.forget, fetched - kept)

    async def _forget_runs(self) -> None:
        async with self._database.transaction() as connection:
            forgotten = await operations.forget(connection, _KEPT_RUNS)
        if forgotten:
            log.info("old runs forgotten", runs=forgotten)

    async def _prune(self) -> None:
        pruned = await keep_house(self._database, self._cache_retention_s)
        if pruned:
            log.info("unused vectors pruned", vectors=pruned)
