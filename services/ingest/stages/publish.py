"""Publishing: sidecars first, then one transaction that makes the run's rows the live generation (DESIGN I2, I3)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from services.core.db import Connection
from services.core.errors import InvalidArgument, NotFound, PermissionDenied
from services.ingest import changes
from services.ingest.projects import FOLDER
from services.ingest.reports import Stage
from services.ingest.sidecars import NextBuild
from services.ingest.stages.context import RunContext
from services.ingest.stages.scope import Scope, SourceState
from services.ingest.store import hints, projects, publishing, staging, vectors

# Looking at all sources again costs at most this part of what a run has cost since it looked: one in so many.
_LOOK_AGAIN = 10
_CLEARED = "the project was cleared"


class PublishStage:
    """Ends a run that went well: with a new generation, or by remembering that there is nothing to publish."""

    def __init__(self, run: RunContext) -> None:
        self._run = run

    async def is_current(self, scope: Scope) -> bool:
        """Tell whether the live generation is what this run would publish: nothing staged, nothing missing."""
        if scope.live is None or scope.live.degraded or scope.live.pipeline_hash != scope.pipeline_hash:
            return False
        if scope.options.re_embed:
            return False
        async with self._run.shop.database.transaction() as connection:
            return not await staging.any_staged(connection, self._run.id)

    async def record_unchanged(self, scope: Scope, found: Mapping[int, SourceState]) -> None:
        """Remember what was seen of the sources by a run that has nothing to publish."""
        assert scope.live is not None
        self._run.report.chunks_kept = scope.live.counts["chunks"]
        changed_since = await self._look_again(found)
        async with self._run.transaction() as connection:
            await self._record_sources(connection, scope, found, changed_since)

    async def clear(self, scope: Scope) -> None:
        """Publish a generation with nothing in it. Sources and embeddings stay."""
        async with self._run.transaction() as connection:
            self._run.report.files_deleted = await staging.stage_everything_deleted(
                connection, scope.project.id, self._run.id
            )
        if self._run.report.files_deleted:
            await self.publish(scope, {})

    async def publish(self, scope: Scope, found: Mapping[int, SourceState]) -> None:
        """Make what is staged the next generation, unless it is what is live already."""
        project, run_id = scope.project, self._run.id
        async with self._run.shop.database.transaction() as connection:
            live_chunks = scope.live.counts["chunks"] if scope.live else 0
            diff = await publishing.diff_chunks(connection, project.id, run_id, live_chunks)
            changed = await publishing.changes_anything(connection, run_id)
            renewed = await vectors.any_renewed(connection, run_id)
            live_files = await publishing.live_sidecars(connection, project.id)
        self._run.report.chunks_kept, self._run.report.chunks_moved = diff.kept, diff.moved
        self._run.report.chunks_added, self._run.report.chunks_removed = diff.added, diff.removed
        self._run.report.degraded = [
            {"method": one.method, "reason": one.reason, "remedy": one.remedy} for one in self._run.degraded.values()
        ]
        if not (changed or renewed or self._meta_changed(scope)):
            changed_since = await self._look_again(found)
            async with self._run.transaction() as connection:
                await self._record_sources(connection, scope, found, changed_since)
            return
        next_generation = self._next_generation(scope)
        with self._run.report.timed(Stage.SIDECARS):
            await self._run.progress()
            wanted = NextBuild(
                project.id,
                run_id,
                self._run.attempt,
                project.generation,
                live_files,
                next_generation.model_dimensions,
                keeps_vectors=scope.keeps_vectors,
            )
            built = await asyncio.to_thread(self._run.shop.builder.build_next, wanted)
            complete = replace(next_generation, sidecars=built.files, documents=built.documents, vectors=built.vectors)
        with self._run.report.timed(Stage.PUBLISH):
            await self._run.progress()
            changed_since = await self._look_again(found)

            async def publish(connection: Connection) -> int:
                number = await publishing.publish(connection, self._run.claim, complete)
                await self._record_sources(connection, scope, found, changed_since)
                return number

            number = await self._run.shop.database.retry(publish)
        await asyncio.to_thread(self._run.shop.builder.keep, project.id, self._run.attempt, number)
        async with self._run.shop.database.transaction() as connection:
            await publishing.analyze_after(connection, diff.added + diff.removed)
        self._run.report.published, self._run.report.generation = True, number

    def _next_generation(self, scope: Scope) -> publishing.NextGeneration:
        """Return what the generation is made with, without its sidecars."""
        model, live = scope.model, scope.live
        if self._run.is_clear and live is not None:
            return publishing.NextGeneration(
                live.pipeline_hash,
                live.model_name,
                live.model_digest,
                live.model_dimensions,
                live.model_budget_tokens,
            )
        return publishing.NextGeneration(
            pipeline_hash=scope.pipeline_hash,
            model_name=model.name if model else scope.project.embedding_model,
            model_digest=model.digest if model else "",
            model_dimensions=model.dimensions if model else 0,
            model_budget_tokens=model.budget_tokens if model else 0,
            degraded=list(self._run.degraded.values()),
        )

    def _meta_changed(self, scope: Scope) -> bool:
        """Tell whether the generation changes although no row does: its model, pipeline, or what was degraded."""
        live = scope.live
        if live is None:
            return True
        filled = bool(self._run.report.embedded) and not scope.options.re_embed
        mended = {one.method for one in live.degraded} != self._run.degraded.keys()
        return filled or mended or live.pipeline_hash != scope.pipeline_hash

    async def _look_again(self, found: Mapping[int, SourceState]) -> list[str]:
        """Say what has changed meanwhile: of the files that were read, and after a longer run of all.

        What a short run has not read, it has looked at a moment ago: at the time that it then records.
        """
        run, shop = self._run, self._run.shop
        folders = [one for one in found.values() if one.source.kind == FOLDER and one.source.name not in run.unlisted]
        looking_ms = run.report.stages[Stage.DISCOVER].wall_ms if Stage.DISCOVER in run.report.stages else 0
        age_ms = (datetime.now(UTC) - run.looked_at).total_seconds() * 1000
        looks_at_all = age_ms >= _LOOK_AGAIN * looking_ms
        if looks_at_all:
            run.looked_at = datetime.now(UTC)
        edited = 0
        reasons: list[str] = []
        for one in folders:
            try:
                if looks_at_all:
                    edited += await asyncio.to_thread(
                        changes.count_changed, one.root, shop.pipeline.discovery, shop.data_dir, one.changes
                    )
                else:
                    edited += await asyncio.to_thread(changes.count_edited, one.root, one.changes.hints)
            except (NotFound, InvalidArgument, PermissionDenied) as error:
                reasons.append(f"source {one.source.name}: {error.message}")
        return [*reasons, *([f"{edited} files were edited while the project was being indexed"] if edited else [])]

    async def _record_sources(
        self, connection: Connection, scope: Scope, found: Mapping[int, SourceState], changed_since: Sequence[str]
    ) -> None:
        """Remember what was seen of the sources, and whether anything has changed since."""
        reasons = [f"source {name}: {error}".rstrip(".") for name, error in self._run.unlisted.items()]
        present = await projects.hold_sources(connection, scope.project.id)
        for state in found.values():
            if state.source.id in present:
                await self._record_source(connection, state)
            if state.changes.kept:
                reasons.append(f"{len(state.changes.kept)} files of {state.source.name} can't be reached")
        reasons += changed_since
        now = await projects.get_project_by_id(connection, scope.project.id)
        if (
            now is None
            or now.settings != scope.project.settings
            or present != {one.id: one.origin for one in scope.sources}
        ):
            reasons.append("its sources or settings were changed while it was being indexed")
        if self._run.is_clear:
            reasons.append(_CLEARED)
            for source in scope.sources:
                await projects.replace_skipped(connection, source.id, [])
                await projects.record_source(connection, source.id, source.indexed_tier, None)
        if scope.options.verify and not self._run.unlisted:
            await projects.verified(connection, scope.project.id)
        await projects.observe(
            connection, scope.project.id, bool(reasons), "; ".join(reasons), observed_at=self._run.looked_at
        )

    async def _record_source(self, connection: Connection, state: SourceState) -> None:
        source, seen = state.source, state.changes
        skipped = sorted((one.path, one.reason.value, one.detail) for one in seen.skipped)
        if skipped != state.skipped_before:
            await projects.replace_skipped(connection, source.id, skipped)
        if source.kind == FOLDER and (seen.hints or state.gone):
            await hints.write_hints(connection, source.id, seen.hints, sorted(state.gone))
        is_new = (state.tier, state.indexed) != (source.indexed_tier, source.indexed)
        if is_new and source.name not in self._run.unlisted and not seen.kept:
            await projects.record_source(connection, source.id, state.tier, state.indexed)
