"""What both markup readers give: numbered lines, headings, fields before the text, and lines fit for prose.

Everything after the readers works on lines, so it is the same for Markdown and reStructuredText and every finding has
its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_NEWLINE = re.compile(r"\r\n|\r")
_BULLET = re.compile(r"^\s*(?:>\s*)*(?:[-*+]|\d{1,3}[.)])\s")


@dataclass(frozen=True, slots=True)
class Heading:
    """A section heading; lines are 0-based and ``end`` is exclusive (an underline belongs to the heading)."""

    start: int
    end: int
    level: int
    title: str


@dataclass(frozen=True, slots=True)
class Field:
    """A labelled value; ``label`` is lower case and without markup, ``value`` is as written."""

    label: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of prose that belong together: a paragraph, or one item of a list; ``line`` is 0-based."""

    line: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True, slots=True)
class Document:
    """A file as its markup reader saw it.

    ``prose`` has as many entries as ``lines``; comments, code blocks, directives and front matter are blank in it.
    ``targets`` maps lower-case reference labels to their destinations.
    """

    lines: tuple[str, ...]
    prose: tuple[str, ...]
    headings: tuple[Heading, ...]
    front: tuple[Field, ...] = ()
    targets: Mapping[str, str] = field(default_factory=dict)

    def spans(self) -> Iterator[tuple[Heading | None, int, int]]:
        """Yield each heading with the lines that are its own, [start, end), from its heading line on."""
        first = self.headings[0].start if self.headings else len(self.lines)
        if first > 0:
            yield None, 0, first
        for index, heading in enumerate(self.headings):
            following = index + 1
            end = self.headings[following].start if following < len(self.headings) else len(self.lines)
            yield heading, heading.start, end

    def blocks(self, start: int, end: int) -> Iterator[Block]:
        """Yield the prose of lines [start, end), split at blank lines and at list items."""
        begun = start
        pending: list[str] = []
        for number in range(start, end):
            line = self.prose[number]
            if pending and (not line.strip() or _BULLET.match(line)):
                yield Block(begun, tuple(pending))
                pending = []
            if line.strip():
                if not pending:
                    begun = number
                pending.append(line)
        if pending:
            yield Block(begun, tuple(pending))


def split_lines(text: str) -> list[str]:
    """Return the lines of ``text``, ended by LF, CR LF or CR, as CommonMark counts them."""
    return _NEWLINE.sub("\n", text).split("\n")
