"""Projects and sources as the service knows them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from services.ingest.tiers import Tier, TierRule, tier_of

FOLDER = "folder"
# A wheel or sdist of the wheel directory.
WHEEL = "wheel"

# Methods, as status and degradations name them.
LEXICAL = "lexical"
DENSE = "dense"
GRAPH = "graph"
DECISIONS = "decisions"


@dataclass(frozen=True, slots=True)
class Project:
    id: int
    name: str
    display_name: str
    embedding_model: str
    generation: int
    created_at: datetime
    published_at: datetime | None
    tiers: tuple[TierRule, ...] = ()
    index_dependencies: bool = False
    # The model that the live generation was made with.
    live_model: str = ""

    @property
    def settings(self) -> tuple[str, tuple[TierRule, ...], bool]:
        """What of a project its generations are made by."""
        return self.embedding_model, self.tiers, self.index_dependencies

    def tier(self, source: Source) -> Tier:
        """Return what of a source is to be embedded."""
        return tier_of(source.package, self.tiers, is_dependency=source.managed)


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """An archive as it was when it was last indexed. Size and time are the hint that saves hashing it."""

    sha256: bytes
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Source:
    """Where files of a project come from. ``location`` is the resolved absolute path of a folder or an archive."""

    id: int
    project_id: int
    name: str
    package: str
    kind: str
    location: str
    created_at: datetime
    # Added and removed by index runs, as the project declares its dependencies.
    managed: bool = False
    # What its live chunks were made with.
    indexed_tier: Tier = Tier.FULL
    archive: ArchiveState | None = None

    @property
    def root(self) -> Path:
        return Path(self.location)


@dataclass(frozen=True, slots=True)
class Observation:
    """The last comparison of the sources with the live generation."""

    observed_at: datetime
    stale: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Degradation:
    """A method that a run could not serve in full, with the reason and what to do."""

    method: str
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Generation:
    """A published state of a project."""

    project_id: int
    number: int
    published_at: datetime
    pipeline_hash: bytes
    model_name: str
    model_digest: str
    model_dimensions: int
    model_budget_tokens: int
    counts: dict[str, int]
    degraded: tuple[Degradation, ...]
    # The run that published it.
    run_id: int
