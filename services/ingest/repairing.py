"""Repair: sidecars checked against Postgres and rebuilt from it, with no embed call (DESIGN I1)."""

from __future__ import annotations

import asyncio

import structlog

from services.core.authorization import Visible
from services.core.db import Database
from services.core.errors import Conflict, NotReady, UndercroftError
from services.core.sidecars import Damage, Volume
from services.ingest.projects import Project
from services.ingest.sidecars import SidecarBuilder
from services.ingest.store import operations, projects, publishing

log = structlog.get_logger(__name__)

_AT_A_TIME = 2


class Repairs:
    """Checks and rebuilds the sidecars of live generations, one repair of a project at a time over all replicas."""

    def __init__(self, database: Database, url: str, volume: Volume, builder: SidecarBuilder) -> None:
        self._database = database
        self._url = url
        # Searches may ask for all projects at once.
        self._slots = asyncio.Semaphore(_AT_A_TIME)
        self._volume = volume
        self._builder = builder

    async def repair(self, project: str, visible: Visible) -> tuple[Project, list[Damage], int]:
        """Return the project, what was wrong, and how many files were rebuilt. Who comes second finds them whole."""
        async with self._database.transaction() as connection:
            found = await projects.get_project(connection, project, visible)
        # Who waits for the lock must not hold a connection that others need for their work.
        async with self._slots, operations.repair_lock(self._url, found.id):
            return await self._repair(project, visible)

    async def repair_all(self) -> None:
        """Repair every project that needs it; one that can't be is logged, and stops none of the others."""
        after = ""
        while True:
            async with self._database.transaction() as connection:
                page = await projects.list_projects(connection, Visible(), after, 100)
            if not page:
                return
            for project in page:
                try:
                    _, damages, rebuilt = await self.repair(project.name, Visible())
                except UndercroftError as error:
                    log.warning("project can't be repaired", project=project.name, reason=error.message)
                except Exception:
                    log.exception("project can't be repaired", project=project.name)
                else:
                    if damages:
                        log.warning("sidecars rebuilt", project=project.name, damages=len(damages), files=rebuilt)
            after = page[-1].name

    async def _repair(self, project: str, visible: Visible) -> tuple[Project, list[Damage], int]:
        async with self._database.snapshot() as connection:
            owner = await projects.get_project(connection, project, visible)
            live = await projects.live_generation(connection, owner.id)
            files = await publishing.live_sidecars(connection, owner.id)
        if live is None:
            return owner, [], 0
        dimensions = live.model_dimensions if live.model_digest else 0
        damages = await asyncio.to_thread(lambda: [d for d in map(self._volume.check, files) if d is not None])
        if not damages:
            damages = await asyncio.to_thread(
                self._builder.problems, owner.id, live.number, files, dimensions, live.counts
            )
        if not damages:
            return owner, [], 0
        try:
            for damage in damages:
                await asyncio.to_thread(self._volume.discard, damage.file)
        except OSError as error:
            raise NotReady(
                f"The sidecar volume can't be written: {error.strerror}.",
                remedy="Make the volume writable, then repair again.",
                reason="SIDECAR_VOLUME_UNWRITABLE",
            ) from error
        built = await asyncio.to_thread(self._builder.rebuild_live, owner.id, live.number, dimensions)
        async with self._database.transaction() as connection:
            current = await projects.get_project(connection, project, visible)
            if current.generation != live.number:
                raise Conflict(
                    "A run published while the repair was under way.", remedy="Repair again.", reason="GENERATION_MOVED"
                )
            await publishing.replace_live_sidecars(connection, owner.id, built.files, built.documents, built.vectors)
        return owner, damages, len(built.files)
