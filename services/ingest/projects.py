"""Projects and sources as the service knows them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from services.ingest.tiers import Tier, TierRule, tier_of

FOLDER = "folder"
# A wheel or sdist of the wheel directory.
WHEEL = "wheel"
# An archive that was sent.
ARCHIVE = "archive"
# A commit of a git repository.
GIT = "git"

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
    sync_interval_s: float = 0.0  # 0: never
    watch: bool = False
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
class Indexed:
    """What of a source that is no folder was last indexed: the SHA-256 of its archive, or the id of its commit.

    Size and time are those of a wheel or sdist: the hint that saves hashing it.
    """

    digest: bytes
    size_bytes: int = 0  # -1: the source was pointed elsewhere since
    mtime_ns: int = 0


@dataclass(frozen=True, slots=True)
class Origin:
    """What files come from: see ``Source``."""

    kind: str
    location: str
    revision: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """Where files of a project come from.

    ``location`` is the resolved absolute path of a folder, wheel or sdist, the SHA-256 of an upload in hex, or the URL
    or path of a repository, of which ``revision`` is the branch, tag or commit.
    """

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
    indexed: Indexed | None = None
    revision: str = ""

    @property
    def origin(self) -> Origin:
        return Origin(self.kind, self.location, self.revision)

    @property
    def is_own(self) -> bool:
        """Tell whether it is what the project makes, and not what it uses."""
        return self.kind != WHEEL

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
