"""Extraction: new and changed files are read, cut into chunks, mined for decisions, and staged under the run's id."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import structlog

from services.core.db import REFUSALS, Connection
from services.core.errors import NotReady, Unavailable
from services.ingest import changes
from services.ingest.changes import Candidate
from services.ingest.evidence import Evidence
from services.ingest.projects import DECISIONS, FOLDER, Source
from services.ingest.reports import Stage
from services.ingest.skips import Skipped, SkipReason
from services.ingest.stages.context import RunContext
from services.ingest.stages.discover import count_files
from services.ingest.stages.scope import Scope, SourceState
from services.ingest.store import operations, staging

log = structlog.get_logger(__name__)

_BATCH_FILES = 64
_BATCH_CHARS = 4_000_000
_EVIDENCE_CHARS = 1_000_000
# From so many on, the planner's statistics are renewed at once.
_MANY_FILES = 200


class ExtractStage:
    """Stages what the live generation does not have, and the end of what it has too much."""

    def __init__(self, run: RunContext, scope: Scope) -> None:
        self._run = run
        self._scope = scope
        # What an earlier attempt of the run has extracted, and this one has not come to yet.
        self._leftover = dict(scope.staged)

    async def extract(self, state: SourceState, found: Mapping[int, SourceState]) -> None:
        """Stage new, changed and deleted files of a source, and the decisions in them; ``found`` is for the report."""
        source = state.source
        candidates = changes.read_candidates(
            state.root,
            self._run.shop.pipeline.discovery,
            state.changes,
            state.live,
            state.hints,
            lambda path: self._scope.must_extract(source, path),
        )
        with self._run.report.timed(Stage.EXTRACT) as stage:
            while batch := await asyncio.to_thread(_take, candidates):
                fresh = await self._take_staged(state, batch)
                skipped = await self._extract_batch(state, fresh) if fresh else {}
                self._count_batch(state, batch, skipped)
                stage.items += len(batch)
                count_files(self._run.report, found.values())
                await self._run.progress()
            count_files(self._run.report, found.values())
            if state.changes.vanished:
                if source.kind != FOLDER:
                    what = f"Files that {source.name} was unpacked into have vanished."
                    raise Unavailable(what, remedy="Index again.")
                # A mount that went away meanwhile must not empty the project.
                await asyncio.to_thread(changes.ensure_same, state.root, state.changes)
            await self._discard([key for key in self._leftover if key[0] == source.id])
            async with self._run.transaction() as connection:
                await staging.stage_deleted(connection, self._run.id, source.id, sorted(set(state.changes.deleted)))

    async def finish(self, found: Mapping[int, SourceState]) -> None:
        """End what belongs to no source any more, once all sources are extracted."""
        with self._run.report.timed(Stage.EXTRACT) as stage:
            await self._discard([key for key in self._leftover if key[0] not in found])
            if stage.items >= _MANY_FILES:
                async with self._run.shop.database.transaction() as connection:
                    await staging.analyze(connection)
            self._refuse_half_a_renewal(found)
            await self._end_removed_sources()

    def _refuse_half_a_renewal(self, found: Mapping[int, SourceState]) -> None:
        """Fail where files that can't be read would stay as an earlier pipeline or model made them (G11)."""
        unread = [*self._run.unlisted, *(state.source.name for state in found.values() if state.changes.kept)]
        if self._scope.renew and unread:
            raise NotReady(
                f"All files must be extracted anew, and {', '.join(unread)} can't be read:"
                f" {self._run.report.renewal_reason}.",
                remedy="Put back or remove what can't be read, then index again; the live generation stays until then.",
                reason="RENEWAL_NOT_POSSIBLE",
            )

    async def _take_staged(self, state: SourceState, batch: Sequence[Candidate]) -> list[Candidate]:
        """Take off what an earlier attempt of the run has extracted of the same content; return the rest."""
        fresh: list[Candidate] = []
        outdated: list[tuple[int, str]] = []
        for candidate in batch:
            key = (state.source.id, candidate.path)
            before = self._leftover.pop(key, None)
            if before is None:
                fresh.append(candidate)
            elif before.content_hash != candidate.content_hash or (
                state.changes.is_said_otherwise(candidate.path, before.module, before.settings)
            ):
                fresh.append(candidate)
                outdated.append(key)
            else:
                self._run.report.files_resumed += 1
        await self._discard(outdated)
        return fresh

    async def _discard(self, outdated: Sequence[tuple[int, str]]) -> None:
        """Drop what an earlier attempt staged of files that have changed or gone since."""
        if outdated:
            async with self._run.transaction() as connection:
                await staging.discard(connection, self._run.claim.operation.project_id, self._run.id, outdated)

    async def _extract_batch(self, state: SourceState, batch: Sequence[Candidate]) -> dict[str, Skipped]:
        """Extract, stage and mine files; return by path those that are skipped."""
        extracted = await self._run.shop.extracting.extract(
            state.source,
            state.tier,
            state.changes,
            batch,
            self._scope.model,
            self._scope.pipeline_hash,
            self._run.progress,
        )
        to_be_mined = self._scope.evidence_languages(state.source)
        refused = await self._stage(extracted.files, to_be_mined)
        skipped = {**extracted.skipped, **{one.path: one for one in refused}}
        await self._mine(
            state.source,
            [file for file in extracted.files if file.path not in skipped and file.language in to_be_mined],
        )
        return skipped

    def _count_batch(self, state: SourceState, batch: Sequence[Candidate], skipped: dict[str, Skipped]) -> None:
        for candidate in batch:
            skip = skipped.get(candidate.path)
            state.changes.hints[candidate.path] = replace(
                candidate.hint, skip=(skip.reason.value, skip.detail) if skip else None
            )
            if skip is not None:
                state.changes.skipped.append(skip)
                if candidate.path in state.live:
                    state.changes.deleted.append(candidate.path)
            elif candidate.new:
                self._run.report.files_new += 1
            elif state.live[candidate.path].content_hash != candidate.content_hash:
                self._run.report.files_changed += 1
            else:
                state.changes.unchanged += 1

    async def _stage(self, files: Sequence[staging.StagedFile], to_be_mined: frozenset[str]) -> list[Skipped]:
        """Stage files, and return those that the database refuses: one of them costs itself and nothing else."""

        async def stage(connection: Connection) -> None:
            await operations.hold(connection, self._run.claim)
            await staging.stage_files(connection, self._scope.project.id, self._run.id, files, to_be_mined)

        try:
            await self._run.shop.database.retry(stage)
        except REFUSALS as error:
            if len(files) == 1:
                log.warning("file can't be stored", path=files[0].path, error=str(error))
                return [
                    Skipped(files[0].path, SkipReason.NOT_STORABLE, f"the database refuses it: {type(error).__name__}")
                ]
            half = len(files) // 2
            return [
                *await self._stage(files[:half], to_be_mined),
                *await self._stage(files[half:], to_be_mined),
            ]
        return []

    async def _mine(self, source: Source, files: Sequence[staging.StagedFile]) -> None:
        """Hand evidence to the decisions service, and mark the chunks of what turned out to be decision records."""
        evidence = [Evidence(source.id, file.path, file.text) for file in files]
        if not evidence:
            return
        with self._run.report.timed(Stage.DECISIONS) as stage:
            records: list[tuple[int, str]] = []
            try:
                for part in [] if DECISIONS in self._run.degraded else _by_size(evidence):
                    records += await self._run.shop.evidence.stage(
                        self._scope.project.id, self._run.id, self._run.claim.fence, part
                    )
            except (NotReady, Unavailable) as error:
                self._run.degrade(DECISIONS, error)
            stage.items += len(evidence)
            async with self._run.transaction() as connection:
                if DECISIONS in self._run.degraded:
                    records += await staging.known_decision_records(connection, self._scope.project.id)
                await staging.mark_decision_records(connection, self._run.id, records)
                if DECISIONS not in self._run.degraded:
                    paths = [one.path for one in evidence]
                    await staging.complete(connection, self._run.id, source.id, paths)
        self._run.report.stage = Stage.EXTRACT

    async def _end_removed_sources(self) -> None:
        async with self._run.transaction() as connection:
            ended = await staging.stage_removed_sources(connection, self._scope.project.id, self._run.id)
        self._run.report.files_deleted += ended


def _take(candidates: Iterator[Candidate]) -> list[Candidate]:
    """Read the next candidates, up to a batch."""
    batch: list[Candidate] = []
    size = 0
    for candidate in candidates:
        batch.append(candidate)
        size += len(candidate.data)
        if len(batch) >= _BATCH_FILES or size >= _BATCH_CHARS:
            break
    return batch


def _by_size(evidence: Sequence[Evidence]) -> Iterator[list[Evidence]]:
    part: list[Evidence] = []
    size = 0
    for one in evidence:
        if part and size + len(one.text) > _EVIDENCE_CHARS:
            yield part
            part, size = [], 0
        part.append(one)
        size += len(one.text)
    if part:
        yield part
