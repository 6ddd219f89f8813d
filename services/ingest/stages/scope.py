"""What a run is about, read once at its start."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.core import text as lexical_text
from services.core.authorization import no_such_project
from services.core.errors import NotReady, Unavailable
from services.core.lexical import FORMAT as LEXICAL_FORMAT
from services.ingest.changes import Changes, Hint, LiveFile
from services.ingest.declaring import Dependencies
from services.ingest.embedder import EmbeddingModel
from services.ingest.evidence import EVIDENCE_LANGUAGES
from services.ingest.extraction import EXTRACTION_VERSION, language_of
from services.ingest.fingerprint import pipeline_hash
from services.ingest.projects import DECISIONS, DENSE, Generation, Indexed, Project, Source
from services.ingest.stages.context import RunContext
from services.ingest.store import projects, staging
from services.ingest.store.staging import StagedFiles
from services.ingest.tiers import Tier


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for: see ``RunIndexRequest`` in the proto."""

    verify: bool = False
    force: bool = False
    re_embed: bool = False

    @classmethod
    def of(cls, stored: Mapping[str, bool]) -> Options:
        return cls(bool(stored.get("verify")), bool(stored.get("force")), bool(stored.get("re_embed")))


@dataclass(frozen=True, slots=True)
class Scope:
    """A run's project, its sources, and what of it must be made anew."""

    project: Project
    sources: Sequence[Source]
    live: Generation | None
    model: EmbeddingModel | None
    pipeline_hash: bytes
    options: Options
    # Every file is extracted anew, although its content is as before.
    renew: bool
    # Evidence is mined anew, although its content is as before.
    remine: bool
    # What an earlier attempt of the run has extracted.
    staged: StagedFiles

    def renews(self, source: Source) -> bool:
        """Tell whether every file of a source is extracted anew."""
        return self.renew or self.project.tier(source) is not source.indexed_tier

    def must_extract(self, source: Source, path: str) -> bool:
        return self.renews(source) or (self.remine and language_of(path) in self.evidence_languages(source))

    @staticmethod
    def evidence_languages(source: Source) -> frozenset[str]:
        """Return the languages whose files may hold decisions: those of dependencies are not the project's own."""
        return EVIDENCE_LANGUAGES if source.is_own else frozenset()

    @property
    def keeps_vectors(self) -> bool:
        """Tell whether the live generation lacks no vector of this model: only new contents can need any."""
        if self.live is None or self.model is None or self.options.re_embed:
            return False
        is_whole = all(one.method != DENSE for one in self.live.degraded)
        return is_whole and self.live.model_digest == self.model.digest

    @property
    def replaces_model(self) -> bool:
        """Tell whether the live generation serves vectors of another model than the one that the project has now."""
        if self.live is None or not self.live.model_digest or not self.project.embedding_model:
            return False
        return self.model is None or self.model.digest != self.live.model_digest


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source as the run finds it. ``root`` is its folder, or that into which its archive was unpacked."""

    source: Source
    root: Path
    tier: Tier
    # What it is now, as far as it is an archive or a commit.
    indexed: Indexed | None
    live: Mapping[str, LiveFile]
    hints: Mapping[str, Hint]
    # (path, reason, detail) of what the run before skipped, by path.
    skipped_before: Sequence[tuple[str, str, str]]
    changes: Changes

    @property
    def gone(self) -> set[str]:
        """Files with a hint that discovery did not find any more."""
        return self.hints.keys() - self.changes.seen


class ScopeStage:
    """Finds out what a run is about."""

    def __init__(self, run: RunContext) -> None:
        self._run = run

    async def read(self) -> Scope:
        """Read the project and its model; bring its managed sources in line with what it declares."""
        operation = self._run.claim.operation
        options = Options.of(operation.options)
        async with self._run.transaction() as connection:
            project = await projects.get_project_by_id(connection, operation.project_id)
            if project is None:
                raise no_such_project(operation.project)
            live = await projects.live_generation(connection, project.id)
            sources = await projects.list_sources(connection, project.id)
        if not self._run.is_clear and (project.index_dependencies or any(s.managed for s in sources)):
            sources = await self._sync_dependencies(project, sources)
        model = await self._model(project, live, options)
        hashed = pipeline_hash(
            f"{model.digest}:{model.budget_tokens}" if model else "",
            f"{LEXICAL_FORMAT}:{lexical_text.TOKENIZER_VERSION}",
            "",
            f"extraction {EXTRACTION_VERSION}\n".encode() + self._run.shop.pipeline.raw,
        )
        # What an earlier attempt has staged serves this one only if it would stage the same.
        key = hashlib.sha256(hashed + repr((project.tiers, options)).encode()).digest()
        async with self._run.transaction() as connection:
            staged = await staging.resume(connection, project.id, operation.id, key)
        self._run.report.generation = project.generation
        self._run.report.model = project.embedding_model
        if not self._run.is_clear:
            self._run.report.renewal_reason = _renewal_reason(live, project, model, hashed, options)
            self._run.report.warnings += _tier_changes(project, sources, live)
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
            own = [source for source in sources if not source.managed]
            wanted = await asyncio.to_thread(self._run.shop.declarations.find, own)
        self._run.report.warnings += wanted.warnings
        async with self._run.transaction() as connection:
            for package, path in sorted(wanted.archives.items()):
                await projects.put_dependency(connection, project.id, package, str(path))
            for source in sources:
                if source.managed and wanted.is_complete and source.package not in wanted.archives:
                    await projects.delete_source(connection, source.id)
            return await projects.list_sources(connection, project.id)

    async def _model(self, project: Project, live: Generation | None, options: Options) -> EmbeddingModel | None:
        """Return the project's model. When the embed service is away, what the live generation knows of it."""
        if not project.embedding_model or self._run.is_clear:
            return None
        known = None
        if live is not None and live.model_name == project.embedding_model and live.model_digest:
            known = EmbeddingModel(live.model_name, live.model_digest, live.model_dimensions, live.model_budget_tokens)
        try:
            return await self._run.shop.embedder.model(project.embedding_model, known=known)
        except (NotReady, Unavailable) as error:
            if options.re_embed:
                raise
            if live is not None and live.model_digest and live.model_name != project.embedding_model:
                raise NotReady(
                    f"The project can't change from {live.model_name} to {project.embedding_model}: {error.message}",
                    remedy=f"{error.remedy} Generation {live.number} serves until then.",
                    reason="MODEL_CHANGE_NOT_POSSIBLE",
                ) from error
            self._run.degrade(DENSE, error)
            return known


def _tier_changes(project: Project, sources: Sequence[Source], live: Generation | None) -> list[str]:
    """Say of which packages the chunks are renewed because they have another tier now."""
    if live is None:
        return []
    changed = []
    for source in sources:
        tier = project.tier(source)
        if tier is not source.indexed_tier and source.created_at < live.published_at:
            changed.append(f"{source.package} has the tier {tier.value} now, before it was {source.indexed_tier.value}")
    return changed


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
