"""What callers can ask of ingest: projects, sources, runs, status, repair."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from services.core.authorization import Visible
from services.core.db import Connection, Database
from services.core.errors import Conflict, InvalidArgument, NotFound, NotReady, PermissionDenied
from services.core.names import check_id, check_model, check_package, check_text
from services.core.notifications import Notifications
from services.core.sidecars import Damage, SidecarFile, Volume
from services.ingest import changes
from services.ingest.pipeline import Pipeline
from services.ingest.projects import DECISIONS, DENSE, FOLDER, GRAPH, LEXICAL, Generation, Project, Source
from services.ingest.sidecars import SidecarBuilder
from services.ingest.store import hints, operations, projects, publishing
from services.ingest.store.operations import Operation

READY, DEGRADED, BROKEN, ABSENT = "ready", "degraded", "broken", "absent"

_WATCH_POLL_S = 1.0
_GIVE_MODEL = "Give the project one with `undercroft index --model`."


@dataclass(frozen=True, slots=True)
class MethodStatus:
    method: str
    state: str
    reason: str
    remedy: str
    engine: str
    count: int


@dataclass(frozen=True, slots=True)
class Observation:
    """The last comparison of the sources with the live generation."""

    observed_at: datetime
    stale: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Status:
    project: Project
    observation: Observation | None
    counts: Mapping[str, int]
    methods: tuple[MethodStatus, ...]
    sidecars: tuple[SidecarFile, ...]
    running: int | None
    ended: int | None
    skipped: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a run would look at."""

    new: int
    changed: int
    unchanged: int
    deleted: int
    skipped: int


class IngestService:
    """Use cases of ingest. Every call takes what the caller may see."""

    def __init__(
        self,
        database: Database,
        volume: Volume,
        builder: SidecarBuilder,
        pipeline: Pipeline,
        notifications: Notifications,
        *,
        data_dir: Path | None,
        default_model: str,
    ) -> None:
        self._database = database
        self._volume = volume
        self._builder = builder
        self._pipeline = pipeline
        self._notifications = notifications
        self._data_dir = data_dir
        self._default_model = default_model
        self._repairs: dict[str, asyncio.Lock] = {}

    async def create_project(self, project_id: str, display_name: str, embedding_model: str | None) -> Project:
        """Create a project; ``embedding_model`` None takes the default, "" means no dense retrieval."""
        check_id(project_id, "project")
        check_text(display_name, "display name")
        model = self._default_model if embedding_model is None else embedding_model
        async with self._database.transaction() as connection:
            return await projects.create_project(connection, project_id, display_name, check_model(model))

    async def get_project(self, name: str, visible: Visible) -> Project:
        async with self._database.transaction() as connection:
            return await projects.get_project(connection, name, visible)

    async def list_projects(self, visible: Visible, after: str, limit: int) -> list[Project]:
        async with self._database.transaction() as connection:
            return await projects.list_projects(connection, visible, after, limit)

    async def update_project(self, name: str, visible: Visible, updates: Mapping[str, str]) -> Project:
        check_text(updates.get("display_name", ""), "display name")
        check_model(updates.get("embedding_model", ""))
        async with self._database.transaction() as connection:
            project = await projects.get_project(connection, name, visible)
            await projects.update_project(connection, project.id, updates)
            return await projects.get_project(connection, name, visible)

    async def delete_project(self, name: str, visible: Visible) -> None:
        async with self._database.transaction() as connection:
            project = await projects.get_project(connection, name, visible)
            running, _ = await operations.latest(connection, project.id)
            if running is not None:
                holder = (await operations.get(connection, running)).holder
                raise Conflict(
                    f"The project is being indexed by {holder}.",
                    remedy="Wait for the run to end, or cancel it.",
                    reason="PROJECT_BUSY",
                )
            await projects.delete_project(connection, project.id)

    async def create_source(
        self, project: str, visible: Visible, source_id: str, package: str, folder: str
    ) -> tuple[Project, Source]:
        check_id(source_id, "source")
        check_package(package or source_id)
        location = await asyncio.to_thread(self._check_folder, folder)
        async with self._database.transaction() as connection:
            owner = await projects.get_project(connection, project, visible)
            await projects.create_source(connection, owner.id, source_id, package or source_id, FOLDER, location)
            return owner, await projects.get_source(connection, owner.id, source_id)

    async def get_source(self, project: str, visible: Visible, source: str) -> Source:
        async with self._database.transaction() as connection:
            owner = await projects.get_project(connection, project, visible)
            return await projects.get_source(connection, owner.id, source)

    async def list_sources(self, project: str, visible: Visible, after: str, limit: int) -> list[Source]:
        async with self._database.transaction() as connection:
            owner = await projects.get_project(connection, project, visible)
            return await projects.list_sources(connection, owner.id, after, limit)

    async def delete_source(self, project: str, visible: Visible, source: str) -> None:
        async with self._database.transaction() as connection:
            owner = await projects.get_project(connection, project, visible)
            found = await projects.get_source(connection, owner.id, source)
            await projects.delete_source(connection, found.id)

    async def run_index(
        self, project: str, visible: Visible, options: Mapping[str, bool], request_id: str
    ) -> Operation:
        async with self._database.transaction() as connection:
            owner = await projects.get_project(connection, project, visible)
            if not await projects.list_sources(connection, owner.id, limit=1) and not owner.generation:
                raise InvalidArgument(
                    f"The project {project!r} has no source to index.",
                    remedy="Add one with CreateSource, or with `undercroft index FOLDER`.",
                    reason="NO_SOURCES",
                )
            return await operations.enqueue(connection, owner.id, options, request_id)

    async def get_operation(self, project: str, operation_id: int, visible: Visible) -> Operation:
        async with self._database.transaction() as connection:
            operation = await operations.get(connection, operation_id)
            visible.check(operation.project_id, project)
            if operation.project != project:
                raise NotFound("There is no such operation.", remedy="List the operations of the project.")
            return operation

    async def list_operations(self, project: str, visible: Visible, before: int | None, limit: int) -> list[Operation]:
        async with self._database.transaction() as connection:
            owner = await projects.get_project(connection, project, visible) if project else None
            return await operations.list_operations(connection, owner.id if owner else None, visible, before, limit)

    async def cancel_operation(self, project: str, operation_id: int, visible: Visible) -> None:
        operation = await self.get_operation(project, operation_id, visible)
        async with self._database.transaction() as connection:
            await operations.request_cancel(connection, operation.id)

    async def watch(self, project: str, operation_id: int, visible: Visible) -> AsyncIterator[Operation]:
        """Yield the operation now, at every change, and at its end."""
        last: Operation | None = None
        while True:
            seen = self._notifications.count
            operation = await self.get_operation(project, operation_id, visible)
            if operation != last:
                yield operation
                last = operation
            if operation.done:
                return
            await self._notifications.wait(seen, _WATCH_POLL_S)

    async def list_skipped(
        self, project: str, visible: Visible, after: tuple[str, str], limit: int
    ) -> tuple[list[dict[str, str]], int]:
        async with self._database.snapshot() as connection:
            owner = await projects.get_project(connection, project, visible)
            return (
                await projects.list_skipped(connection, owner.id, after, limit),
                await projects.count_skipped(connection, owner.id),
            )

    async def observe(self, project: str, visible: Visible) -> tuple[Project, Observation, Comparison]:
        """Compare the sources with the live generation by names, sizes and times, and record the outcome."""
        async with self._database.transaction() as connection:
            owner = await projects.get_project(connection, project, visible)
            sources = await projects.list_sources(connection, owner.id)
            known = [
                (await hints.live_files(connection, s.id), await hints.read_hints(connection, s.id)) for s in sources
            ]
            orphaned = await hints.count_orphaned(connection, owner.id)
            generation = await projects.live_generation(connection, owner.id)
            model = generation.model_name if generation else ""
        new = changed = unchanged = skipped = 0
        deleted = orphaned
        reasons = []
        if owner.generation and model != owner.embedding_model:
            reasons.append("the embedding model was changed")
        for source, (live, hinted) in zip(sources, known, strict=True):
            try:
                seen = await asyncio.to_thread(
                    changes.compare,
                    source.root,
                    self._pipeline.discovery,
                    self._data_dir,
                    live,
                    hinted,
                    lambda path: False,
                )
            except (NotFound, InvalidArgument, PermissionDenied) as error:
                reasons.append(f"source {source.name}: {error.message}")
                continue
            new += sum(found.path not in live for found in seen.to_read)
            changed += sum(found.path in live for found in seen.to_read)
            unchanged, deleted = unchanged + seen.unchanged, deleted + len(seen.deleted)
            skipped += len(seen.skipped)
        parts = [f"{n} {word}" for n, word in ((new, "new"), (changed, "changed"), (deleted, "deleted")) if n]
        if parts:
            reasons.append(f"files since the last run: {', '.join(parts)}")
        async with self._database.transaction() as connection:
            await projects.observe(connection, owner.id, bool(reasons), "; ".join(reasons))
            observation = await _observation(connection, owner.id)
        assert observation is not None
        return owner, observation, Comparison(new, changed, unchanged, deleted, skipped)

    async def status(self, project: str, visible: Visible) -> Status:
        """Tell how a project stands. Counts come from the rows, sidecars are looked up on the volume by size."""
        async with self._database.snapshot() as connection:
            owner = await projects.get_project(connection, project, visible)
            live = await projects.live_generation(connection, owner.id)
            counts = await projects.count_rows(connection, owner.id, owner.generation)
            files = await publishing.live_sidecars(connection, owner.id)
            running, ended = await operations.latest(connection, owner.id)
            observation = await _observation(connection, owner.id)
            skipped = await projects.count_skipped(connection, owner.id)
        missing = await asyncio.to_thread(self._missing, files)
        return Status(
            project=owner,
            observation=observation,
            counts=counts,
            methods=_methods(live, counts, missing),
            sidecars=tuple(files),
            running=running,
            ended=ended,
            skipped=skipped,
        )

    async def repair(self, project: str, visible: Visible) -> tuple[Project, list[Damage], int]:
        """Check the live sidecars by SHA-256 and rebuild them from Postgres when one is not whole; no embed call.

        One at a time per project: who comes second finds them whole.
        """
        async with self._repairs.setdefault(project, asyncio.Lock()):
            return await self._repair(project, visible)

    async def _repair(self, project: str, visible: Visible) -> tuple[Project, list[Damage], int]:
        async with self._database.snapshot() as connection:
            owner = await projects.get_project(connection, project, visible)
            live = await projects.live_generation(connection, owner.id)
            files = await publishing.live_sidecars(connection, owner.id)
        if live is None:
            return owner, [], 0
        damages = await asyncio.to_thread(lambda: [d for d in map(self._volume.check, files) if d is not None])
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
        rebuilt = await asyncio.to_thread(
            self._builder.rebuild_live, owner.id, live.number, live.model_dimensions if live.model_digest else 0
        )
        async with self._database.transaction() as connection:
            current = await projects.get_project(connection, project, visible)
            if current.generation != live.number:
                raise Conflict(
                    "A run published while the repair was under way.", remedy="Repair again.", reason="GENERATION_MOVED"
                )
            await publishing.replace_live_sidecars(connection, owner.id, rebuilt)
        return owner, damages, len(rebuilt)

    def _missing(self, files: list[SidecarFile]) -> dict[str, str]:
        """Return by method what is plainly wrong with its files: gone, or of another size."""
        problems = {}
        for file in files:
            try:
                size = self._volume.path(file.sha256).stat().st_size
            except OSError as error:
                problems[file.method] = f"{file.logical_name}: {os.strerror(error.errno or 0)}"
                continue
            if size != file.size_bytes:
                problems[file.method] = f"{file.logical_name} has {size} bytes instead of {file.size_bytes}"
        return problems

    def _check_folder(self, folder: str) -> str:
        """Return the resolved path of a folder, so that one folder spelled in two ways is one."""
        path = Path(folder)
        if not path.is_absolute():
            raise InvalidArgument(
                f"{folder!r} is no absolute path.", remedy="Give the path as the ingest service sees it, from /."
            )
        try:
            is_folder, resolved = path.is_dir(), path.resolve()
        except (OSError, ValueError, RuntimeError):
            is_folder = False
        if not is_folder:
            raise InvalidArgument(
                f"The ingest service sees no folder {folder!r}.", remedy="Check the path and what is mounted."
            )
        if self._data_dir is not None and resolved.is_relative_to(self._data_dir.resolve()):
            raise InvalidArgument(
                f"{folder!r} lies in the appliance's own data directory.", remedy="Index another folder."
            )
        return str(resolved)


async def _observation(connection: Connection, project_id: int) -> Observation | None:
    row = await projects.observation(connection, project_id)
    return Observation(**row) if row else None


def _engine(distribution: str) -> str:
    return f"{distribution} {importlib.metadata.version(distribution)}"


def _methods(
    live: Generation | None, counts: Mapping[str, int], missing: Mapping[str, str]
) -> tuple[MethodStatus, ...]:
    degraded = {one.method: one for one in live.degraded} if live else {}
    model = f"{live.model_name} ({live.model_digest[:12]})" if live and live.model_digest else "no model"
    engines = {
        LEXICAL: (_engine("tantivy"), counts["documents"]),
        DENSE: (f"{_engine('turbovec')}, {model}", counts["vectors"]),
        GRAPH: ("postgres", counts["edges"]),
        DECISIONS: ("postgres", counts["decisions"]),
    }
    methods = []
    for method, (engine, count) in engines.items():
        state, reason, remedy = READY, "", ""
        if live is None:
            state, reason, remedy = ABSENT, "nothing has been published yet", "Run `undercroft index`."
        elif method == DENSE and not live.model_name:
            state, reason, remedy = ABSENT, "the generation was made without a model", _GIVE_MODEL
        elif method in missing:
            state, reason, remedy = BROKEN, f"sidecar {missing[method]}", "Run `undercroft repair`."
        elif method in degraded:
            state, reason, remedy = DEGRADED, degraded[method].reason, degraded[method].remedy
        methods.append(MethodStatus(method, state, reason, remedy, engine, count))
    absent = MethodStatus("late_interaction", ABSENT, "this release does not have it", "", "", 0)
    return (*methods, absent)
