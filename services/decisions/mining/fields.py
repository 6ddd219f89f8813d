"""Labelled values in the text: ``Status: x``, ``* **Date**: y``, table rows, and reStructuredText fields.

Only labels that say something about a decision count; any other line of the form ``word: text`` is prose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from services.decisions.mining.document import Document, Field

STATUS_LABELS = ("status", "state", "decision status", "adr status", "current status")
# In order of trust. A day of creation or proposal is the day of a draft, not of the decision.
DATE_LABELS = (
    "date",
    "decision date",
    "date decided",
    "decided",
    "decided on",
    "date of decision",
    "accepted",
    "accepted on",
    "date accepted",
    "accepted date",
    "approved",
    "approved on",
    "last updated",
    "updated",
    "last modified",
    "last revised",
)
DECIDER_LABELS = (
    "deciders",
    "decider",
    "decision makers",
    "decision maker",
    "decision-makers",
    "decision-maker",
    "decided by",
    "approvers",
    "approver",
    "authors",
    "author",
    "author(s)",
    "owner",
    "owners",
    "written by",
    "participants",
)
_RELATION = re.compile(
    r"\b(?:super[sc]ede[sd]?|replace[sd]?|obsolete[sd]?|amend(?:s|ed)?|extend(?:s|ed)?|relate[sd]?|"
    r"depends on|builds on|see also|follows|(?:hardened|renamed|refined|clarified) by)\b"
)
_KNOWN = frozenset(STATUS_LABELS + DATE_LABELS + DECIDER_LABELS)
# Labels that end the value before them, and say nothing themselves.
_OTHER = re.compile(
    r"^(?:consulted|informed|tags?|(?:technical )?story|tracking(?: issue)?|issue|pr|(?:date )?created|date proposed|"
    r"proposed(?: date)?|version|categor(?:y|ies)|scope|impact|group|team|revision|discussion|jira(?: ticket)?|"
    r"tickets?|stakeholders|implementation|reviewers?|links|references|source|area|type|components?|context|id|adr|title)$"
)
# Labels that are values just as well: "| Status | Approved |" is one pair, not two columns.
_ALSO_VALUES = frozenset(("accepted", "approved", "decided", "updated"))

_LINE = re.compile(
    r"^\s{0,12}(?:>\s*){0,4}(?:[-*+]\s+)?[*_`]{0,3}\s?([A-Za-z][A-Za-z /()-]{0,40}?)\s{0,3}"
    r"(?:[*_`]{0,3}\s{0,3}[:：]\s{0,3}[*_`]{0,3}|[*_]{2,3}\s{1,3}[-–—](?=\s))(.*)$"
)
_RST_FIELD = re.compile(r"^:([A-Za-z][^:`]{0,40}):(?:\s+(.*))?$")
_BARE_DATE = re.compile(r"^\s*[-*+]?\s*[*_]{0,3}(date)[*_]{0,3}\s+(\d.*)$", re.IGNORECASE)
_NEXT_FIELD = re.compile(
    r"\s+[|·•;,/]?\s*[*_]{0,3}(status|date|decided|decision date|deciders?|authors?|owners?|supersedes|superseded by)"
    r"[*_]{0,3}:",
    re.IGNORECASE,
)
_RULER = re.compile(r"^\s*\|?\s*:?-{2,}[\s|:-]*$")
_LIST_ROW = re.compile(r"^\s*\*\s+-\s+(\S.*)$")
_LIST_CELL = re.compile(r"^\s+-\s+(\S.*)$")
# Lines beyond this are data or an attack; fields of records are short.
_MAX_LINE_CHARS = 4000
_MAX_FIELDS_OF_LINE = 6
_MARKUP = re.compile(r"[*_`]+")
_BREAK = re.compile(r"(?:\s*<br\s*/?>|\\|\s{2,})$")


def known(label: str) -> bool:
    """Return whether ``label`` (lower case) says something about a decision."""
    return label in _KNOWN or is_relation(label)


def is_relation(label: str) -> bool:
    """Return whether ``label`` names a relation to other records."""
    return bool(_RELATION.search(label))


def read_fields(document: Document, start: int, end: int) -> list[Field]:
    """Return the labelled values in lines [start, end), in order."""
    fields: list[Field] = []
    rows: list[tuple[int, list[str]]] = []
    for block in document.blocks(start, end):
        opened: Field | None = None
        for offset, line in enumerate(block.lines):
            number = block.line + offset
            if line.lstrip().startswith("|"):
                rows.append((number, _cells(line)))
                opened = None
                continue
            found = list(_line_fields(line, number))
            if found:
                fields.extend(field for field in found if known(field.label))
                opened = fields[-1] if known(found[-1].label) else None
            elif _RST_FIELD.match(line):
                opened = None
            elif opened is not None and fields:
                continued = _BREAK.sub("", line.strip().lstrip("> "))
                opened = Field(opened.label, f"{opened.value}\n{continued}".strip(), opened.line)
                fields[-1] = opened
    fields.extend(_table_fields(rows))
    fields.extend(_list_table_fields(document, start, end))
    return sorted((_balanced(field) for field in fields), key=lambda field: field.line)


def plain_label(text: str) -> str:
    """Return ``text`` as a label: lower case, without markup."""
    return _MARKUP.sub("", text).strip().strip(":").strip().lower()


def _line_fields(line: str, number: int) -> Iterator[Field]:
    rest = line[:_MAX_LINE_CHARS]
    for _ in range(_MAX_FIELDS_OF_LINE):
        match = _RST_FIELD.match(rest) or _BARE_DATE.match(rest) or _LINE.match(rest)
        if match is None:
            return
        label = plain_label(match.group(1))
        if not known(label) and not _OTHER.match(label):
            return
        value = _BREAK.sub("", match.group(2) or "").strip()
        following = _NEXT_FIELD.search(" " + value)
        if following is None:
            yield Field(label, value, number)
            return
        yield Field(label, value[: max(0, following.start() - 1)].strip(), number)
        rest = value[following.start(1) - 1 :]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _table_fields(rows: list[tuple[int, list[str]]]) -> Iterator[Field]:
    for index, (number, cells) in enumerate(rows):
        labels = [plain_label(cell) for cell in cells]
        across = sum(known(label) and label not in _ALSO_VALUES for label in labels)
        ruled = index + 1 < len(rows) and _RULER.match("|".join(rows[index + 1][1]))
        if across >= 2 and ruled and index + 2 < len(rows):
            line, values = rows[index + 2]
            for label, value in zip(labels, values, strict=False):
                if known(label):
                    yield Field(label, value, line)
        elif len(cells) >= 2 and known(labels[0]):
            yield Field(labels[0], cells[1], number)


def _list_table_fields(document: Document, start: int, end: int) -> Iterator[Field]:
    for number in range(start, end - 1):
        row = _LIST_ROW.match(document.prose[number])
        cell = _LIST_CELL.match(document.prose[number + 1]) if row else None
        if row and cell and known(plain_label(row.group(1))):
            yield Field(plain_label(row.group(1)), cell.group(1).strip(), number)


def _balanced(field: Field) -> Field:
    """Take away emphasis that was opened before the label (``**Status: accepted**``)."""
    value = field.value
    for mark in ("**", "__"):
        if value.count(mark) % 2 and value.endswith(mark):
            value = value[: -len(mark)].rstrip()
    return Field(field.label, value, field.line) if value != field.value else field
