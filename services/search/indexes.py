"""Local copies of the sidecars of generations, opened, leased and swapped while queries run.

Readers open only names read from Postgres, and only after size and SHA-256 were checked (DESIGN I2). A generation that
a query holds stays open until the query is done, whatever is published meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shutil
import socket
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg
import structlog

from services.core.db import Database
from services.core.errors import DataLoss, NotReady, UndercroftError
from services.core.lexical import LexicalIndex
from services.core.notifications import Notifications
from services.core.sidecars import SidecarFile, Volume
from services.core.vectors import VectorIndex
from services.search import store

log = structlog.get_logger(__name__)

LEXICAL = "lexical"
DENSE = "dense"

# Generations kept open per project: the live one, and those that page tokens and running queries still read.
_OPEN_PER_PROJECT = 3
_RETRY_S = 2.0
_REPAIR_INTERVAL_S = 10.0


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a method of a generation can't serve, or not in full."""

    state: str
    reason: str
    remedy: str


def _broken(error: UndercroftError | OSError) -> Problem:
    if isinstance(error, UndercroftError):
        return Problem("broken", error.message, error.remedy)
    remedy = "Free space where search's UNDERCROFT_LOCAL_DIR is, or mend that disk; it is tried again then."
    return Problem("broken", f"The local disk of search fails: {error.strerror}.", remedy)


@dataclass(frozen=True, slots=True)
class OpenGeneration:
    """A generation with what of it is open. A method that is None is explained in ``problems``."""

    project_id: int
    number: int
    files: frozenset[bytes]
    lexical: LexicalIndex | None
    dense: VectorIndex | None
    model_name: str
    model_digest: str
    # Kinds of processors that made vectors of the model: their probe cosines by probe fingerprint.
    processors: Mapping[str, float]
    problems: Mapping[str, Problem]


class Indexes:
    """Opens generations on demand, follows what is published, and holds leases on what is open."""

    def __init__(
        self,
        database: Database,
        volume: Volume,
        local_dir: Path,
        notifications: Notifications,
        *,
        poll_s: float,
        lease_s: float,
        repair: Callable[[int], Awaitable[None]],
    ) -> None:
        self._database = database
        self._volume = volume
        self._local = local_dir
        self._notifications = notifications
        self._poll_s = poll_s
        self._lease_s = lease_s
        self._repair = repair
        self._holder = f"{socket.gethostname()}:{os.getpid()}"
        self._open: dict[int, OrderedDict[int, OpenGeneration]] = {}
        # When a generation was last asked for.
        self._used: dict[tuple[int, int], float] = {}
        self._locks: dict[int, asyncio.Lock] = {}
        self._repairs: set[asyncio.Task[None]] = set()
        self._repair_again: dict[int, float] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow publishes and renew leases while the block runs."""
        # Copies of an earlier process may be half written, and what they are of may be gone.
        await asyncio.to_thread(shutil.rmtree, self._local, ignore_errors=True)
        tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._renew_leases())]
        try:
            yield
        finally:
            for task in (*tasks, *self._repairs):
                task.cancel()
            await asyncio.gather(*tasks, *self._repairs, return_exceptions=True)

    def known(self, project_id: int, generation: int) -> OpenGeneration | None:
        """Return a generation that is open and whole."""
        opened = self._opened(project_id, generation)
        return None if opened is None or self._is_broken(opened) else opened

    def _opened(self, project_id: int, generation: int) -> OpenGeneration | None:
        generations = self._open.get(project_id)
        if generations is None or generation not in generations:
            return None
        generations.move_to_end(generation)
        self._used[project_id, generation] = time.monotonic()
        return generations[generation]

    @staticmethod
    def _is_broken(opened: OpenGeneration) -> bool:
        return any(problem.state == "broken" for problem in opened.problems.values())

    async def open(self, project_id: int, generation: int) -> OpenGeneration:
        """Open a generation, or open it anew when its sidecars were rebuilt; NotReady when it is no longer kept.

        One at a time per project. What can't be used of it is among its problems, and ingest is asked for repair.
        """
        async with self._locks.setdefault(project_id, asyncio.Lock()):
            async with self._database.snapshot() as connection:
                row = await store.generation_row(connection, project_id, generation)
                files = await store.sidecars(connection, project_id, generation)
            if row is None:
                raise NotReady(
                    f"Generation {generation} is no longer kept.",
                    remedy="Ask again without a generation or page token.",
                    reason="GENERATION_GONE",
                )
            known = self.known(project_id, generation)
            if known is not None and known.files == {file.sha256 for file in files}:
                return known
            await self._lease(((project_id, generation),))
            opened = await asyncio.to_thread(self._load, project_id, generation, row, files)
            generations = self._open.setdefault(project_id, OrderedDict())
            generations[generation] = opened
            generations.move_to_end(generation)
            self._used[project_id, generation] = time.monotonic()
            while len(generations) > _OPEN_PER_PROJECT:
                await self._close(project_id, next(iter(generations)))
        if self._is_broken(opened):
            self._ask_for_repair(project_id)
        return opened

    def _load(
        self, project_id: int, generation: int, row: Mapping[str, object], files: list[SidecarFile]
    ) -> OpenGeneration:
        """Copy, check and open the sidecars. What can't be opened becomes a problem of its method only."""
        folder = self._folder(project_id, generation)
        problems: dict[str, Problem] = {}
        degraded, processors = row["degraded"], row["processors"] or {}
        assert isinstance(degraded, list)
        assert isinstance(processors, dict)
        for one in degraded:
            problems[one["method"]] = Problem("degraded", one["reason"], one["remedy"])
        lexical = dense = None
        by_method = {method: [file for file in files if file.method == method] for method in (LEXICAL, DENSE)}
        try:
            self._fetch(project_id, folder / LEXICAL, by_method[LEXICAL])
            lexical = LexicalIndex.open(folder / LEXICAL)
        except (UndercroftError, OSError) as error:
            problems[LEXICAL] = _broken(error)
        if by_method[DENSE]:
            try:
                self._fetch(project_id, folder / DENSE, by_method[DENSE])
                path = folder / DENSE / by_method[DENSE][0].logical_name
                dense = VectorIndex.open(path, int(str(row["model_dimensions"])))
            except (UndercroftError, OSError) as error:
                problems[DENSE] = _broken(error)
        elif not row["model_name"]:
            problems[DENSE] = Problem(
                "absent", "The project has no embedding model.", "Give it one with UpdateProject, and index again."
            )
        for method, problem in problems.items():
            if problem.state == "broken":
                log.warning("sidecar can't be used", project=project_id, method=method, reason=problem.reason)
        return OpenGeneration(
            project_id=project_id,
            number=generation,
            files=frozenset(file.sha256 for file in files),
            lexical=lexical,
            dense=dense,
            model_name=str(row["model_name"]),
            model_digest=str(row["model_digest"]),
            processors=processors,
            problems=problems,
        )

    def _fetch(self, project_id: int, folder: Path, files: list[SidecarFile]) -> None:
        """Fill a fresh folder with files: linked from an open generation that has the same bytes, else copied."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in files:
            content = self._local / str(project_id) / "content" / file.sha256.hex()
            if not content.exists():
                content.parent.mkdir(parents=True, exist_ok=True)
                self._volume.fetch(file, content)
            os.link(content, folder / file.logical_name)
        self._drop_unlinked(project_id)

    def _drop_unlinked(self, project_id: int) -> None:
        """Remove contents that no generation's folder links to any more."""
        for content in (self._local / str(project_id) / "content").glob("*"):
            if content.stat().st_nlink == 1:
                content.unlink()

    def _folder(self, project_id: int, generation: int) -> Path:
        return self._local / str(project_id) / str(generation)

    def _ask_for_repair(self, project_id: int) -> None:
        """Ask ingest for a repair, unless that is being done or was done a moment ago."""
        now = time.monotonic()
        if now < self._repair_again.get(project_id, 0.0):
            return
        self._repair_again[project_id] = math.inf

        async def ask() -> None:
            try:
                await self._repair(project_id)
            except UndercroftError as error:
                log.warning("repair failed", project=project_id, reason=error.message)
            finally:
                self._repair_again[project_id] = time.monotonic() + _REPAIR_INTERVAL_S

        task = asyncio.create_task(ask())
        self._repairs.add(task)
        task.add_done_callback(self._repairs.discard)

    async def _follow(self) -> None:
        """Open what is published, so that the first query finds it open."""
        while True:
            seen = self._notifications.count
            try:
                async with self._database.transaction() as connection:
                    live = await store.live_generations(connection)
                for project_id, generation in live:
                    with contextlib.suppress(NotReady):
                        await self.open(project_id, generation)
                await self._close_deleted({project_id for project_id, _ in live})
            except (psycopg.Error, OSError, DataLoss) as error:
                log.warning("generations can't be followed", error=str(error))
                await asyncio.sleep(_RETRY_S)
            await self._notifications.wait(seen, self._poll_s)

    async def _close_deleted(self, live: set[int]) -> None:
        for project_id in self._open.keys() - live:
            for number in self._open.pop(project_id):
                self._used.pop((project_id, number), None)
            await asyncio.to_thread(shutil.rmtree, self._local / str(project_id), ignore_errors=True)

    async def _close(self, project_id: int, generation: int) -> None:
        """Close a generation. A query that holds it goes on with what it has opened."""
        del self._open[project_id][generation]
        self._used.pop((project_id, generation), None)
        await asyncio.to_thread(shutil.rmtree, self._folder(project_id, generation), ignore_errors=True)

    async def _close_idle(self) -> None:
        """Close superseded generations that nobody asked for during a lease, so that they can be swept."""
        horizon = time.monotonic() - self._lease_s
        for project_id, opened in list(self._open.items()):
            idle = [number for number in opened if number < max(opened) and self._used[project_id, number] < horizon]
            for number in idle:
                async with self._locks.setdefault(project_id, asyncio.Lock()):
                    if number in self._open.get(project_id, ()):
                        await self._close(project_id, number)

    async def _renew_leases(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            await self._close_idle()
            held = tuple((project_id, number) for project_id, opened in self._open.items() for number in opened)
            try:
                await self._lease(held)
            except psycopg.Error as error:
                log.warning("leases can't be renewed", error=str(error))

    async def _lease(self, held: tuple[tuple[int, int], ...]) -> None:
        async with self._database.transaction() as connection:
            await store.renew_leases(connection, self._holder, held, self._lease_s)
