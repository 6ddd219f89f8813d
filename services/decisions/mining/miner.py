"""The miner: is this file a decision record, and what does it say?"""

from __future__ import annotations

import datetime
import posixpath
import re
from collections.abc import Sequence

from services.decisions.mining import fields as labels
from services.decisions.mining import naming
from services.decisions.mining.dates import find_date, find_dates
from services.decisions.mining.document import Block, Document, Field, Heading
from services.decisions.mining.fields import read_fields
from services.decisions.mining.markdown import read_markdown
from services.decisions.mining.mentions import read_mentions
from services.decisions.mining.relations import field_relations, prose_relations, status_relations, title_relations
from services.decisions.mining.rst import read_rst
from services.decisions.mining.sections import decides, inline_value, plain_heading, read_sections, section_kind
from services.decisions.mining.status import read_status, says_implemented, status_words
from services.decisions.records import Decision, Relation, RelationKind, Section, SectionKind, Status

# A record is a page or two; a file beyond this is something else, and is left to the search over documents.
MAX_CHARS = 500_000

_HINT = re.compile(r"^\W{0,6}(?:\w+ ){0,3}decisions?\b|^\W{0,6}considered options", re.IGNORECASE | re.MULTILINE)
_CHANGE_WORDS: dict[Status, str] = {
    Status.ACCEPTED: r"accepted|approved|adopted|ratified",
    Status.REJECTED: r"rejected|rejection|declined|reverted|withdrawn|abandoned",
    Status.DEPRECATED: r"deprecated|retired|obsoleted?",
    Status.SUPERSEDED: r"superseded|superceded|replaced by",
}
_ENDED = r"(?=\W*(?:$|\n|[.,;:(@]|\b(?:by|in|as|and|after|with|on|for|due|because)\b))"
_STATEMENT = re.compile(
    r"\b(?:status|implemented|amend(?:s|ed)|super[sc]ede[sd]|replace[sd] by|deprecated)\b", re.IGNORECASE
)
_BULLET = re.compile(r"^\s*(?:[-*+]|\d{1,3}[.)])\s+")
_LIST_MARK = re.compile(r"^[\s>]*(?:[-*+]\s+|\d{1,3}[.)]\s+)?")
_NAMES = re.compile(r"\s*(?:,|;|\n|<br\s*/?>|&|\band\b)\s*")
_NAME_LINK = re.compile(r"\[([^\[\]]{1,200})\](?:\([^()\s]{0,500}\))?")
_BREAK = re.compile(r"(?:\s*<br\s*/?>|\\)$")
_STRUCTURE = frozenset(
    (SectionKind.STATUS, SectionKind.CONTEXT, SectionKind.DECISION, SectionKind.CONSEQUENCES, SectionKind.OPTIONS)
)
# A status is a line or two; the whole section is kept as a section.
_MAX_STATUS_CHARS = 2000
_MAX_STATEMENT_CHARS = 300
_FIRST_WORDS_CHARS = 80


def candidate(path: str) -> bool:
    """Return whether a file can be a decision record at all: by its extension, cheaply and generously."""
    return posixpath.splitext(path)[1].lower() in naming.EXTENSIONS


def mine(path: str, text: str) -> Decision | None:
    """Return the decision that a file records, or None where it is a template, an index, a guide or anything else.

    ``path`` is relative to the project's root, with slashes. Never raises, whatever the text.
    """
    if not candidate(path) or len(text) > MAX_CHARS:
        return None
    name = naming.read_name(path)
    if name.excluded or not (name.expected or _HINT.search(text)):
        return None
    document = read_rst(text) if path.lower().endswith((".rst", ".rest")) else read_markdown(text)
    if not any(line.strip() for line in document.lines):
        return None
    first = document.headings[0] if document.headings else None
    titled = first is not None and naming.usable(first.title) and (first.level == 1 or not _decisive(first, document))
    heading = first.title if first is not None and titled else ""
    title, title_number = naming.read_title(heading, name)
    if heading and naming.is_placeholder(title, heading):
        return None
    title_line = first.start if first is not None and titled else -1
    sections = read_sections(document, title_line)
    record = _Record(document, sections, title_line)
    if not _recognised(name, record, title_number):
        return None
    status_raw, status_line = record.status()
    status_raw = status_raw[:_MAX_STATUS_CHARS]
    status = read_status(status_raw)
    title = title or _field(document.front, ("title",)) or naming.title_of_stem(name)
    return Decision(
        path=path,
        number=name.number if name.number is not None else title_number,
        title=title,
        status=status,
        status_raw=status_raw,
        implemented=says_implemented(status_raw),
        date=record.date(status, status_raw),
        deciders=record.deciders(),
        sections=sections,
        relations=_relations(record, heading, status_raw, status_line),
        mentions=read_mentions(document, path),
        line_end=len(document.lines),
    )


class _Record:
    """The parts of one record from which its attributes are read."""

    def __init__(self, document: Document, sections: Sequence[Section], title_line: int) -> None:
        self.document = document
        self.sections = sections
        self.fields = list(document.front)
        for section in sections:
            before_text = section.kind is SectionKind.PREAMBLE
            if before_text or (section.kind in (SectionKind.METADATA, SectionKind.STATUS) and section.level > 0):
                self.fields.extend(read_fields(document, section.line_start - 1, section.line_end))
            if section.line_start - 1 != title_line:
                label, value = inline_value(section.heading)
                if label:
                    self.fields.append(Field(label, value, section.line_start - 1))

    def kinds(self) -> set[SectionKind]:
        found = {section.kind for section in self.sections if section.level > 0}
        if _field(self.fields, labels.STATUS_LABELS):
            found.add(SectionKind.STATUS)
        return found

    def status(self) -> tuple[str, int]:
        """Return the text of the status and its 1-based line; empty where there is none."""
        for field in self.fields:
            if field.label in labels.STATUS_LABELS and field.value.strip():
                return field.value.strip(), field.line + 1
        for section, following in zip(self.sections, (*self.sections[1:], None), strict=True):
            if section.level and section_kind(section.heading) is SectionKind.STATUS:
                found = self._status_text(section)
                if not found[0] and following is not None and following.level > section.level:
                    # The status as a heading of its own ("Status", below it "Rejected April 2022").
                    return (following.heading, following.line_start) if status_words(following.heading) else found
                return found
        return "", 0

    def _status_text(self, section: Section) -> tuple[str, int]:
        blocks = list(self.document.blocks(section.line_start, section.line_end))
        told = [block for block in blocks if not _quoted(block)] or blocks
        told = [block for block in told if block.text.strip(" -=_*|\n")]
        if not told:
            return "", 0
        first = told[0]
        kept = [_block_text(first)]
        listed = bool(_BULLET.match(first.lines[0]))
        for block in told[1:]:
            text = _block_text(block)
            if (listed and bool(_BULLET.match(block.lines[0])) and status_words(text[:_FIRST_WORDS_CHARS])) or _states(
                text
            ):
                kept.append(text)
            else:
                listed = False
        return "\n".join(kept), first.line + 1

    def date(self, status: Status, status_raw: str) -> datetime.date | None:
        for label in labels.DATE_LABELS:
            for field in self.fields:
                if field.label == label:
                    day = find_date(field.value)
                    if day is not None:
                        return day
        for section in self.sections:
            if plain_heading(section.heading) in labels.DATE_LABELS:
                day = find_date("\n".join(self.document.prose[section.line_start - 1 : section.line_end]))
                if day is not None:
                    return day
        return _date_beside(status, status_raw) or self._date_of_change(status, status_raw)

    def _date_of_change(self, status: Status, status_raw: str) -> datetime.date | None:
        """Return the day of the latest change that brought the current status."""
        words = _CHANGE_WORDS.get(status)
        if words is None:
            return None
        if status is Status.ACCEPTED and says_implemented(status_raw):
            words = r"implemented"
        pattern = re.compile(rf"\b(?:{words})\b{_ENDED}", re.IGNORECASE)
        days: list[datetime.date] = []
        for section in self.sections:
            if section.kind is not SectionKind.CHANGELOG:
                continue
            for entry in _entries(self.document, section):
                dated = find_dates(entry, limit=1)
                if dated and dated[0][0] <= 12 and pattern.search(entry):
                    days.append(dated[0][1])
        return max(days, default=None)

    def deciders(self) -> tuple[str, ...]:
        for label in labels.DECIDER_LABELS:
            value = _field(self.fields, (label,))
            if value:
                return _people(value)
        for section in self.sections:
            if section.level and plain_heading(section.heading) in labels.DECIDER_LABELS:
                lines = self.document.prose[section.line_start : section.line_end]
                return _people("\n".join(_LIST_MARK.sub("", line) for line in lines))
        return ()


def _recognised(name: naming.Name, record: _Record, title_number: int | None) -> bool:
    """Return whether place, name and structure together make a record.

    By place and name a numbered file is one, however little it holds. Any other needs the sections of a record, and
    outside the folders where records are kept, more of them.
    """
    if name.expected:
        return True
    kinds = record.kinds() & _STRUCTURE
    decided = any(decides(section.heading) for section in record.sections)
    if name.in_folder:
        return len(kinds) >= 2 and (decided or SectionKind.STATUS in kinds)
    if title_number is not None and decided:
        return len(kinds) >= 2
    weighed = kinds & {SectionKind.CONSEQUENCES, SectionKind.OPTIONS}
    return decided and SectionKind.CONTEXT in kinds and bool(weighed) and len(kinds) >= 3


def _relations(record: _Record, heading: str, status_raw: str, status_line: int) -> tuple[Relation, ...]:
    document = record.document
    found: list[Relation] = []
    first = document.headings[0] if document.headings else None
    if heading and first is not None:
        found.extend(title_relations(heading, first.start + 1, document.targets))
    if status_raw and read_status(status_raw) is not Status.UNSPECIFIED:
        found.extend(status_relations(status_raw, status_line, document.targets))
    for field in record.fields:
        if labels.is_relation(field.label):
            found.extend(field_relations(field, document.targets))
    for section in record.sections:
        if section.kind not in (SectionKind.STATUS, SectionKind.OPTIONS):
            found.extend(prose_relations(document, section.line_start - 1, section.line_end))
    return _distinct(found)


def _distinct(relations: Sequence[Relation]) -> tuple[Relation, ...]:
    seen: set[tuple[RelationKind, int | None, str, str]] = set()
    kept: list[Relation] = []
    for relation in relations:
        target = relation.target_path.split("#")[0]
        key = (relation.kind, relation.number, target, "" if target or relation.number is not None else relation.title)
        if key not in seen:
            seen.add(key)
            kept.append(relation)
    return tuple(sorted(kept, key=lambda relation: relation.line))


def _decisive(first: Heading, document: Document) -> bool:
    """Return whether a first heading below level 1 opens the record's first section rather than being its title."""
    return section_kind(first.title) is not SectionKind.OTHER and any(
        heading.level == first.level for heading in document.headings[1:]
    )


def _date_beside(status: Status, status_raw: str) -> datetime.date | None:
    """Return the day in the text of a status: of several, the one beside the word for that status."""
    days = find_dates(re.sub(r"\]\([^()\s]{0,500}\)", "]", status_raw))
    if len(days) < 2:
        return days[0][1] if days else None
    words = [word for word, found in status_words(status_raw) if found is status]
    beside = [day for offset, day in days if any(abs(word - offset) < 30 for word in words)]
    return max(beside, default=days[0][1])


def _entries(document: Document, section: Section) -> list[str]:
    """Return the entries of a changelog: a line that begins with a day opens one, and others continue it."""
    entries: list[str] = []
    for number in range(section.line_start, section.line_end):
        line = document.prose[number].strip()
        dated = find_dates(line, limit=1)
        if dated and dated[0][0] <= 12:
            entries.append(line)
        elif line and entries:
            entries[-1] += "\n" + line
    return entries


def _states(text: str) -> bool:
    """Return whether a further paragraph of a status section adds to the status."""
    if len(text) > _MAX_STATEMENT_CHARS:
        return False
    words = status_words(text)
    return bool(words and words[0][0] <= 4) or bool(_STATEMENT.search(text[:_FIRST_WORDS_CHARS]))


def _quoted(block: Block) -> bool:
    return all(line.lstrip().startswith(">") for line in block.lines)


def _block_text(block: Block) -> str:
    lines = [_BREAK.sub("", line.strip().lstrip(">").strip()) for line in block.lines]
    lines[0] = _BULLET.sub("", lines[0]) if not lines[0].startswith("[") else lines[0]
    return "\n".join(lines).strip()


def _field(fields: Sequence[Field], wanted: Sequence[str]) -> str:
    return next((field.value for label in wanted for field in fields if field.label == label and field.value), "")


def _people(value: str) -> tuple[str, ...]:
    if "{" in value or re.match(r"^\W*\[?list\b", value, re.IGNORECASE):
        return ()
    names = (name.strip(" *_`-[]\t") for name in _NAMES.split(_NAME_LINK.sub(r"\1", value)))
    return tuple(dict.fromkeys(name for name in names if name))
