"""What a reader yields: a text, and an outline of its lines."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.ingest.chunks import ChunkKind, Note
from services.ingest.sniffing import TextFile, converted, split_lines


class Unreadable(Exception):
    """A reader's word for a document that it can't take: damaged, encrypted, or of a version that it doesn't know.

    ``known`` are lines that tell what is known of it all the same: its title, the number of its pages.
    """

    def __init__(self, reason: str, *known: str) -> None:
        super().__init__(reason)
        self.known = known


@dataclass(frozen=True, slots=True)
class Section:
    """A run of lines that belongs together; lines count from 1, both ends included.

    Sections come in order and do not overlap. Non-blank lines that lie in none of them become text chunks.
    """

    names: tuple[str, ...]  # of the headings above it, the outermost first, and its own; () before the first
    start_line: int
    end_line: int
    kind: ChunkKind = ChunkKind.SECTION
    language: str = ""  # where it is not the document's own
    label: str = ""  # of a part without a heading: "page 3", "cell 2"; in the title, and no symbol
    is_heading: bool = False  # its first line is the heading that names it, so it is a symbol


@dataclass(frozen=True, slots=True)
class Document:
    """A converted document."""

    file: TextFile
    language: str
    sections: tuple[Section, ...]
    notes: tuple[Note, ...] = ()
    # The same lines with all that is not Python left blank: definitions and references are taken from it.
    python: str = ""


@dataclass(slots=True)
class TextBuilder:
    """Grows a text and tells where each piece came to stand, by the line rule of ``split_lines``."""

    lines: list[str] = field(default_factory=list)

    def add(self, text: str, *, blank_before: bool = True) -> tuple[int, int] | None:
        """Append a piece, set off by a blank line; return its first and last line, or None where it says nothing."""
        added = split_lines(converted(text, "").text)
        while added and not added[-1].strip():
            added.pop()
        if not added:
            return None
        if self.lines and blank_before:
            self.lines.append("")
        start = len(self.lines) + 1
        self.lines += added
        return start, len(self.lines)

    def file(self, encoding: str = "", notes: tuple[str, ...] = ()) -> TextFile:
        """Return the text so far; encoding and notes are what decoding the document said, if it is of text."""
        text = "\n".join(self.lines) + "\n" if self.lines else ""
        return TextFile(text, encoding, "lf" if self.lines else "", notes)
