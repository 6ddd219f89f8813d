"""Sections under headings, as every format that has headings cuts them.

One unit per section, titled with the headings above it; what stands before the first heading is the preamble. A heading
with nothing below it but a deeper heading joins that first child.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.ingest.chunks import ChunkKind, Symbol, SymbolKind, Unit, structural_key
from services.ingest.file_settings import ChunkBy

_SUMMARY_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Title:
    """A heading as a format's parser finds it; ``last_line`` is that of its underline, where it has one."""

    level: int
    name: str
    start_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading and the lines below it, up to the next heading of whatever level."""

    names: tuple[str, ...]  # of the headings above it and its own
    start_line: int
    body_line: int
    end_line: int
    level: int


def nested(titles: Sequence[Title], line_count: int) -> list[Heading]:
    """Put each title below the last one of a lower level."""
    headings: list[Heading] = []
    above: list[tuple[int, str]] = []
    for place, title in enumerate(titles):
        while above and above[-1][0] >= title.level:
            above.pop()
        above.append((title.level, title.name))
        following = titles[place + 1].start_line - 1 if place + 1 < len(titles) else line_count
        names = tuple(name for _, name in above)
        headings.append(Heading(names, title.start_line, title.last_line + 1, following, title.level))
    return headings


def cutting(titles: Sequence[Title], chunk_by: ChunkBy) -> list[Title]:
    """Return the titles that begin a chunk; those below them are text of it."""
    deepest = chunk_by.deepest_level
    return list(titles) if deepest is None else [title for title in titles if title.level <= deepest]


def section_units(path: str, headings: Sequence[Heading], lines: Sequence[str], preamble: str = "") -> Iterator[Unit]:
    """Yield a unit for each section; ``preamble`` is the title of what stands before the first, where it has one."""
    stem = path.rpartition("/")[2].rpartition(".")[0] or path
    first = headings[0].start_line if headings else len(lines) + 1
    yield Unit(ChunkKind.SECTION, (), path, stem, preamble or path.replace("/", " > "), 1, first - 1)
    start: int | None = None
    for place, heading in enumerate(headings):
        following = headings[place + 1] if place + 1 < len(headings) else None
        start = heading.start_line if start is None else start
        empty = not any(line.strip() for line in lines[heading.body_line - 1 : heading.end_line])
        if empty and following is not None and following.level > heading.level:
            continue  # joins its first child
        name = heading.names[-1] or stem
        title = " > ".join(part for part in heading.names if part) or stem
        qualified = qualified_section(path, heading.names)
        yield Unit(ChunkKind.SECTION, heading.names, qualified, name, title, start, heading.end_line)
        start = None


def qualified_section(path: str, names: Sequence[str]) -> str:
    """Name a section within the whole project."""
    return structural_key(path, names, 0)


def section_symbols(path: str, headings: Sequence[Heading], lines: Sequence[str]) -> tuple[Symbol, ...]:
    """Make a symbol of each heading, which spans its subsections too."""
    ends = _ends(headings, len(lines))
    symbols: list[Symbol] = []
    ordinals: Counter[tuple[str, ...]] = Counter()
    for heading, end in zip(headings, ends, strict=True):
        body = (lines[number].strip() for number in range(heading.body_line - 1, heading.end_line))
        symbols.append(
            Symbol(
                kind=SymbolKind.SECTION,
                name=heading.names[-1],
                qualified_name=qualified_section(path, heading.names),
                signature="#" * heading.level + " " + heading.names[-1],
                summary=next((line for line in body if line), "")[:_SUMMARY_CHARACTERS],
                start_line=heading.start_line,
                end_line=end,
                key=structural_key(path, heading.names, ordinals[heading.names]),
            )
        )
        ordinals[heading.names] += 1
    return tuple(symbols)


def _ends(headings: Sequence[Heading], line_count: int) -> list[int]:
    """Return for each heading the line before the next one that is not below it."""
    ends = [line_count] * len(headings)
    open_places: list[int] = []
    for place, heading in enumerate(headings):
        while open_places and headings[open_places[-1]].level >= heading.level:
            ends[open_places.pop()] = heading.start_line - 1
        open_places.append(place)
    return ends
