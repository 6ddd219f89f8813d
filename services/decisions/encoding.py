"""A mined record as the JSON that its row keeps, and back.

What the columns of the row have (path, number, title, status) is not repeated, and no text of sections is kept: it is
read from the file at its generation. Equal records give equal JSON, by which publishing tells that nothing changed.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.decisions.mining.document import split_lines
from services.decisions.records import (
    Decision,
    Mention,
    MentionKind,
    Relation,
    RelationKind,
    Section,
    SectionKind,
    Status,
)

# The numbers of undercroft.decisions.v1.DecisionStatus.
STATUS_NUMBERS: Mapping[Status, int] = {
    Status.UNSPECIFIED: 0,
    Status.PROPOSED: 1,
    Status.ACCEPTED: 2,
    Status.REJECTED: 3,
    Status.DEPRECATED: 4,
    Status.SUPERSEDED: 5,
}
_STATUSES = {number: status for status, number in STATUS_NUMBERS.items()}

JsonValue = str | int | bool | None | list["JsonValue"] | dict[str, "JsonValue"]


@dataclass(frozen=True, slots=True)
class EncodedDecision:
    """A decision as its row has it."""

    path: str
    number: int | None
    title: str
    status: int
    record: Mapping[str, JsonValue]


def encode(decision: Decision, text: str) -> EncodedDecision:
    """Return the row of a decision that was mined from ``text``."""
    last_line = line_count(text)
    return EncodedDecision(
        path=decision.path,
        number=decision.number,
        title=_storable(decision.title),
        status=STATUS_NUMBERS[decision.status],
        record={
            "status_raw": _storable(decision.status_raw),
            "implemented": decision.implemented,
            "date": decision.date.isoformat() if decision.date else None,
            "deciders": [_storable(name) for name in decision.deciders],
            "line_end": min(decision.line_end, last_line),
            "sections": [_section(section, last_line) for section in decision.sections],
            "relations": [_relation(relation) for relation in decision.relations],
            "mentions": [
                {"kind": mention.kind.value, "text": _storable(mention.text), "line": mention.line}
                for mention in decision.mentions
            ],
        },
    )


def decode(path: str, number: int | None, title: str, status: int, record: Mapping[str, Any]) -> Decision:
    """Return the decision of a row. Its sections have no text."""
    return Decision(
        path=path,
        number=number,
        title=title,
        status=_STATUSES[status],
        status_raw=record["status_raw"],
        implemented=record["implemented"],
        date=datetime.date.fromisoformat(record["date"]) if record["date"] else None,
        deciders=tuple(record["deciders"]),
        sections=tuple(
            Section(SectionKind(one["kind"]), one["heading"], one["level"], one["line_start"], one["line_end"], "")
            for one in record["sections"]
        ),
        relations=tuple(
            Relation(
                kind=RelationKind(one["kind"]),
                raw=one["raw"],
                line=one["line"],
                number=one["number"],
                target_path=one["target_path"],
                title=one["title"],
                partial=one["partial"],
            )
            for one in record["relations"]
        ),
        mentions=tuple(Mention(MentionKind(one["kind"]), one["text"], one["line"]) for one in record["mentions"]),
        line_end=record["line_end"],
    )


def line_count(text: str) -> int:
    """Return the number of lines, at least 1. A line end at the end of the text opens no further line."""
    lines = split_lines(text)
    return len(lines) - 1 if len(lines) > 1 and not lines[-1] else len(lines)


def _section(section: Section, last_line: int) -> JsonValue:
    return {
        "kind": section.kind.value,
        "heading": _storable(section.heading),
        "level": section.level,
        "line_start": section.line_start,
        "line_end": min(section.line_end, last_line),
    }


def _relation(relation: Relation) -> JsonValue:
    return {
        "kind": relation.kind.value,
        "raw": _storable(relation.raw),
        "line": relation.line,
        "number": relation.number,
        "target_path": _storable(relation.target_path),
        "title": _storable(relation.title),
        "partial": relation.partial,
    }


def _storable(text: str) -> str:
    # Escapes in front matter spell what no file holds and Postgres cannot store: NUL and lone surrogates.
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
