"""Folders that are watched: an edit queues a run a moment later; a read never does, nor what is not indexed."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import threading
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
import structlog
from watchfiles import Change
from watchfiles._rust_notify import RustNotify

from services.core.db import Database
from services.core.errors import UndercroftError
from services.core.notifications import Notifications
from services.ingest.exclusions import file_exclusion, folder_exclusion
from services.ingest.reports import RunReport
from services.ingest.store import operations, projects

log = structlog.get_logger(__name__)

# A run is queued when nothing has changed for the first, or since the first change for the second.
_QUIET_MS = 200
_LONGEST_MS = 2000
# How long the thread of a watch waits at most before it looks whether it is to end.
_ROUND_MS = 5000
_LOOK_S = 10.0
# Changes that no run finds anything in (build output that is ignored) are followed less and less closely.
_SHORTEST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 60.0
# Where the system has no watch left, a run looks instead.
_UNWATCHED_S = 300.0


# Paths, and inodes: a folder that was made anew has to be watched anew.
_Folders = tuple[tuple[str, int], ...]


def _present(watched: Mapping[int, Sequence[str]]) -> dict[int, _Folders]:
    """Return the folders that are there, by project."""
    found: dict[int, _Folders] = {}
    for project_id, folders in watched.items():
        there: list[tuple[str, int]] = []
        for folder in folders:
            with contextlib.suppress(OSError):
                there.append((folder, os.stat(folder).st_ino))
        if there:
            found[project_id] = tuple(there)
    return found


@dataclass(frozen=True, slots=True)
class _Indexable:
    """Tells changes of what may be indexed from all others, by names alone."""

    roots: tuple[str, ...]
    data_dir: str

    def __call__(self, path: str) -> bool:
        if self.data_dir and (path == self.data_dir or path.startswith(f"{self.data_dir}/")):
            return False
        root = next((one for one in self.roots if path == one or path.startswith(f"{one.rstrip('/')}/")), None)
        if root is None:
            return False
        names = path[len(root) :].strip("/").split("/")
        if any(folder_exclusion(name) for name in names):
            return False
        return file_exclusion(names[-1], names[-2] if len(names) > 1 else "") is None


class _Seen(enum.Enum):
    """What a round of watching has seen."""

    CHANGED = enum.auto()
    GONE = enum.auto()  # one of the folders itself


@contextlib.asynccontextmanager
async def _changes_of(folders: list[str], indexable: _Indexable) -> AsyncIterator[asyncio.Queue[_Seen | Exception]]:
    """Watch folders from the beginning of the block on, in a thread of its own: neither the number of watches nor a
    folder full of changes holds up anything else. An error ends the queue. OSError when they can't be watched."""
    loop = asyncio.get_running_loop()
    changes: asyncio.Queue[_Seen | Exception] = asyncio.Queue()
    stop = threading.Event()
    watcher = await asyncio.to_thread(RustNotify, folders, False, False, 0, True, True)

    def put(seen: _Seen | Exception) -> None:
        # The loop may have ended meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(changes.put_nowait, seen)

    def follow() -> None:
        try:
            while True:
                seen = watcher.watch(_LONGEST_MS, _QUIET_MS, _ROUND_MS, stop)
                if seen == "stop":
                    return
                if isinstance(seen, set):
                    if any(change == Change.deleted and path in folders for change, path in seen):
                        put(_Seen.GONE)
                    elif any(indexable(path) for _, path in seen):
                        put(_Seen.CHANGED)
        except Exception as error:
            put(error)
        finally:
            watcher.close()

    threading.Thread(target=follow, name=f"watch {folders[0]}", daemon=True).start()
    try:
        yield changes
    finally:
        stop.set()


class Watcher:
    """Watches the folders of the projects that ask for it. Every replica does; equal runs that wait are one."""

    def __init__(self, database: Database, notifications: Notifications, data_dir: Path | None) -> None:
        self._database = database
        self._notifications = notifications
        self._data_dir = str(data_dir.resolve()) if data_dir else ""
        self._tasks: dict[int, tuple[_Folders, asyncio.Task[None]]] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch while the block runs."""
        task = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._stop(list(self._tasks))

    async def _keep(self) -> None:
        while True:
            seen = self._notifications.count
            try:
                async with self._database.transaction() as connection:
                    watched = await projects.watched_folders(connection)
                wanted = await asyncio.to_thread(_present, watched)
                await self._stop([one for one, (f, task) in self._tasks.items() if task.done() or wanted.get(one) != f])
                for project_id, folders in wanted.items():
                    if project_id not in self._tasks:
                        self._tasks[project_id] = folders, asyncio.create_task(self._watch(project_id, folders))
            except (psycopg.Error, UndercroftError) as error:
                log.warning("watched folders can't be looked up", error=str(error))
            await self._notifications.wait(seen, _LOOK_S)
            # Runs under way notify several times a second.
            await asyncio.sleep(1.0)

    async def _stop(self, project_ids: Collection[int]) -> None:
        ended = [self._tasks.pop(one)[1] for one in project_ids]
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)

    async def _watch(self, project_id: int, folders: _Folders) -> None:
        while True:
            try:
                await self._follow(project_id, [folder for folder, _ in folders])
                # A folder is gone. Made anew, even with the same inode, it is watched by another task.
                return
            except (OSError, RuntimeError) as error:
                log.warning(
                    "folders can't be watched; a run looks at them instead",
                    project=project_id,
                    error=str(error),
                    every_s=_UNWATCHED_S,
                    remedy="Raise fs.inotify.max_user_watches, and max_user_instances, on the node.",
                )
            except (psycopg.Error, UndercroftError) as error:
                log.warning("a change could not be followed", project=project_id, error=str(error))
            except Exception:
                log.exception("watching failed", project=project_id)
            await asyncio.sleep(_UNWATCHED_S)

    async def _follow(self, project_id: int, folders: list[str]) -> None:
        """Queue a run for each change, until one of the folders is removed."""
        async with _changes_of(folders, _Indexable(tuple(folders), self._data_dir)) as changes:
            pause_s = 0.0
            while True:
                published = await self._run(project_id)
                pause_s = 0.0 if published else min(_LONGEST_PAUSE_S, 2 * pause_s or _SHORTEST_PAUSE_S)
                # Meanwhile changes are kept for the next round.
                await asyncio.sleep(pause_s)
                seen = [await changes.get()]
                while not changes.empty():
                    seen.append(changes.get_nowait())
                for change in seen:
                    if isinstance(change, Exception):
                        raise change
                if _Seen.GONE in seen:
                    return

    async def _run(self, project_id: int) -> bool:
        """Queue a run and wait for its end; tell whether it published."""
        async with self._database.transaction() as connection:
            operation = await operations.enqueue(connection, project_id, {})
        while not operation.done:
            seen = self._notifications.count
            async with self._database.transaction() as connection:
                operation = await operations.get(connection, operation.id)
            if not operation.done:
                await self._notifications.wait(seen, _LOOK_S)
        return RunReport.from_json(operation.report).published
