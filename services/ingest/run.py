"""One index run: from looking at the sources to the published generation.

A run writes nothing that a reader can see before its last transaction. What it has embedded is committed as it goes, so
a killed run loses no embedding (DESIGN I7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from services.core import text as lexical_text
from services.core.authorization import no_such_project
from services.core.db import REFUSALS, Connection, Database
from services.core.errors import (
    InvalidArgument,
    NotFound,
    NotReady,
    PermissionDenied,
    Unavailable,
    UndercroftError,
)
from services.core.lexical import FORMAT as LEXICAL_FORMAT
from services.ingest import changes
from services.ingest.changes import Candidate, Changes, Hint, LiveFile
from services.ingest.embedder import Embedder, EmbeddingModel
from services.ingest.evidence import EVIDENCE_LANGUAGES, Evidence, EvidenceSink
from services.ingest.extracting import Extracting
from services.ingest.extraction import EXTRACTION_VERSION, language_of
from services.ingest.fingerprint import pipeline_hash
from services.ingest.pipeline import Pipeline
from services.ingest.projects import DECISIONS, DENSE, Degradation, Generation, Project, Source
from services.ingest.reports import RunReport, Stage
from services.ingest.sidecars import SidecarBuilder
from services.ingest.skips import Skipped, SkipReason
from services.ingest.store import hints, operations, projects, publishing, staging, vectors
from services.ingest.store.operations import Claim

log = structlog.get_logger(__name__)

_BATCH_FILES = 64
_BATCH_CHARS = 4_000_000
_EVIDENCE_CHARS = 1_000_000

Progress = Callable[[RunReport], Awaitable[None]]


class Cancelled(UndercroftError):
    """The run was cancelled."""

    reason = "CANCELLED"


@dataclass(frozen=True, slots=True)
class Workshop:
    """What runs work with; one for the whole service."""

    database: Database
    embedder: Embedder
    evidence: EvidenceSink
    extracting: Extracting
    builder: SidecarBuilder
    pipeline: Pipeline
    data_dir: Path | None
    embed_batch_texts: int
    embed_concurrency: int


@dataclass(frozen=True, slots=True)
class _Scope:
    """What a run is about, read once at its start."""

    project: Project
    sources: Sequence[Source]
    live: Generation | None
    model: EmbeddingModel | None
    pipeline_hash: bytes
    # Every file is extracted anew, although its content is as before.
    renew: bool
    # Evidence is mined anew, although its content is as before.
    remine: bool
    verify: bool

    def must_extract(self, path: str) -> bool:
        return self.renew or (self.remine and language_of(path) in EVIDENCE_LANGUAGES)


class IndexRun:
    """Runs one claimed operation. ``progress`` is called at every step; it raises to stop the run."""

    def __init__(self, workshop: Workshop, claim: Claim, progress: Progress) -> None:
        self._shop = workshop
        self._claim = claim
        self._progress = progress
        self.report = RunReport()
        self._degraded: dict[str, Degradation] = {}
        # Sources whose folder can't be listed: their files stay as they are.
        self._unlisted: dict[str, UndercroftError] = {}

    async def execute(self) -> RunReport:
        """Bring the project up to date; the report says what was done."""
        scope = await self._scope()
        found = await self._discover(scope)
        await self._extract(scope, found)
        if await self._is_current(scope):
            await self._record_unchanged(scope, found)
        else:
            await self._embed(scope)
            await self._publish(scope, found)
        self.report.stage = Stage.DONE
        return self.report

    async def _scope(self) -> _Scope:
        operation = self._claim.operation
        async with self._shop.database.transaction() as connection:
            await operations.hold(connection, self._claim)
            await staging.clear(connection, operation.id)
            project = await projects.get_project_by_id(connection, operation.project_id)
            if project is None:
                raise no_such_project(operation.project)
            sources = await projects.list_sources(connection, project.id)
            live = await projects.live_generation(connection, project.id)
        model = await self._model(project, live)
        hashed = pipeline_hash(
            f"{model.digest}:{model.budget_tokens}" if model else "",
            f"{LEXICAL_FORMAT}:{lexical_text.TOKENIZER_VERSION}",
            "",
            f"extraction {EXTRACTION_VERSION}\n".encode() + self._shop.pipeline.raw,
        )
        self.report.generation = project.generation
        self.report.model = project.embedding_model
        self.report.renewal_reason = _renewal_reason(live, project, model, hashed, bool(operation.options.get("force")))
        degraded = {one.method for one in live.degraded} if live else set()
        return _Scope(
            project=project,
            sources=sources,
            live=live,
            model=model,
            pipeline_hash=hashed,
            renew=bool(self.report.renewal_reason),
            remine=DECISIONS in degraded,
            verify=bool(operation.options.get("verify")),
        )

    async def _model(self, project: Project, live: Generation | None) -> EmbeddingModel | None:
        """Return the project's model. When the embed service is away, what the live generation knows of it."""
        if not project.embedding_model:
            return None
        try:
            return await self._shop.embedder.model(project.embedding_model)
        except (NotReady, Unavailable) as error:
            self._degrade(DENSE, error)
            if live is not None and live.model_name == project.embedding_model and live.model_digest:
                return EmbeddingModel(
                    live.model_name, live.model_digest, live.model_dimensions, live.model_budget_tokens
                )
            return None

    async def _discover(self, scope: _Scope) -> dict[int, _SourceState]:
        found: dict[int, _SourceState] = {}
        with self.report.timed(Stage.DISCOVER) as stage:
            await self._progress(self.report)
            for source in scope.sources:
                async with self._shop.database.transaction() as connection:
                    live = await hints.live_files(connection, source.id)
                    known = await hints.read_hints(connection, source.id)
                try:
                    compared = await asyncio.to_thread(
                        changes.compare,
                        source.root,
                        self._shop.pipeline.discovery,
                        self._shop.data_dir,
                        live,
                        known,
                        (lambda path: True) if scope.verify else scope.must_extract,
                    )
                except (NotFound, InvalidArgument, PermissionDenied) as error:
                    # An unmounted folder must not empty the project, nor keep its other sources from being indexed.
                    self._unlisted[source.name] = error
                    compared = changes.untouched(live, known, error.message)
                found[source.id] = _SourceState(source, live, known, compared)
                stage.items += compared.unchanged + len(compared.to_read) + len(compared.skipped)
            self._count_files(found)
        if self._unlisted and len(self._unlisted) == len(scope.sources):
            raise next(iter(self._unlisted.values()))
        return found

    async def _extract(self, scope: _Scope, found: dict[int, _SourceState]) -> None:
        """Stage new, changed and deleted files, and the decisions in them."""
        with self.report.timed(Stage.EXTRACT) as stage:
            for state in found.values():
                candidates = changes.read_candidates(
                    state.source.root,
                    self._shop.pipeline.discovery,
                    state.changes,
                    state.live,
                    state.hints,
                    scope.must_extract,
                )
                while batch := await asyncio.to_thread(_take, candidates):
                    await self._extract_batch(scope, state, batch)
                    stage.items += len(batch)
                    self._count_files(found)
                    await self._progress(self.report)
                self._count_files(found)
                async with self._shop.database.transaction() as connection:
                    await operations.hold(connection, self._claim)
                    await staging.stage_deleted(
                        connection, self._claim.operation.id, state.source.id, sorted(set(state.changes.deleted))
                    )
            await self._end_removed_sources(scope)

    async def _extract_batch(self, scope: _Scope, state: _SourceState, batch: Sequence[Candidate]) -> None:
        extracted = await self._shop.extracting.extract(
            state.source, state.changes.roots, batch, scope.model, scope.pipeline_hash
        )
        refused = await self._stage(scope, extracted.files)
        skipped = {**extracted.skipped, **{one.path: one for one in refused}}
        stored = [file for file in extracted.files if file.path not in skipped]
        for candidate in batch:
            skip = skipped.get(candidate.path)
            hint = candidate.hint
            state.changes.hints[candidate.path] = Hint(
                hint.size_bytes, hint.mtime_ns, hint.content_hash, (skip.reason.value, skip.detail) if skip else None
            )
            if skip is not None:
                state.changes.skipped.append(skip)
                if candidate.path in state.live:
                    state.changes.deleted.append(candidate.path)
            elif candidate.new:
                self.report.files_new += 1
            elif state.live[candidate.path].content_hash != candidate.content_hash:
                self.report.files_changed += 1
            else:
                state.changes.unchanged += 1
        await self._mine(scope, stored)

    async def _stage(self, scope: _Scope, files: Sequence[staging.StagedFile]) -> list[Skipped]:
        """Stage files, and return those that the database refuses: one of them costs itself and nothing else."""

        async def stage(connection: Connection) -> None:
            await operations.hold(connection, self._claim)
            await staging.stage_files(connection, scope.project.id, self._claim.operation.id, files)

        try:
            await self._shop.database.retry(stage)
        except REFUSALS as error:
            if len(files) == 1:
                log.warning("file can't be stored", path=files[0].path, error=str(error))
                return [
                    Skipped(files[0].path, SkipReason.NOT_STORABLE, f"the database refuses it: {type(error).__name__}")
                ]
            half = len(files) // 2
            return [*await self._stage(scope, files[:half]), *await self._stage(scope, files[half:])]
        return []

    async def _mine(self, scope: _Scope, files: Sequence[staging.StagedFile]) -> None:
        """Hand evidence to the decisions service, and mark the chunks of what turned out to be decision records."""
        evidence = [
            Evidence(file.source.id, file.path, file.text) for file in files if file.language in EVIDENCE_LANGUAGES
        ]
        if not evidence:
            return
        with self.report.timed(Stage.DECISIONS) as stage:
            records: list[tuple[int, str]] = []
            try:
                for part in [] if DECISIONS in self._degraded else _by_size(evidence):
                    records += await self._shop.evidence.stage(
                        scope.project.id, self._claim.operation.id, self._claim.fence, part
                    )
            except (NotReady, Unavailable) as error:
                self._degrade(DECISIONS, error)
            stage.items += len(evidence)
            async with self._shop.database.transaction() as connection:
                await operations.hold(connection, self._claim)
                if DECISIONS in self._degraded:
                    records += await staging.known_decision_records(connection, scope.project.id)
                await staging.mark_decision_records(connection, self._claim.operation.id, records)
        self.report.stage = Stage.EXTRACT

    async def _end_removed_sources(self, scope: _Scope) -> None:
        async with self._shop.database.transaction() as connection:
            await operations.hold(connection, self._claim)
            ended = await staging.stage_removed_sources(connection, scope.project.id, self._claim.operation.id)
        self.report.files_deleted += ended

    async def _is_current(self, scope: _Scope) -> bool:
        """Tell whether the live generation is what this run would publish: nothing staged, nothing missing."""
        if scope.live is None or scope.live.degraded or scope.live.pipeline_hash != scope.pipeline_hash:
            return False
        async with self._shop.database.transaction() as connection:
            return not await staging.any_staged(connection, self._claim.operation.id)

    async def _record_unchanged(self, scope: _Scope, found: dict[int, _SourceState]) -> None:
        assert scope.live is not None
        counts = scope.live.counts
        self.report.chunks_kept = counts["chunks"]
        self.report.texts = self.report.cache_hits = counts["fingerprints"]
        async with self._shop.database.transaction() as connection:
            await operations.hold(connection, self._claim)
            await self._record_sources(connection, scope, found)

    async def _embed(self, scope: _Scope) -> None:
        """Embed texts that the cache does not have, several calls at a time, committing each answer."""
        if scope.model is None:
            return
        project_id, run_id = scope.project.id, self._claim.operation.id
        with self.report.timed(Stage.EMBED) as stage:
            async with self._shop.database.transaction() as connection:
                texts, hits = await vectors.count_texts(connection, project_id, run_id)
            self.report.texts, self.report.cache_hits, self.report.cache_misses = texts, hits, texts - hits
            await self._progress(self.report)
            if not self.report.cache_misses:
                # The embed service may be away: nothing is missing without it.
                self._degraded.pop(DENSE, None)
            if DENSE in self._degraded:
                return
            after = b""
            size = self._shop.embed_batch_texts
            try:
                while True:
                    async with self._shop.database.transaction() as connection:
                        missing = await vectors.missing_texts(
                            connection, project_id, run_id, after, size * self._shop.embed_concurrency
                        )
                    if not missing:
                        break
                    after = missing[-1].fingerprint
                    async with asyncio.TaskGroup() as group:
                        for start in range(0, len(missing), size):
                            group.create_task(self._embed_batch(scope.model, missing[start : start + size]))
                    stage.items += len(missing)
                    await self._progress(self.report)
            except* (NotReady, Unavailable) as errors:
                self._degrade(DENSE, _first(errors))

    async def _embed_batch(self, model: EmbeddingModel, batch: Sequence[vectors.MissingText]) -> None:
        start = asyncio.get_running_loop().time()
        embedded = await self._shop.embedder.embed(model, [one.model_input for one in batch])
        self.report.embed_calls += 1
        self.report.embed_ms += round((asyncio.get_running_loop().time() - start) * 1000)
        self.report.embedded += len(batch)
        self.report.truncated += embedded.truncated

        async def store(connection: Connection) -> None:
            fingerprints = [one.fingerprint for one in batch]
            await vectors.insert_vectors(connection, model.digest, fingerprints, embedded.vectors)

        await self._shop.database.retry(store)

    async def _publish(self, scope: _Scope, found: dict[int, _SourceState]) -> None:
        project, operation = scope.project, self._claim.operation
        async with self._shop.database.transaction() as connection:
            diff = await publishing.diff_chunks(connection, project.id, operation.id)
            changed = await publishing.changes_anything(connection, operation.id)
            live_files = await publishing.live_sidecars(connection, project.id)
        self.report.chunks_kept, self.report.chunks_moved = diff.kept, diff.moved
        self.report.chunks_added, self.report.chunks_removed = diff.added, diff.removed
        self.report.degraded = [
            {"method": one.method, "reason": one.reason, "remedy": one.remedy} for one in self._degraded.values()
        ]
        if changed or self._meta_changed(scope):
            with self.report.timed(Stage.SIDECARS):
                await self._progress(self.report)
                files = await asyncio.to_thread(
                    self._shop.builder.build_next,
                    project.id,
                    operation.id,
                    project.generation,
                    live_files,
                    scope.model.dimensions if scope.model else 0,
                )
            with self.report.timed(Stage.PUBLISH):
                await self._progress(self.report)
                next_generation = publishing.NextGeneration(
                    pipeline_hash=scope.pipeline_hash,
                    model_name=scope.model.name if scope.model else project.embedding_model,
                    model_digest=scope.model.digest if scope.model else "",
                    model_dimensions=scope.model.dimensions if scope.model else 0,
                    model_budget_tokens=scope.model.budget_tokens if scope.model else 0,
                    sidecars=files,
                    degraded=list(self._degraded.values()),
                )
                async with self._shop.database.transaction() as connection:
                    number = await publishing.publish(connection, self._claim, next_generation)
                    await self._record_sources(connection, scope, found)
            await asyncio.to_thread(self._shop.builder.keep, project.id, f"run-{operation.id}", number)
            self.report.published, self.report.generation = True, number
        else:
            async with self._shop.database.transaction() as connection:
                await operations.hold(connection, self._claim)
                await self._record_sources(connection, scope, found)

    def _meta_changed(self, scope: _Scope) -> bool:
        """Tell whether the generation changes although no row does: its model, pipeline, or what was degraded."""
        live = scope.live
        if live is None:
            return True
        filled = bool(self.report.embedded) or {one.method for one in live.degraded} != self._degraded.keys()
        return filled or live.pipeline_hash != scope.pipeline_hash

    async def _record_sources(self, connection: Connection, scope: _Scope, found: dict[int, _SourceState]) -> None:
        edited = 0
        for state in found.values():
            skipped = [(one.path, one.reason.value, one.detail) for one in state.changes.skipped]
            if scope.renew or skipped or state.changes.hints or state.changes.deleted or state.gone:
                await hints.write_hints(connection, state.source.id, state.changes.hints, sorted(state.gone))
                await projects.replace_skipped(connection, state.source.id, skipped)
            edited += await asyncio.to_thread(changes.count_edited, state.source.root, state.changes.hints)
        reasons = [f"source {name}: {error.message}" for name, error in self._unlisted.items()]
        if edited:
            reasons.append(f"{edited} files were edited while they were being indexed")
        await projects.observe(connection, scope.project.id, stale=bool(reasons), reason=" ".join(reasons))

    def _count_files(self, found: dict[int, _SourceState]) -> None:
        states = found.values()
        self.report.files_unchanged = sum(state.changes.unchanged for state in states)
        self.report.files_deleted = sum(len(set(state.changes.deleted)) for state in states)
        self.report.files_skipped = sum(len(state.changes.skipped) for state in states)
        self.report.files_read = sum(state.changes.read for state in states)

    def _degrade(self, method: str, error: UndercroftError) -> None:
        if method not in self._degraded:
            log.warning("run goes on without a method", method=method, reason=error.message)
        self._degraded.setdefault(method, Degradation(method, error.message, error.remedy))


@dataclass(frozen=True, slots=True)
class _SourceState:
    source: Source
    live: dict[str, LiveFile]
    hints: dict[str, Hint]
    changes: Changes

    @property
    def gone(self) -> set[str]:
        """Files with a hint that discovery did not find any more."""
        return self.hints.keys() - self.changes.seen


def _renewal_reason(
    live: Generation | None, project: Project, model: EmbeddingModel | None, hashed: bytes, force: bool
) -> str:
    if force:
        return "asked for with force"
    if live is None or live.pipeline_hash == hashed:
        return ""
    if live.model_name != project.embedding_model:
        return f"the embedding model changed from {live.model_name or 'none'} to {project.embedding_model or 'none'}"
    if model is not None and live.model_digest != model.digest:
        return f"the files of the embedding model {model.name} changed"
    return "ingestion.yaml or the version of the lexical index changed"


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


def _first(errors: BaseExceptionGroup[UndercroftError]) -> UndercroftError:
    for error in errors.exceptions:
        return _first(error) if isinstance(error, BaseExceptionGroup) else error
    raise AssertionError("an exception group is never empty")
