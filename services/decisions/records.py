"""The values of this service: a mined decision, what it says of others, and what the corpus makes of that.

The path is a decision's identity; its number is an attribute, because numbers collide and change.
Lines are 1-based and inclusive, and count as CommonMark does: LF, CR LF and a lone CR end a line.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Where a decision stands, by its own words."""

    UNSPECIFIED = "unspecified"
    PROPOSED = "proposed"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    DEPRECATED = "deprecated"
    SUPERSEDED = "superseded"


class SectionKind(StrEnum):
    """What a section of a record is for; a heading that says nothing takes the kind of the section around it."""

    PREAMBLE = "preamble"
    STATUS = "status"
    CONTEXT = "context"
    DRIVERS = "drivers"
    OPTIONS = "options"
    DECISION = "decision"
    RATIONALE = "rationale"
    CONSEQUENCES = "consequences"
    CONFIRMATION = "confirmation"
    CHANGELOG = "changelog"
    LINKS = "links"
    METADATA = "metadata"
    OTHER = "other"


class RelationKind(StrEnum):
    """How one decision stands to another."""

    SUPERSEDES = "supersedes"
    SUPERSEDED_BY = "superseded_by"
    AMENDS = "amends"
    AMENDED_BY = "amended_by"
    RELATES_TO = "relates_to"

    @property
    def inverse(self) -> RelationKind:
        """Return the same relation seen from its other end."""
        return _INVERSE[self]


_INVERSE = {
    RelationKind.SUPERSEDES: RelationKind.SUPERSEDED_BY,
    RelationKind.SUPERSEDED_BY: RelationKind.SUPERSEDES,
    RelationKind.AMENDS: RelationKind.AMENDED_BY,
    RelationKind.AMENDED_BY: RelationKind.AMENDS,
    RelationKind.RELATES_TO: RelationKind.RELATES_TO,
}


class MentionKind(StrEnum):
    """What a record names besides other decisions."""

    FILE = "file"
    SYMBOL = "symbol"


class Resolution(StrEnum):
    """Whether the target of a relation was found in the corpus."""

    RESOLVED = "resolved"
    AMBIGUOUS = "ambiguous"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with the lines that are its own (up to the next heading of any level).

    ``text`` is exactly the lines ``line_start`` to ``line_end`` of the file, heading included. Sections follow one
    another without overlap; ``heading`` is empty for lines before the first heading.
    """

    kind: SectionKind
    heading: str
    level: int
    line_start: int
    line_end: int
    text: str


@dataclass(frozen=True, slots=True)
class Relation:
    """What a record says of another one, as written: at least one of ``number``, ``target_path``, ``title`` is set."""

    kind: RelationKind
    raw: str
    line: int
    number: int | None = None
    target_path: str = ""
    title: str = ""
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Mention:
    """A file or a symbol that a record names; ``text`` as written, or relative to the project's root for a link."""

    kind: MentionKind
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision record.

    ``status`` follows from ``status_raw`` alone; ``implemented`` is true where the status text says so.
    ``date`` is the day of the decision (never of a draft).
    """

    path: str
    number: int | None
    title: str
    status: Status
    status_raw: str
    implemented: bool
    date: datetime.date | None
    deciders: tuple[str, ...]
    sections: tuple[Section, ...]
    relations: tuple[Relation, ...]
    mentions: tuple[Mention, ...]
    line_end: int


@dataclass(frozen=True, slots=True)
class Link:
    """A relation placed in the corpus: an edge from ``source`` to ``target``, or the report that there is none.

    ``target`` is empty unless ``resolution`` is RESOLVED; ``candidates`` are the paths between which an AMBIGUOUS
    target could not be told. ``derived`` marks the edge that only the other record states.
    """

    source: str
    kind: RelationKind
    target: str
    resolution: Resolution
    raw: str
    line: int
    partial: bool = False
    derived: bool = False
    candidates: tuple[str, ...] = ()
