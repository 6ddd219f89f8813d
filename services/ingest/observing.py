"""Observation: the sources compared with the live generation by names, sizes and times. No body is read."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from services.core.authorization import Visible
from services.core.db import Database
from services.core.errors import InvalidArgument, NotFound, PermissionDenied
from services.ingest import changes
from services.ingest.changes import Hint, LiveFile
from services.ingest.pipeline import Pipeline
from services.ingest.projects import ARCHIVE, GIT, WHEEL, Generation, Observation, Project, Source
from services.ingest.store import hints, projects


@dataclass(slots=True)
class Comparison:
    """Files that a run would look at."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    deleted: int = 0
    skipped: int = 0


class Observer:
    """Compares, and records the outcome, which answers then carry."""

    def __init__(self, database: Database, pipeline: Pipeline, data_dir: Path | None) -> None:
        self._database = database
        self._pipeline = pipeline
        self._data_dir = data_dir

    async def observe(self, project: str, visible: Visible) -> tuple[Project, Observation, Comparison]:
        async with self._database.transaction() as connection:
            owner = await projects.get_project(connection, project, visible)
            sources = await projects.list_sources(connection, owner.id)
            known = [
                (await hints.live_files(connection, s.id), await hints.read_hints(connection, s.id)) for s in sources
            ]
            orphaned = await hints.count_orphaned(connection, owner.id)
            live = await projects.live_generation(connection, owner.id)
        seen = Comparison(deleted=orphaned)
        reasons = _settings_changed(owner, live, sources)
        for source, (files, hinted) in zip(sources, known, strict=True):
            try:
                if source.kind == WHEEL:
                    reasons += _compare_distribution(source, files, seen)
                elif source.kind == ARCHIVE:
                    reasons += _compare_upload(source, files, seen)
                elif source.kind == GIT:
                    # What a server has is not asked here: runs do that.
                    seen.unchanged += len(files)
                    if source.indexed is None or source.indexed.size_bytes < 0:
                        reasons.append(f"{source.name} was not indexed as it is named now")
                else:
                    reasons += await asyncio.to_thread(self._compare_folder, source, files, hinted, seen)
            except (NotFound, InvalidArgument, PermissionDenied) as error:
                # What is stale for this reason no run can mend.
                reasons.append(f"source {source.name}: {error}".rstrip("."))
        counts = ((seen.new, "new"), (seen.changed, "changed"), (seen.deleted, "deleted"))
        if parts := [f"{n} {word}" for n, word in counts if n]:
            reasons.append(f"files since the last run: {', '.join(parts)}")
        async with self._database.transaction() as connection:
            # What a run that published meanwhile has seen is newer than this.
            current = await projects.get_project(connection, project, visible, lock=True)
            if current.generation == owner.generation:
                await projects.observe(connection, owner.id, bool(reasons), "; ".join(reasons))
            observation = await projects.observation(connection, owner.id)
        assert observation is not None
        return owner, observation, seen

    def _compare_folder(
        self, source: Source, live: dict[str, LiveFile], hinted: dict[str, Hint], seen: Comparison
    ) -> list[str]:
        found = changes.compare(
            source.root, self._pipeline.discovery, self._data_dir, live, hinted, lambda path: False, trusting=True
        )
        seen.new += sum(one.path not in live for one in found.to_read)
        seen.changed += sum(one.path in live for one in found.to_read)
        seen.unchanged += found.unchanged
        seen.deleted += len(found.deleted)
        seen.skipped += len(found.skipped)
        return [f"{len(found.kept)} files of {source.name} can't be reached"] if found.kept else []


def _compare_distribution(source: Source, live: dict[str, LiveFile], seen: Comparison) -> list[str]:
    try:
        stat = source.root.stat()
    except OSError as error:
        return [f"source {source.name}: {os.fspath(source.root)}: {error.strerror}"]
    before = source.indexed
    if before is None or (before.size_bytes, before.mtime_ns) != (stat.st_size, stat.st_mtime_ns):
        return [f"{source.root.name} is new or was replaced"]
    seen.unchanged += len(live)
    return []


def _compare_upload(source: Source, live: dict[str, LiveFile], seen: Comparison) -> list[str]:
    if source.indexed is None or source.indexed.digest.hex() != source.location:
        return [f"another archive was sent for {source.name}"]
    seen.unchanged += len(live)
    return []


def _settings_changed(project: Project, live: Generation | None, sources: list[Source]) -> list[str]:
    """Say what of the project's settings the live generation was not made with."""
    if live is None:
        return []
    reasons = []
    if live.model_name != project.embedding_model:
        reasons.append("the embedding model was changed")
    if any(project.tier(source) is not source.indexed_tier for source in sources):
        reasons.append("the tiers were changed")
    if not project.index_dependencies and any(source.managed for source in sources):
        reasons.append("dependencies are to be removed")
    return reasons
