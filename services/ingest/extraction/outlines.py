"""AsciiDoc and Org by the lines that are headings; all else is text between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from services.ingest.chunks import Budget, Extraction, bounded
from services.ingest.extraction.sections import Title, cutting, nested, section_symbols, section_units
from services.ingest.extraction.text import cut_ranks
from services.ingest.file_settings import ChunkBy
from services.ingest.sniffing import split_lines

_ASCIIDOC_MARKS = re.compile(r"(={1,6}|#{1,6})[ \t]")
# A line that opens a block, which the same line closes.
_ASCIIDOC_BLOCK = re.compile(
    r"(?:-{4,}|\.{4,}|={4,}|\*{4,}|_{4,}|\+{4,}|/{4,}|--|[|,:!]={3,}|`{3,}|~{3,})(?=[ \t]*$|\w)"
)
_ORG_MARKS = re.compile(r"(\*{1,40})[ \t]")
_ORG_TAGS = re.compile(r":[\w@#%:]+:")
_ORG_STATE = re.compile(r"^(?:TODO|DONE|NEXT|WAITING|CANCELLED)[ \t]+(?=\S)|\[#[A-Z0-9]\][ \t]+(?=\S)")
_ORG_BLOCK = re.compile(r"[ \t]*#\+(?P<edge>begin|end)_(?P<kind>\w+)", re.IGNORECASE)


def extract_outline(path: str, text: str, *, language: str, budget: Budget, chunk_by: ChunkBy) -> Extraction:
    """Extract one file of ``asciidoc`` or ``org``; ``text`` has LF line ends."""
    lines = split_lines(text)
    titles = list(_asciidoc(lines) if language == "asciidoc" else _org(lines))
    headings = nested(titles, len(lines))
    units = section_units(path, nested(cutting(titles, chunk_by), len(lines)), lines)
    chunks, notes = bounded(units, lines, cut_ranks(lines), budget, path=path, language=language, module="")
    return Extraction(path, language, "", chunks, section_symbols(path, headings, lines), (), notes)


def _asciidoc(lines: Sequence[str]) -> Iterator[Title]:
    closing = ""
    for number, line in enumerate(lines, 1):
        block = _ASCIIDOC_BLOCK.match(line)
        if closing:
            closing = "" if line.rstrip() == closing else closing
        elif block is not None:
            closing = block[0]
        elif (title := _ASCIIDOC_MARKS.match(line)) is not None and (words := line[title.end() :].split()):
            marks = title[1]
            # The marks may stand behind the title as well.
            words = words[:-1] if len(words) > 1 and words[-1] == marks else words
            yield Title(len(marks), " ".join(words), number, number)


def _org(lines: Sequence[str]) -> Iterator[Title]:
    closing = ""
    for number, line in enumerate(lines, 1):
        block = _ORG_BLOCK.match(line)
        if block is not None:
            kind = block["kind"].lower()
            if block["edge"].lower() == "begin":
                closing = closing or kind
            elif kind == closing:
                closing = ""
        elif not closing and (title := _ORG_MARKS.match(line)) is not None and (words := line[title.end() :].split()):
            words = words[:-1] if len(words) > 1 and _ORG_TAGS.fullmatch(words[-1]) else words
            yield Title(len(title[1]), " ".join(_ORG_STATE.sub("", " ".join(words)).split()), number, number)
