"""From the places of keys to chunks and symbols.

A table of TOML or INI is a chunk; a document of YAML or JSON is one where it fits, else each of its keys that goes over
lines, and so on below. What is left of an owner, its short keys, are chunks under the owner's name. A comment right
above a key belongs to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from services.ingest.chunks import (
    Budget,
    ChunkKind,
    Extraction,
    Note,
    Symbol,
    SymbolKind,
    Unit,
    bounded,
    structural_key,
)

MAX_DEPTH = 8  # keys below are no chunks of their own, only places to cut at
MAX_SYMBOLS = 2_000
_SYMBOL_DEPTH = 2
_OWN_CHUNK_LINES = 4  # a shorter value stays with its neighbours
_TEXT_CHARACTERS = 400
_RANK_NONE = 100


@dataclass(slots=True)
class Entry:
    """A key with its value, or a table; lines count from 1. ``last_line`` is the last that is surely its own."""

    names: tuple[str, ...]
    line: int
    last_line: int
    depth: int  # 1 at the top of its document
    is_table: bool = False  # set off by a header of its own
    children: list[Entry] = field(default_factory=list)
    start_line: int = 0  # with the comments above; by ``place``
    end_line: int = 0


@dataclass(slots=True)
class Scan:
    """What a scanner found: the root, which is the file, and places to cut at by line number with their depth."""

    root: Entry
    cuts: dict[int, int]
    comment: str  # what a line of comment begins with, after spaces
    is_divided: bool = False  # whether the file is divided even if it fits
    notes: list[Note] = field(default_factory=list)


def root_entry(lines: Sequence[str]) -> Entry:
    return Entry((), 0, len(lines), 0, start_line=1, end_line=len(lines))


def extract_entries(path: str, scan: Scan, lines: Sequence[str], *, language: str, budget: Budget) -> Extraction:
    """Cut a scanned file into chunks, and list its keys of the upper levels as symbols."""
    marks = tuple(scan.comment.split())
    _place(scan.root, lines, marks)
    symbols, capped = _symbols(path, scan.root, lines)
    units = _joined(_Partition(path, lines, budget, scan.is_divided).divide(scan.root), lines)
    ranks = _ranks(scan, lines, marks)
    chunks, notes = bounded(units, lines, ranks, budget, path=path, language=language, module="")
    return Extraction(path, language, "", chunks, symbols, (), (*scan.notes, *capped, *notes))


def _place(root: Entry, lines: Sequence[str], marks: tuple[str, ...]) -> None:
    pending = [root]
    while pending:
        owner = pending.pop()
        owner.children.sort(key=lambda child: child.line)
        bound = owner.line
        for child in owner.children:
            child.start_line = _with_comments_above(lines, child.line, bound, marks)
            bound = max(child.last_line, child.line)
        for place, child in enumerate(owner.children):
            following = owner.children[place + 1] if place + 1 < len(owner.children) else None
            child.end_line = following.start_line - 1 if following is not None else owner.end_line
        pending += owner.children


def _with_comments_above(lines: Sequence[str], line: int, bound: int, marks: tuple[str, ...]) -> int:
    while line - 1 > bound and lines[line - 2].lstrip().startswith(marks):
        line -= 1
    return line


def _ranks(scan: Scan, lines: Sequence[str], marks: tuple[str, ...]) -> list[int]:
    ranks = [
        _RANK_NONE - 20 if number and not lines[number - 1].strip() else _RANK_NONE for number in range(len(lines))
    ]
    bound = 0
    for line, depth in sorted(scan.cuts.items()):
        start = _with_comments_above(lines, line, bound, marks)
        ranks[start - 1] = min(ranks[start - 1], 2 * min(depth, 30))
        bound = line
    return ranks


@dataclass(frozen=True, slots=True)
class _Partition:
    path: str
    lines: Sequence[str]
    budget: Budget
    divides_root: bool

    def divide(self, owner: Entry) -> Iterator[Unit]:
        """Divide the lines of an entry between its children and itself; depth is bounded by ``MAX_DEPTH``."""
        parts = [child for child in owner.children if child.is_table or self._is_large(child)]
        must_divide = owner.line == 0 and self.divides_root
        if not parts or (not must_divide and self._fits(owner)):
            yield self._unit(owner, owner.start_line, owner.end_line)
            return
        # Keys with short values, which stay with their owner.
        short = sorted(child.line for child in owner.children if not (child.is_table or self._is_large(child)))
        cursor = owner.start_line
        place = 0
        spans: list[tuple[Entry, int, int]] = []
        for part in parts:
            first = part.start_line
            begins = place
            while place < len(short) and short[place] < first:
                place += 1
            if place > begins or (owner.depth == 0 and self._says_something(cursor, first - 1)):
                spans.append((owner, cursor, first - 1))
            else:
                first = cursor  # the owner's own line joins its first child
            end = part.end_line
            following = short[place] if place < len(short) else 0
            if following and following <= end:
                end = following - 1
            spans.append((part, first, end))
            cursor = end + 1
        if place < len(short):
            spans.append((owner, cursor, owner.end_line))
        else:
            part, first, _ = spans[-1]
            spans[-1] = (part, first, owner.end_line)  # closing brackets
        for entry, start, end in spans:
            if entry is owner:
                yield self._unit(owner, start, end)
            else:
                entry.start_line, entry.end_line = start, end
                yield from self.divide(entry)

    def _is_large(self, entry: Entry) -> bool:
        return entry.last_line - entry.line + 1 >= _OWN_CHUNK_LINES

    def _says_something(self, start: int, end: int) -> bool:
        return any(character.isalnum() for line in self.lines[start - 1 : end] for character in line)

    def _unit(self, entry: Entry, start: int, end: int) -> Unit:
        return Unit(
            kind=ChunkKind.TEXT,
            anchor=entry.names,
            qualified_name=qualified_key(self.path, entry.names),
            name=entry.names[-1] if entry.names else self.path.rpartition("/")[2],
            title=" > ".join([*self.path.split("/"), *(name for name in entry.names if name)]),
            start_line=start,
            end_line=end,
        )

    def _fits(self, entry: Entry) -> bool:
        unit = self._unit(entry, entry.start_line, entry.end_line)
        return self.budget.fits(unit.title, "\n".join(self.lines[unit.start_line - 1 : unit.end_line]).strip("\n"))


def _joined(units: Iterator[Unit], lines: Sequence[str]) -> Iterator[Unit]:
    """Give the header of an empty table to the table below it that it is part of."""
    alone: Unit | None = None
    for unit in units:
        joins = alone is not None and alone.anchor != unit.anchor and unit.anchor[: len(alone.anchor)] == alone.anchor
        if alone is not None and not joins:
            yield alone
        start = alone.start_line if alone is not None and joins else unit.start_line
        whole = Unit(unit.kind, unit.anchor, unit.qualified_name, unit.name, unit.title, start, unit.end_line)
        said = sum(1 for line in lines[unit.start_line - 1 : unit.end_line] if line.strip())
        alone = whole if unit.anchor and said == 1 else None
        if alone is None:
            yield whole
    if alone is not None:
        yield alone


def qualified_key(path: str, names: Sequence[str]) -> str:
    """Name a key within the whole project; it ends with the dotted path, by which people ask for it."""
    place = structural_key(path, (), 0)
    return f"{place}#.{'.'.join(names)}" if names else place


def _symbols(path: str, root: Entry, lines: Sequence[str]) -> tuple[tuple[Symbol, ...], list[Note]]:
    found: list[Entry] = []
    pending = list(reversed(root.children))
    while pending:
        entry = pending.pop()
        if entry.names and (entry.is_table or entry.depth <= _SYMBOL_DEPTH):
            found.append(entry)
        pending.extend(reversed(entry.children))
    notes = []
    if len(found) > MAX_SYMBOLS:
        notes.append(Note("symbols_capped", f"{len(found):,} keys, of which the first {MAX_SYMBOLS:,} are symbols"))
    ordinals: Counter[tuple[str, ...]] = Counter()
    symbols: list[Symbol] = []
    for entry in found[:MAX_SYMBOLS]:
        symbols.append(
            Symbol(
                kind=SymbolKind.SECTION,
                name=entry.names[-1],
                qualified_name=qualified_key(path, entry.names),
                signature=".".join(entry.names)[:_TEXT_CHARACTERS],
                summary=lines[entry.line - 1].strip()[:_TEXT_CHARACTERS],
                start_line=entry.start_line,
                end_line=max(entry.last_line, entry.line),
                key=structural_key(path, entry.names, ordinals[entry.names]),
            )
        )
        ordinals[entry.names] += 1
    return tuple(symbols), notes
