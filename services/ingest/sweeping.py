"""Sweeping: removing what no reader can see any more, rows and sidecars."""

from __future__ import annotations

import asyncio

import structlog

from services.core.db import Database
from services.core.sidecars import Volume
from services.ingest.sidecars import SidecarBuilder
from services.ingest.store import sweep

log = structlog.get_logger(__name__)


class Sweeper:
    """Sweeps generations that are neither live, nor leased, nor superseded a moment ago.

    A superseded generation stays for ``retention_s``. Files that no row names stay for ``orphan_grace_s``: a publish
    under way has written them and not yet pointed at them.
    """

    def __init__(
        self,
        database: Database,
        volume: Volume,
        builder: SidecarBuilder,
        *,
        retention_s: float,
        orphan_grace_s: float,
    ) -> None:
        self._database = database
        self._volume = volume
        self._builder = builder
        self._retention_s = retention_s
        self._orphan_grace_s = orphan_grace_s

    async def sweep(self, project_id: int) -> None:
        """Sweep one project, and the volume."""
        await self._sweep_rows(project_id)
        await self._collect()

    async def sweep_all(self) -> None:
        """Sweep every project that has superseded generations, the volume, and what local disk has of deleted ones."""
        # Looked up before the projects: what is on disk by then is of one that exists, or of one that is gone.
        local = await asyncio.to_thread(self._builder.projects)
        async with self._database.transaction() as connection:
            found = await sweep.with_superseded(connection)
            every = await sweep.project_ids(connection)
        for project_id in found:
            await self._sweep_rows(project_id)
        await self._collect()
        for project_id in set(local).difference(every):
            await asyncio.to_thread(self._builder.forget, project_id)

    async def _sweep_rows(self, project_id: int) -> None:
        async with self._database.transaction() as connection:
            # A run that stages contents holds the project too: neither sees half of the other's work.
            await sweep.lock(connection, project_id)
            oldest = await sweep.oldest_kept(connection, project_id, self._retention_s)
            swept = await sweep.sweep(connection, project_id, oldest)
        if swept:
            log.info("swept", rows=swept, project=project_id, oldest_generation=oldest)

    async def _collect(self) -> None:
        async with self._database.transaction() as connection:
            referenced = await sweep.referenced_sidecars(connection)
        removed = await asyncio.to_thread(self._volume.collect, referenced, self._orphan_grace_s)
        if removed:
            log.info("collected", files=len(removed))
