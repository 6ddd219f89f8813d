"""Making an answer of what was found: records with their passages, ranked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from services.core.snapshots import Scope
from services.decisions.clients import FoundPassage
from services.decisions.corpus import Corpus, Record
from services.decisions.mining.document import split_lines
from services.decisions.records import Section, SectionKind
from services.decisions.subjects import SELF, Match

MENTION = "mention"

_PASSAGES_PER_REASON = 3
# A section that is longer than this is shown around the line that names the subject.
_PASSAGE_LINES = 40
_LINES_BEFORE = 10
_HEAD = frozenset({SectionKind.STATUS, SectionKind.PREAMBLE, SectionKind.METADATA})
_LONG_WORDS = 40
_SHOWN_FOR_ITSELF = (SectionKind.DECISION, SectionKind.RATIONALE, SectionKind.CONTEXT, SectionKind.PREAMBLE)


@dataclass(frozen=True, slots=True)
class Passage:
    """Lines of a record. ``text`` is exactly these lines, unless it was cut to keep an answer short."""

    start_line: int
    end_line: int
    title: str
    text: str
    score: float
    legs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """A record that answers, with its best passages."""

    scope: Scope
    corpus: Corpus
    record: Record
    passages: tuple[Passage, ...]
    # How closely the record names what was asked for (``subjects``); 0 when it does not.
    closeness: int

    @property
    def score(self) -> float:
        """Score of the best passage."""
        return max(passage.score for passage in self.passages)

    @property
    def identity(self) -> tuple[str, str, str]:
        """Order among equals, by bytes as all keys are (every part compares as its UTF-8 does)."""
        return self.scope.project, self.record.key.package, self.record.key.path


def found_reasons(scope: Scope, corpus: Corpus, found: Iterable[FoundPassage]) -> dict[Record, Reason]:
    """Group what search found in a project by record. Chunks of files that are no record any more are left out."""
    passages: defaultdict[Record, list[Passage]] = defaultdict(list)
    for one in found:
        record = corpus.get(one.file) if one.project == scope.project else None
        if record is not None:
            title = _title(record, one.start_line)
            passages[record].append(Passage(one.start_line, one.end_line, title, one.text, one.score, one.legs))
    boilerplate = _boilerplate(passages)
    telling = {
        record: tuple(one for one in own if one.text not in boilerplate and _tells(record, one))
        for record, own in passages.items()
    }
    return {record: Reason(scope, corpus, record, own, 0) for record, own in telling.items() if own}


def _boilerplate(passages: Mapping[Record, Sequence[Passage]]) -> frozenset[str]:
    """Return the texts that stand in records of several titles: they speak for none of them. Copies have one title."""
    titles: defaultdict[str, set[str]] = defaultdict(set)
    for record, own in passages.items():
        for passage in own:
            titles[passage.text].add(record.decision.title)
    return frozenset(text for text, of in titles.items() if len(of) > 1)


def _tells(record: Record, passage: Passage) -> bool:
    """Tell whether a passage says more than title and status: short sections that are near to every question.

    They tell where they are long, and in a record that has nothing else.
    """
    sections = record.decision.sections
    touched = [one for one in sections if one.line_start <= passage.end_line and one.line_end >= passage.start_line]
    if not touched or any(one.kind not in _HEAD for one in touched):
        return True
    return len(passage.text.split()) >= _LONG_WORDS or all(one.kind in _HEAD for one in sections)


def with_mentions(reason: Reason, matches: Sequence[Match], text: str, best_score: float) -> Reason:
    """Return a reason with the lines that name the subject as passages, above everything that search found.

    ``matches`` come closest first; ``best_score`` is the best of search, 0 when it found nothing.
    """
    lines = split_lines(text)
    passages = list(reason.passages)
    for match in matches[:_PASSAGES_PER_REASON]:
        score = max(best_score, 1.0) + match.closeness
        line = _telling_line(reason.record) if match.closeness == SELF else match.line
        around = next((one for one in passages if one.start_line <= line <= one.end_line), None)
        if around is not None:
            passages.remove(around)
            legs = (*(leg for leg in around.legs if leg != MENTION), MENTION)
            passages.append(replace(around, score=max(score, around.score), legs=legs))
        else:
            passages.append(_passage(reason.record, line, lines, score))
    return replace(reason, passages=tuple(passages), closeness=matches[0].closeness)


def ranked(reasons: Iterable[Reason]) -> list[Reason]:
    """Return the reasons, best first, each with its best passages only.

    Records that name the subject come first, then by score. A record that was superseded comes after its successor when
    that answers too: what holds now is told before what held once.
    """
    own = {}
    for reason in sorted(reasons, key=lambda one: (-one.closeness, -one.score, one.identity)):
        passages = sorted(reason.passages, key=lambda one: (-one.score, one.start_line, one.end_line))
        own[reason.identity] = replace(reason, passages=tuple(passages[:_PASSAGES_PER_REASON]))
    ordered: dict[tuple[str, str, str], Reason] = {}

    def place(reason: Reason, waiting: frozenset[tuple[str, str, str]]) -> None:
        for successor in reason.corpus.successors(reason.record):
            identity = (reason.scope.project, successor.key.package, successor.key.path)
            # Records that claim to replace each other must not wait for each other.
            if identity in own and identity not in ordered and identity not in waiting:
                place(own[identity], waiting | {identity})
        ordered.setdefault(reason.identity, reason)

    for reason in own.values():
        if reason.identity not in ordered:
            place(reason, frozenset({reason.identity}))
    return list(ordered.values())


def within_budget(reasons: Sequence[Reason], budget_chars: int) -> tuple[list[Reason], int]:
    """Cut texts at a line where they exceed the budget together; return how many were cut besides."""
    left, cut = budget_chars, 0

    def shown(passage: Passage) -> Passage:
        nonlocal left, cut
        text = passage.text
        if len(text) > left:
            text = text[:left].rpartition("\n")[0]
            cut += 1
        left -= len(text)
        return replace(passage, text=text)

    return [replace(one, passages=tuple(map(shown, one.passages))) for one in reasons], cut


def section_texts(record: Record, text: str) -> Iterable[str]:
    """Yield the lines of each section of a record, the heading's among them."""
    lines = split_lines(text)
    for section in record.decision.sections:
        yield "\n".join(lines[section.line_start - 1 : section.line_end])


def _telling_line(record: Record) -> int:
    """Return where to begin to read a record that was asked for by name."""
    sections = record.decision.sections
    for kind in _SHOWN_FOR_ITSELF:
        for section in sections:
            if section.kind is kind:
                return section.line_start
    return 1


def _passage(record: Record, line: int, lines: Sequence[str], score: float) -> Passage:
    """Return the section around a line, or the part of it that is near the line."""
    section = _section(record, line)
    start, end = (section.line_start, section.line_end) if section else (line, line)
    if end - start >= _PASSAGE_LINES:
        start = max(start, line - _LINES_BEFORE)
        end = min(end, start + _PASSAGE_LINES - 1)
    text = "\n".join(lines[start - 1 : end])
    return Passage(start, end, _title(record, line), text, score, (MENTION,))


def _section(record: Record, line: int) -> Section | None:
    """Return the section that a line of a record is in."""
    return next((one for one in record.decision.sections if one.line_start <= line <= one.line_end), None)


def _title(record: Record, line: int) -> str:
    """Return the headings above a line, its own section's last."""
    above: list[tuple[int, str]] = []
    for section in record.decision.sections:
        if section.level:
            above = [*(one for one in above if one[0] < section.level), (section.level, section.heading)]
        if section.line_start <= line <= section.line_end:
            break
    return " > ".join(heading for _, heading in above if heading) or record.decision.title
