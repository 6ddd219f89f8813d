"""What is asked and what is found, as the pipeline knows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from services.core.snapshots import Scope
from services.search.fusion import Fused


@dataclass(frozen=True, slots=True)
class Filter:
    """Restricts what may be found; an empty field does not restrict."""

    packages: tuple[str, ...] = ()
    path_globs: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    kinds: tuple[int, ...] = ()
    # Key and values of which a file must have one; none for any. All of these must hold.
    metadata: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.packages or self.path_globs or self.languages or self.kinds or self.metadata)


@dataclass(frozen=True, slots=True)
class Place:
    project: str
    package: str
    path: str
    start_line: int
    end_line: int


class Candidate(NamedTuple):
    """A content that a leg found. ``key`` is the least chunk key among its places that the query may see."""

    project_id: int
    project: str
    content_id: int
    key: str
    # Contents of one text hash say the same: they collapse to one hit.
    text_hash: bytes
    score: float
    matched_terms: tuple[str, ...] = ()

    @property
    def id(self) -> tuple[str, str]:
        """Order among equal scores, and identity across legs."""
        return self.project, self.key


@dataclass(frozen=True, slots=True)
class ScorePart:
    """What one leg contributed."""

    leg: str
    rank: int
    score: float
    contribution: float
    matched_terms: tuple[str, ...] = ()


class Ranked(NamedTuple):
    """A fused document: the candidate that each part of its score found, in the order of the parts."""

    fused: Fused
    found: tuple[Candidate, ...]

    @property
    def candidate(self) -> Candidate:
        return self.found[0]

    @property
    def score(self) -> float:
        return self.fused.score

    @property
    def parts(self) -> tuple[ScorePart, ...]:
        """What each leg contributed; made when asked for, since only a page of a ranking is shown."""
        return tuple(
            ScorePart(part.leg, part.rank, part.score, part.share, found.matched_terms)
            for part, found in zip(self.fused.parts, self.found, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk with its text and all places of chunks with the same text, its own first."""

    key: str
    kind: int
    language: str
    title: str
    qualified_name: str
    text: str
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Hit:
    chunk: Chunk
    score: float
    parts: tuple[ScorePart, ...]
    text: str
    text_truncated: bool


@dataclass(frozen=True, slots=True)
class LegReport:
    """How a leg went in a project. ``state`` is ready, degraded, broken or absent."""

    leg: str
    project: str
    state: str
    reason: str = ""
    remedy: str = ""
    candidates: int = 0


@dataclass(frozen=True, slots=True)
class Hint:
    kind: str
    message: str
    terms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Hits of one page, and all that explains them. ``more`` says that a next page has hits."""

    hits: tuple[Hit, ...]
    more: bool
    scopes: tuple[Scope, ...]
    legs: tuple[LegReport, ...]
    hints: tuple[Hint, ...]
    preset: str
    steps_us: Mapping[str, int]
    total_us: int


@dataclass(frozen=True, slots=True)
class Symbol:
    qualified_name: str
    name: str
    kind: str
    signature: str
    summary: str
    language: str
    place: Place


@dataclass(frozen=True, slots=True)
class Reference:
    source_symbol: str
    kind: int
    target_symbol: str
    resolved: bool
    line_text: str
    place: Place


@dataclass(slots=True)
class Legs:
    """What the legs of a query have found so far, and how they went."""

    found: dict[str, Sequence[Candidate]] = field(default_factory=dict)
    reports: list[LegReport] = field(default_factory=list)
    hints: list[Hint] = field(default_factory=list)
