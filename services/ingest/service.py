"""What callers can ask of ingest: projects, sources, runs, status, repair."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from services.core.authorization import Visible
from services.core.db import Connection, Database
from services.core.errors import Conflict, InvalidArgument, NotFound, NotReady, Unavailable, UndercroftError
from services.core.names import check_id, check_model, check_package, check_text, parse_upload
from services.core.notifications import Notifications
from services.core.sidecars import SidecarFile, Volume
from services.ingest.dependencies.wheels import find
from services.ingest.embedder import Embedder
from services.ingest.git.checkouts import Checkouts
from services.ingest.git.locations import check_revision
from services.ingest.projects import (
    ARCHIVE,
    DECISIONS,
    DENSE,
    FOLDER,
    GIT,
    GRAPH,
    LEXICAL,
    WHEEL,
    Generation,
    Observation,
    Origin,
    Project,
    Source,
)
from services.ingest.store import operations, projects, publishing, uploads
from services.ingest.store.operations import Operation
from services.ingest.store.projects import ProjectChanges

READY, STALE, DEGRADED, BROKEN, ABSENT = "ready", "stale", "degraded", "broken", "absent"

_WATCH_POLL_S = 1.0
_SHORTEST_INTERVAL_S = 10.0
_UPLOAD_ID = re.compile(r"[0-9a-f]{64}")
# Of folders and wheels, the location is what they are.
_REPLACEABLE = frozenset({ARCHIVE, GIT})
_STATUS_TIMEOUT_S = 2.0
_GIVE_MODEL = "Give the project one with `undercroft index --model`."


@dataclass(frozen=True, slots=True)
class MethodStatus:
    method: str
    state: str
    reason: str
    remedy: str
    engine: str
    count: int
    # When what it reads was last built.
    updated_at: datetime | None


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


class IngestService:
    """Use cases of ingest. Every call takes what the caller may see."""

    def __init__(
        self,
        database: Database,
        volume: Volume,
        embedder: Embedder,
        notifications: Notifications,
        *,
        data_dir: Path | None,
        wheels_dir: Path | None,
        checkouts: Checkouts,
        default_model: str,
    ) -> None:
        self._database = database
        self._volume = volume
        self._embedder = embedder
        self._notifications = notifications
        self._data_dir = data_dir
        self._wheels_dir = wheels_dir
        self._checkouts = checkouts
        self._default_model = default_model

    async def create_project(self, project_id: str, wanted: ProjectChanges) -> Project:
        """Create a project; no embedding model takes the default one, "" means no dense retrieval.

        A model that is named and that the embed service refuses is refused here and now; the default one is not, since
        nobody asked for it.
        """
        check_id(project_id, "project")
        _check_changes(wanted)
        if wanted.embedding_model:
            async with self._database.transaction() as connection:
                await projects.check_free(connection, project_id)
            await self._check_usable(wanted.embedding_model)
        model = self._default_model if wanted.embedding_model is None else wanted.embedding_model
        async with self._database.transaction() as connection:
            made = await projects.create_project(connection, project_id, wanted.display_name or "", check_model(model))
            await projects.update_project(connection, made.id, replace(wanted, display_name=None, embedding_model=None))
            return await projects.get_project(connection, project_id, Visible())

    async def get_project(self, name: str, visible: Visible) -> Project:
        async with self._database.transaction() as connection:
            return await projects.get_project(connection, name, visible)

    async def list_projects(self, visible: Visible, after: str, limit: int) -> list[Project]:
        async with self._database.transaction() as connection:
            return await projects.list_projects(connection, visible, after, limit)

    async def update_project(self, name: str, visible: Visible, updates: ProjectChanges) -> Project:
        """Change a project. A model that the embed service refuses is refused here and now, not by the next run."""
        _check_changes(updates)
        project = await self.get_project(name, visible)
        if updates.embedding_model and updates.embedding_model != project.embedding_model:
            await self._check_usable(updates.embedding_model)
        async with self._database.transaction() as connection:
            await projects.update_project(connection, project.id, updates)
            after = await projects.get_project(connection, name, visible)
            if after.settings != project.settings:
                await projects.outdate(connection, project.id, _changed(project, after))
            return await projects.get_project(connection, name, visible)

    async def _check_usable(self, model: str) -> None:
        """Refuse a model that the embed service refuses; one that is away may have it."""
        with contextlib.suppress(Unavailable):
            await self._embedder.model(model, is_patient=False)

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

    async def create_folder_source(
        self, project: str, visible: Visible, source_id: str, package: str, folder: str
    ) -> tuple[Project, Source]:
        location = await asyncio.to_thread(self._check_folder, folder)
        return await self._create_source(project, visible, source_id, package, Origin(FOLDER, location))

    async def create_wheel_source(
        self, project: str, visible: Visible, source_id: str, package: str, file: str
    ) -> tuple[Project, Source]:
        """Add a wheel or sdist of the wheel directory, by its file name."""
        if self._wheels_dir is None:
            raise NotReady(
                "The ingest service has no wheel directory.",
                remedy="Set UNDERCROFT_WHEELS_DIR, and put wheels and sdists there.",
                reason="NO_WHEEL_DIRECTORY",
            )
        location = await asyncio.to_thread(find, self._wheels_dir, file)
        return await self._create_source(project, visible, source_id, package, Origin(WHEEL, str(location)))

    async def create_archive_source(
        self, project: str, visible: Visible, source_id: str, package: str, upload: str
    ) -> tuple[Project, Source]:
        """Add an archive that was sent, by its resource name."""
        return await self._create_source(project, visible, source_id, package, upload_origin(project, upload))

    async def create_git_source(
        self, project: str, visible: Visible, source_id: str, package: str, url: str, revision: str
    ) -> tuple[Project, Source]:
        """Add a repository, by its URL or path. Whether it can be fetched, the next run tells."""
        return await self._create_source(project, visible, source_id, package, await self.git_origin(url, revision))

    async def git_origin(self, url: str, revision: str) -> Origin:
        """Return the origin that URL and revision stand for; raises as ``locate`` and ``check_revision``."""
        location = await asyncio.to_thread(self._checkouts.locate, url)
        return Origin(GIT, location.url, check_revision(revision))

    async def update_source(self, project: str, visible: Visible, source_id: str, origin: Origin) -> Source:
        """Give a source another origin of its kind."""
        async with self._database.transaction() as connection:
            owner = await projects.get_project(connection, project, visible)
            source = await projects.get_source(connection, owner.id, source_id)
            if source.kind != origin.kind or origin.kind not in _REPLACEABLE:
                raise InvalidArgument(
                    f"{source_id} comes from a {source.kind}, which can't be replaced by a {origin.kind}.",
                    remedy="Delete the source and add another, or give an archive or a git origin of its kind.",
                    reason="ORIGIN_NOT_REPLACEABLE",
                )
            await self._hold_origin(connection, owner, origin)
            await projects.point_source(connection, source.id, origin)
            await projects.outdate(connection, owner.id, f"the origin of the source {source_id} was changed")
            return await projects.get_source(connection, owner.id, source_id)

    @staticmethod
    async def _hold_origin(connection: Connection, owner: Project, origin: Origin) -> None:
        """Make sure that an upload is there, and stays until a source names it."""
        if origin.kind == ARCHIVE:
            await uploads.hold(connection, owner.id, bytes.fromhex(origin.location))

    async def file_names(self, project: str, visible: Visible) -> dict[str, str]:
        """Return the file names of a project's uploads by the locations of the sources that have them."""
        async with self._database.transaction() as connection:
            owner = await projects.get_project(connection, project, visible)
            return await uploads.names(connection, owner.id)

    async def _create_source(
        self, project: str, visible: Visible, source_id: str, package: str, origin: Origin
    ) -> tuple[Project, Source]:
        check_id(source_id, "source")
        check_package(package or source_id)
        async with self._database.transaction() as connection:
            owner = await projects.get_project(connection, project, visible)
            await self._hold_origin(connection, owner, origin)
            await projects.create_source(connection, owner.id, source_id, package or source_id, origin)
            await projects.outdate(connection, owner.id, f"the source {source_id} was added")
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
            if found.managed:
                raise InvalidArgument(
                    f"{source} is a dependency that index runs add and remove.",
                    remedy="Remove it from what the project declares, or set index_dependencies to false.",
                    reason="SOURCE_MANAGED",
                )
            await projects.delete_source(connection, found.id)
            await projects.outdate(connection, owner.id, f"the source {source} was removed")

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

    async def clear(self, project: str, visible: Visible) -> Operation:
        """Queue a run that publishes an empty generation."""
        async with self._database.transaction() as connection:
            owner = await projects.get_project(connection, project, visible)
            return await operations.enqueue(connection, owner.id, {}, kind=operations.CLEAR)

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

    async def list_notes(
        self, project: str, visible: Visible, after: tuple[str, str, int], limit: int
    ) -> tuple[list[dict[str, Any]], dict[str, int]]:
        """List notes on live files after a position, and count all of them by code."""
        async with self._database.snapshot() as connection:
            owner = await projects.get_project(connection, project, visible)
            return (
                await projects.list_notes(connection, owner.id, after, limit),
                await projects.count_notes(connection, owner.id),
            )

    async def status(self, project: str, visible: Visible) -> Status:
        """Tell how a project stands. Counts come from the rows, sidecars are looked up on the volume by size."""
        async with self._database.snapshot() as connection:
            owner = await projects.get_project(connection, project, visible)
            live = await projects.live_generation(connection, owner.id)
            counts = await projects.count_rows(connection, owner.id, owner.generation)
            files = await publishing.live_sidecars(connection, owner.id)
            running, ended = await operations.latest(connection, owner.id)
            observation = await projects.observation(connection, owner.id)
            skipped = await projects.count_skipped(connection, owner.id)
            built = await publishing.built_at(connection, owner.id)
        missing = await asyncio.to_thread(self._missing, files)
        model_problem = await self._model_problem(live)
        return Status(
            project=owner,
            observation=observation,
            counts=counts,
            methods=_methods(live, counts, missing, built, observation, model_problem, is_running=running is not None),
            sidecars=tuple(files),
            running=running,
            ended=ended,
            skipped=skipped,
        )

    async def _model_problem(self, live: Generation | None) -> UndercroftError | None:
        """Return why queries can't be embedded for the live generation, None where they can."""
        if live is None or not live.model_name:
            return None
        try:
            digest = await self._embedder.digest(live.model_name, _STATUS_TIMEOUT_S)
        except (NotReady, Unavailable) as error:
            return error
        if digest != live.model_digest:
            return NotReady(
                f"The model {live.model_name} is now {digest[:12]}, the generation was made with"
                f" {live.model_digest[:12]}.",
                remedy="Index again, or put the former model back.",
            )
        return None

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
            str(resolved).encode()
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


def upload_origin(project: str, name: str) -> Origin:
    """Return the origin that the resource name of an upload stands for."""
    owner, upload = parse_upload(name)
    if owner != project or not _UPLOAD_ID.fullmatch(upload):
        raise InvalidArgument(
            f"{name!r} is no upload of the project {project!r}.",
            remedy="Name it as UploadArchive returned it for this project.",
            reason="UPLOAD_NOT_FOUND",
        )
    return Origin(ARCHIVE, upload)


def _changed(before: Project, after: Project) -> str:
    """Say what of a project's settings the live generation was not made with."""
    parts = []
    if before.embedding_model != after.embedding_model:
        parts.append(f"the embedding model was changed to {after.embedding_model or 'none'}")
    if before.tiers != after.tiers:
        parts.append("the tiers were changed")
    if before.index_dependencies != after.index_dependencies:
        parts.append(f"dependencies are to be {'indexed' if after.index_dependencies else 'removed'}")
    return "; ".join(parts)


def _check_changes(changes: ProjectChanges) -> None:
    check_text(changes.display_name or "", "display name")
    check_model(changes.embedding_model or "")
    interval_s = changes.sync_interval_s or 0.0
    if interval_s < 0 or 0 < interval_s < _SHORTEST_INTERVAL_S:
        raise InvalidArgument(
            f"A sync interval of {interval_s:g} s is too short.",
            remedy=f"Give {_SHORTEST_INTERVAL_S:.0f} s or more, or nothing for never.",
            reason="INVALID_SYNC_INTERVAL",
        )
    for rule in changes.tiers or ():
        check_text(rule.glob, "glob over packages")


def _engine(distribution: str) -> str:
    return f"{distribution} {importlib.metadata.version(distribution)}"


def _methods(
    live: Generation | None,
    counts: Mapping[str, int],
    missing: Mapping[str, str],
    built: Mapping[str, datetime],
    observation: Observation | None,
    model_problem: UndercroftError | None,
    *,
    is_running: bool,
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
            if is_running:
                reason, remedy = "nothing has been published yet: the first run is under way", ""
        elif method == DENSE and not live.model_name:
            state, reason, remedy = ABSENT, "the generation was made without a model", _GIVE_MODEL
        elif method in missing:
            state, reason, remedy = BROKEN, f"sidecar {missing[method]}", "Run `undercroft repair`."
        elif method in degraded:
            state, reason, remedy = DEGRADED, degraded[method].reason, degraded[method].remedy
        elif method == DENSE and model_problem is not None:
            state, reason, remedy = DEGRADED, model_problem.message, model_problem.remedy
        elif observation is not None and observation.stale:
            state, reason = STALE, observation.reason
            remedy = "A run is under way." if is_running else "Run `undercroft index`."
        updated = built.get(method, live.published_at if live else None)
        methods.append(MethodStatus(method, state, reason, remedy, engine, count, updated))
    absent = MethodStatus("late_interaction", ABSENT, "this release does not have it", "", "", 0, None)
    return (*methods, absent)
