"""One index run: from looking at the sources to the published generation.

A run writes nothing that a reader can see before its last transaction. What it has extracted and embedded is committed
as it goes, so a run that is taken up again after a kill goes on where it was (DESIGN I7).
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from services.core import text as lexical_text
from services.core.authorization import no_such_project
from services.core.db import REFUSALS, Connection, Database
from services.core.errors import (
    DataLoss,
    InvalidArgument,
    NotFound,
    NotReady,
    PermissionDenied,
    Unavailable,
    UndercroftError,
)
from services.core.lexical import FORMAT as LEXICAL_FORMAT
from services.ingest import changes
from services.ingest.changes import Candidate
from services.ingest.declaring import Declarations, Dependencies
from services.ingest.dependencies.archives import ArchiveLimits
from services.ingest.embedder import Embedder, EmbeddingModel
from services.ingest.embedding import Embedding, EmbedSettings, Wanted
from services.ingest.evidence import Evidence, EvidenceSink
from services.ingest.extracting import Extracting
from services.ingest.extraction import EXTRACTION_VERSION
from services.ingest.fingerprint import pipeline_hash
from services.ingest.opening import open_source
from services.ingest.pipeline import Pipeline
from services.ingest.projects import DECISIONS, DENSE, FOLDER, Degradation, Generation, Project, Source
from services.ingest.reports import RunReport, Stage
from services.ingest.scope import Options, Scope, SourceState
from services.ingest.sidecars import NextBuild, SidecarBuilder
from services.ingest.skips import Skipped, SkipReason
from services.ingest.store import hints, operations, projects, publishing, staging, vectors
from services.ingest.store.operations import Claim

log = structlog.get_logger(__name__)

_BATCH_FILES = 64
_BATCH_CHARS = 4_000_000
_EVIDENCE_CHARS = 1_000_000
# From so many on, the planner's statistics are renewed at once.
_MANY_FILES = 200
_MANY_CHUNKS = 2000
_CLEARED = "the project was cleared"

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
    declarations: Declarations
    # Local disk for what archives hold while a run reads it.
    unpacked_dir: Path
    embed: EmbedSettings


class IndexRun:
    """Runs one claimed operation. ``progress`` is called at every step; it raises to stop the run."""

    def __init__(self, workshop: Workshop, claim: Claim, progress: Progress) -> None:
        self._shop = workshop
        self._claim = claim
        self._progress = progress
        self.report = RunReport()
        self._embedding = Embedding(workshop.database, workshop.embedder, workshop.embed, self.report, progress)
        self._degraded: dict[str, Degradation] = {}
        # Sources whose files can't be listed: their files stay as they are.
        self._unlisted: dict[str, UndercroftError] = {}
        self._scratch = workshop.unpacked_dir / f"run-{claim.operation.id}"

    async def execute(self) -> RunReport:
        """Bring the project up to date, or empty it; the report says what was done."""
        try:
            scope = await self._scope()
            if self._claim.operation.kind == operations.CLEAR:
                await self._clear(scope)
            else:
                await self._index(scope)
        finally:
            await asyncio.to_thread(shutil.rmtree, self._scratch, ignore_errors=True)
        self.report.stage = Stage.DONE
        return self.report

    async def _index(self, scope: Scope) -> None:
        found = await self._discover(scope)
        await self._extract(scope, found)
        if await self._is_current(scope):
            await self._record_unchanged(scope, found)
        else:
            await self._embed(scope)
            await self._publish(scope, found)

    async def _clear(self, scope: Scope) -> None:
        """Publish a generation with nothing in it. Sources and embeddings stay."""
        async with self._shop.database.transaction() as connection:
            await operations.hold(connection, self._claim)
            self.report.files_deleted = await staging.stage_everything_deleted(
                connection, scope.project.id, self._claim.operation.id
            )
        if self.report.files_deleted:
            await self._publish(scope, {})

    async def _scope(self) -> Scope:
        operation = self._claim.operation
        options = Options.of(operation.options)
        async with self._shop.database.transaction() as connection:
            await operations.hold(connection, self._claim)
            project = await projects.get_project_by_id(connection, operation.project_id)
            if project is None:
                raise no_such_project(operation.project)
            live = await projects.live_generation(connection, project.id)
            sources = await projects.list_sources(connection, project.id)
        if operation.kind == operations.INDEX and (project.index_dependencies or any(s.managed for s in sources)):
            sources = await self._sync_dependencies(project, sources)
        model = await self._model(project, live, options)
        hashed = pipeline_hash(
            f"{model.digest}:{model.budget_tokens}" if model else "",
            f"{LEXICAL_FORMAT}:{lexical_text.TOKENIZER_VERSION}",
            "",
            f"extraction {EXTRACTION_VERSION}\n".encode() + self._shop.pipeline.raw,
        )
        # What an earlier attempt has staged serves this one only if it would stage the same.
        key = hashlib.sha256(hashed + repr((project.tiers, options)).encode()).digest()
        async with self._shop.database.transaction() as connection:
            await operations.hold(connection, self._claim)
            staged = await staging.resume(connection, operation.id, key)
        self.report.generation = project.generation
        self.report.model = project.embedding_model
        self.report.renewal_reason = _renewal_reason(live, project, model, hashed, options)
        degraded = {one.method for one in live.degraded} if live else set()
        return Scope(
            project=project,
            sources=sources,
            live=live,
            model=model,
            pipeline_hash=hashed,
            options=options,
            renew=options.force or (live is not None and live.pipeline_hash != hashed),
            remine=DECISIONS in degraded,
            staged=staged,
        )

    async def _sync_dependencies(self, project: Project, sources: list[Source]) -> list[Source]:
        """Make the managed sources those that the project declares; return all sources."""
        wanted = Dependencies()
        if project.index_dependencies:
            own = [source for source in sources if source.kind == FOLDER]
            wanted = await asyncio.to_thread(self._shop.declarations.find, own)
        self.report.warnings += wanted.warnings
        async with self._shop.database.transaction() as connection:
            await operations.hold(connection, self._claim)
            for package, path in sorted(wanted.archives.items()):
                await projects.put_dependency(connection, project.id, package, str(path))
            for source in sources:
                if source.managed and wanted.is_complete and source.package not in wanted.archives:
                    await projects.delete_source(connection, source.id)
            return await projects.list_sources(connection, project.id)

    async def _model(self, project: Project, live: Generation | None, options: Options) -> EmbeddingModel | None:
        """Return the project's model. When the embed service is away, what the live generation knows of it."""
        if not project.embedding_model or self._claim.operation.kind == operations.CLEAR:
            return None
        try:
            return await self._shop.embedder.model(project.embedding_model)
        except (NotReady, Unavailable) as error:
            if options.re_embed:
                raise
            if live is not None and live.model_digest and live.model_name != project.embedding_model:
                raise NotReady(
                    f"The project can't change from {live.model_name} to {project.embedding_model}: {error.message}",
                    remedy=f"{error.remedy} Generation {live.number} serves until then.",
                    reason="MODEL_CHANGE_NOT_POSSIBLE",
                ) from error
            self._degrade(DENSE, error)
            if live is not None and live.model_name == project.embedding_model and live.model_digest:
                return EmbeddingModel(
                    live.model_name, live.model_digest, live.model_dimensions, live.model_budget_tokens
                )
            return None

    async def _discover(self, scope: Scope) -> dict[int, SourceState]:
        found: dict[int, SourceState] = {}
        with self.report.timed(Stage.DISCOVER) as stage:
            await self._progress(self.report)
            for source in scope.sources:
                found[source.id] = state = await self._look_at(scope, source)
                stage.items += state.changes.unchanged + len(state.changes.to_read) + len(state.changes.skipped)
            self._count_files(found)
        if self._unlisted and len(self._unlisted) == len(scope.sources):
            raise next(iter(self._unlisted.values()))
        return found

    async def _look_at(self, scope: Scope, source: Source) -> SourceState:
        async with self._shop.database.transaction() as connection:
            live = await hints.live_files(connection, source.id)
            known = await hints.read_hints(connection, source.id)
            skipped_before = await projects.skipped_of(connection, source.id)
        root, archive = source.root, source.archive
        try:
            opened = await asyncio.to_thread(
                open_source,
                source,
                self._scratch,
                ArchiveLimits(max_file_bytes=self._shop.pipeline.discovery.max_file_bytes),
                renew=scope.renews(source),
                verify=scope.options.verify,
            )
            archive = opened.archive
            if opened.root is None:
                compared = changes.untouched(
                    live, known, [Skipped(path, SkipReason(reason), detail) for path, reason, detail in skipped_before]
                )
            else:
                root = opened.root
                discovery = self._shop.pipeline.discovery
                if archive is not None:
                    # What an archive ships is its content, whatever its .gitignore says of a checkout.
                    discovery = replace(discovery, honour_gitignore=False)
                compared = await asyncio.to_thread(
                    changes.compare,
                    root,
                    discovery,
                    self._shop.data_dir,
                    live,
                    known,
                    lambda path: scope.options.verify or scope.must_extract(source, path),
                )
                compared.skipped += opened.skipped
        except (NotFound, InvalidArgument, PermissionDenied, DataLoss) as error:
            # An unmounted folder must not empty the project, nor keep its other sources from being indexed.
            self._unlisted[source.name] = error
            compared = changes.untouched(live, known, [Skipped("./", SkipReason.UNREADABLE, error.message)])
        return SourceState(source, root, scope.tier(source), archive, live, known, skipped_before, compared)

    async def _extract(self, scope: Scope, found: dict[int, SourceState]) -> None:
        """Stage new, changed and deleted files, and the decisions in them."""
        leftover = dict(scope.staged)
        with self.report.timed(Stage.EXTRACT) as stage:
            for state in found.values():
                source = state.source
                candidates = changes.read_candidates(
                    state.root,
                    self._shop.pipeline.discovery,
                    state.changes,
                    state.live,
                    state.hints,
                    lambda path, source=source: scope.must_extract(source, path),  # type: ignore[misc]
                )
                while batch := await asyncio.to_thread(_take, candidates):
                    fresh = await self._take_staged(state, batch, leftover)
                    skipped = await self._extract_batch(scope, state, fresh) if fresh else {}
                    self._count_batch(state, batch, skipped)
                    stage.items += len(batch)
                    self._count_files(found)
                    await self._progress(self.report)
                self._count_files(found)
                await self._discard([key for key in leftover if key[0] == source.id])
                async with self._shop.database.transaction() as connection:
                    await operations.hold(connection, self._claim)
                    await staging.stage_deleted(
                        connection, self._claim.operation.id, source.id, sorted(set(state.changes.deleted))
                    )
                if state.root != source.root:
                    await asyncio.to_thread(shutil.rmtree, state.root, ignore_errors=True)
            await self._discard([key for key in leftover if key[0] not in found])
            if stage.items >= _MANY_FILES:
                async with self._shop.database.transaction() as connection:
                    await staging.analyze(connection)
            await self._end_removed_sources(scope)

    async def _take_staged(
        self, state: SourceState, batch: Sequence[Candidate], leftover: staging.StagedFiles
    ) -> list[Candidate]:
        """Take off what an earlier attempt of the run has extracted of the same content; return the rest."""
        fresh: list[Candidate] = []
        outdated: list[tuple[int, str]] = []
        for candidate in batch:
            key = (state.source.id, candidate.path)
            before = leftover.pop(key, None)
            if before is None:
                fresh.append(candidate)
            elif before.content_hash != candidate.content_hash or (
                before.module and before.module != state.changes.roots.module(candidate.path)
            ):
                fresh.append(candidate)
                outdated.append(key)
            else:
                self.report.files_resumed += 1
        await self._discard(outdated)
        return fresh

    async def _discard(self, outdated: Sequence[tuple[int, str]]) -> None:
        """Drop what an earlier attempt staged of files that have changed or gone since."""
        if outdated:
            async with self._shop.database.transaction() as connection:
                await operations.hold(connection, self._claim)
                await staging.discard(connection, self._claim.operation.id, outdated)

    async def _extract_batch(self, scope: Scope, state: SourceState, batch: Sequence[Candidate]) -> dict[str, Skipped]:
        """Extract, stage and mine files; return by path those that are skipped."""
        extracted = await self._shop.extracting.extract(
            state.source, state.tier, state.changes.roots, batch, scope.model, scope.pipeline_hash
        )
        to_be_mined = scope.evidence_languages(state.source)
        refused = await self._stage(scope, extracted.files, to_be_mined)
        skipped = {**extracted.skipped, **{one.path: one for one in refused}}
        await self._mine(
            scope,
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
                self.report.files_new += 1
            elif state.live[candidate.path].content_hash != candidate.content_hash:
                self.report.files_changed += 1
            else:
                state.changes.unchanged += 1

    async def _stage(
        self, scope: Scope, files: Sequence[staging.StagedFile], to_be_mined: frozenset[str]
    ) -> list[Skipped]:
        """Stage files, and return those that the database refuses: one of them costs itself and nothing else."""

        async def stage(connection: Connection) -> None:
            await operations.hold(connection, self._claim)
            await staging.stage_files(connection, scope.project.id, self._claim.operation.id, files, to_be_mined)

        try:
            await self._shop.database.retry(stage)
        except REFUSALS as error:
            if len(files) == 1:
                log.warning("file can't be stored", path=files[0].path, error=str(error))
                return [
                    Skipped(files[0].path, SkipReason.NOT_STORABLE, f"the database refuses it: {type(error).__name__}")
                ]
            half = len(files) // 2
            return [
                *await self._stage(scope, files[:half], to_be_mined),
                *await self._stage(scope, files[half:], to_be_mined),
            ]
        return []

    async def _mine(self, scope: Scope, source: Source, files: Sequence[staging.StagedFile]) -> None:
        """Hand evidence to the decisions service, and mark the chunks of what turned out to be decision records."""
        evidence = [Evidence(source.id, file.path, file.text) for file in files]
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
                if DECISIONS not in self._degraded:
                    paths = [one.path for one in evidence]
                    await staging.complete(connection, self._claim.operation.id, source.id, paths)
        self.report.stage = Stage.EXTRACT

    async def _end_removed_sources(self, scope: Scope) -> None:
        async with self._shop.database.transaction() as connection:
            await operations.hold(connection, self._claim)
            ended = await staging.stage_removed_sources(connection, scope.project.id, self._claim.operation.id)
        self.report.files_deleted += ended

    async def _is_current(self, scope: Scope) -> bool:
        """Tell whether the live generation is what this run would publish: nothing staged, nothing missing."""
        if scope.live is None or scope.live.degraded or scope.live.pipeline_hash != scope.pipeline_hash:
            return False
        if scope.options.re_embed:
            return False
        async with self._shop.database.transaction() as connection:
            return not await staging.any_staged(connection, self._claim.operation.id)

    async def _record_unchanged(self, scope: Scope, found: dict[int, SourceState]) -> None:
        assert scope.live is not None
        self.report.chunks_kept = scope.live.counts["chunks"]
        async with self._shop.database.transaction() as connection:
            await operations.hold(connection, self._claim)
            await self._record_sources(connection, scope, found)

    async def _embed(self, scope: Scope) -> None:
        """Embed what the cache does not have. Without the embed service the run goes on degraded, where it may."""
        if scope.model is None:
            return
        if scope.options.re_embed:
            wanted = Wanted.ALL
        else:
            wanted = Wanted.MISSING_OF_CHANGED if scope.keeps_vectors else Wanted.MISSING
        project_id, run_id = scope.project.id, self._claim.operation.id
        with self.report.timed(Stage.EMBED) as stage:
            await self._embedding.count(project_id, run_id, wanted)
            await self._progress(self.report)
            if not self.report.cache_misses:
                # The embed service may be away: nothing is missing without it.
                self._degraded.pop(DENSE, None)
            if DENSE in self._degraded:
                return
            try:
                await self._embedding.embed(project_id, run_id, scope.model, stage, wanted)
            except* (NotReady, Unavailable) as errors:
                error = _first(errors)
                if wanted is Wanted.ALL or scope.replaces_model:
                    # Half of the vectors would be worse than the live ones; what is embedded stays in the cache.
                    raise error from errors
                self._degrade(DENSE, error)

    async def _publish(self, scope: Scope, found: dict[int, SourceState]) -> None:
        project, run_id = scope.project, self._claim.operation.id
        async with self._shop.database.transaction() as connection:
            live_chunks = scope.live.counts["chunks"] if scope.live else 0
            diff = await publishing.diff_chunks(connection, project.id, run_id, live_chunks)
            changed = await publishing.changes_anything(connection, run_id)
            renewed = await vectors.any_renewed(connection, run_id)
            live_files = await publishing.live_sidecars(connection, project.id)
        self.report.chunks_kept, self.report.chunks_moved = diff.kept, diff.moved
        self.report.chunks_added, self.report.chunks_removed = diff.added, diff.removed
        self.report.degraded = [
            {"method": one.method, "reason": one.reason, "remedy": one.remedy} for one in self._degraded.values()
        ]
        if not (changed or renewed or self._meta_changed(scope)):
            async with self._shop.database.transaction() as connection:
                await operations.hold(connection, self._claim)
                await self._record_sources(connection, scope, found)
            return
        next_generation = self._next_generation(scope)
        with self.report.timed(Stage.SIDECARS):
            await self._progress(self.report)
            wanted = NextBuild(
                project.id,
                run_id,
                project.generation,
                live_files,
                next_generation.model_dimensions,
                keeps_vectors=scope.keeps_vectors,
            )
            built = await asyncio.to_thread(self._shop.builder.build_next, wanted)
            complete = replace(next_generation, sidecars=built.files, documents=built.documents, vectors=built.vectors)
        with self.report.timed(Stage.PUBLISH):
            await self._progress(self.report)

            async def publish(connection: Connection) -> int:
                number = await publishing.publish(connection, self._claim, complete)
                await self._record_sources(connection, scope, found)
                return number

            number = await self._shop.database.retry(publish)
        await asyncio.to_thread(self._shop.builder.keep, project.id, f"run-{run_id}", number)
        if diff.added + diff.removed >= _MANY_CHUNKS:
            async with self._shop.database.transaction() as connection:
                await publishing.analyze(connection)
        self.report.published, self.report.generation = True, number

    def _next_generation(self, scope: Scope) -> publishing.NextGeneration:
        """Return what the generation is made with, without its sidecars."""
        model, live = scope.model, scope.live
        if self._claim.operation.kind == operations.CLEAR and live is not None:
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
            degraded=list(self._degraded.values()),
        )

    def _meta_changed(self, scope: Scope) -> bool:
        """Tell whether the generation changes although no row does: its model, pipeline, or what was degraded."""
        live = scope.live
        if live is None:
            return True
        filled = bool(self.report.embedded) and not scope.options.re_embed
        mended = {one.method for one in live.degraded} != self._degraded.keys()
        return filled or mended or live.pipeline_hash != scope.pipeline_hash

    async def _record_sources(self, connection: Connection, scope: Scope, found: dict[int, SourceState]) -> None:
        """Remember what was seen of the sources, and whether they have changed since."""
        reasons = [f"source {name}: {error.message}" for name, error in self._unlisted.items()]
        edited = 0
        for state in found.values():
            await self._record_source(connection, state)
            if state.source.kind == FOLDER:
                edited += await asyncio.to_thread(changes.count_edited, state.root, state.changes.hints)
        if edited:
            reasons.append(f"{edited} files were edited while they were being indexed")
        if self._claim.operation.kind == operations.CLEAR:
            reasons.append(_CLEARED)
            for source in scope.sources:
                await projects.replace_skipped(connection, source.id, [])
                await projects.record_source(connection, source.id, source.indexed_tier, None)
        if scope.options.verify:
            await projects.verified(connection, scope.project.id)
        await projects.observe(connection, scope.project.id, stale=bool(reasons), reason=" ".join(reasons))

    async def _record_source(self, connection: Connection, state: SourceState) -> None:
        source, seen = state.source, state.changes
        skipped = sorted((one.path, one.reason.value, one.detail) for one in seen.skipped)
        if skipped != state.skipped_before:
            await projects.replace_skipped(connection, source.id, skipped)
        if source.kind == FOLDER and (seen.hints or state.gone):
            await hints.write_hints(connection, source.id, seen.hints, sorted(state.gone))
        is_new = (state.tier, state.archive) != (source.indexed_tier, source.archive)
        if is_new and source.name not in self._unlisted:
            await projects.record_source(connection, source.id, state.tier, state.archive)

    def _count_files(self, found: dict[int, SourceState]) -> None:
        states = found.values()
        self.report.files_unchanged = sum(state.changes.unchanged for state in states)
        self.report.files_deleted = sum(len(set(state.changes.deleted)) for state in states)
        self.report.files_skipped = sum(len(state.changes.skipped) for state in states)
        self.report.files_read = sum(state.changes.read for state in states)

    def _degrade(self, method: str, error: UndercroftError) -> None:
        if method not in self._degraded:
            log.warning("run goes on without a method", method=method, reason=error.message)
        self._degraded.setdefault(method, Degradation(method, error.message, error.remedy))


def _renewal_reason(
    live: Generation | None, project: Project, model: EmbeddingModel | None, hashed: bytes, options: Options
) -> str:
    """Say why chunks are made or embedded anew although their files are as before; empty when they are not."""
    reasons = []
    if options.force:
        reasons.append("extracted anew as asked for with force")
    if options.re_embed:
        reasons.append("embedded anew as asked for with re-embed")
    if live is not None and live.pipeline_hash != hashed:
        if live.model_name != project.embedding_model:
            before, after = live.model_name or "none", project.embedding_model or "none"
            reasons.append(f"the embedding model changed from {before} to {after}")
        elif model is not None and live.model_digest and live.model_digest != model.digest:
            reasons.append(f"the files of the embedding model {model.name} changed")
        else:
            reasons.append("ingestion.yaml, the extraction or the lexical index of this release changed")
    return "; ".join(reasons)


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
