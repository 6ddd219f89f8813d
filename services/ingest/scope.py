"""What a run is about, read once at its start, and how it finds the sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.ingest.changes import Changes, Hint, LiveFile
from services.ingest.embedder import EmbeddingModel
from services.ingest.evidence import EVIDENCE_LANGUAGES
from services.ingest.extraction import language_of
from services.ingest.projects import DENSE, FOLDER, ArchiveState, Generation, Project, Source
from services.ingest.store.staging import StagedFiles
from services.ingest.tiers import Tier, tier_of


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

    def tier(self, source: Source) -> Tier:
        return tier_of(source.package, self.project.tiers, is_dependency=source.managed)

    def renews(self, source: Source) -> bool:
        """Tell whether every file of a source is extracted anew."""
        return self.renew or self.tier(source) is not source.indexed_tier

    def must_extract(self, source: Source, path: str) -> bool:
        return self.renews(source) or (self.remine and language_of(path) in self.evidence_languages(source))

    @staticmethod
    def evidence_languages(source: Source) -> frozenset[str]:
        """Return the languages whose files may hold decisions: those of dependencies are not the project's own."""
        return EVIDENCE_LANGUAGES if source.kind == FOLDER else frozenset()

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
    archive: ArchiveState | None
    live: Mapping[str, LiveFile]
    hints: Mapping[str, Hint]
    # (path, reason, detail) of what the run before skipped, by path.
    skipped_before: Sequence[tuple[str, str, str]]
    changes: Changes

    @property
    def gone(self) -> set[str]:
        """Files with a hint that discovery did not find any more."""
        return self.hints.keys() - self.changes.seen
