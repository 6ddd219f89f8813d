"""Markdown by its headings: one chunk per section, titled with the headings above it.

CommonMark and tables, parsed by markdown-it-py; inline text is not parsed, which is most of the cost. Headings count at
the top level only, not in quotes, lists or fences. What stands before the first heading, front matter included, is the
preamble.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

from services.ingest.chunks import Budget, Extraction, Reference, bounded
from services.ingest.extraction.front_matter import read_front_matter
from services.ingest.extraction.markdown_blocks import front_matter, without_modules
from services.ingest.extraction.prose import reference_to_code, reference_to_file
from services.ingest.extraction.sections import (
    Heading,
    Title,
    cutting,
    nested,
    qualified_section,
    section_symbols,
    section_units,
)
from services.ingest.file_settings import ChunkBy
from services.ingest.sniffing import split_lines

_HEADING_ID = re.compile(r"(?<!\s)\s*\{[#:.][^{}]*\}\s*$")
_CODE_SPAN = re.compile(r"(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\]\(\s*<?([^\s<>()]+(?:\([^\s()]*\)[^\s()]*)*)>?")
_DEFINITION = re.compile(r" {0,3}\[(?!\^)(?:[^\[\]\\]|\\.){1,200}\]:[ \t]*<?(?P<link>[^\s<>]+)")
_CONTENT = frozenset({"inline", "fence", "code_block", "html_block"})
_RANKS = {"fence": 60, "code_block": 60, "table_open": 40, "html_block": 60, "tr_open": 50}


def extract_markdown(path: str, text: str, *, budget: Budget, chunk_by: ChunkBy = ChunkBy.AUTO) -> Extraction:
    """Extract one Markdown file; ``text`` has LF line ends."""
    lines = split_lines(text)
    taken, title = front_matter(text)
    said = read_front_matter(text[:taken])
    body = "\n" * text.count("\n", 0, taken) + text[taken:]
    if path.lower().endswith(".mdx"):
        body = without_modules(body)
    tokens = _parser().parse(body)
    titles = _titles(tokens)
    headings = nested(titles, len(lines))
    cut = nested(cutting(titles, said.chunk_by or chunk_by), len(lines))
    units = section_units(path, cut, lines, preamble=title)
    chunks, notes = bounded(units, lines, _ranks(tokens, lines), budget, path=path, language="markdown", module="")
    return Extraction(
        path,
        "markdown",
        "",
        chunks,
        section_symbols(path, headings, lines),
        (*_references(path, tokens, headings), *_definitions(path, body, tokens, headings)),
        (*said.notes, *notes),
        said.metadata,
    )


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table").disable("inline")


def markdown_titles(text: str) -> list[Title]:
    """Find the headings of a text; ``text`` has LF line ends."""
    return _titles(_parser().parse(text))


def _titles(tokens: Sequence[Token]) -> list[Title]:
    return [
        Title(int(token.tag[1:]), _plain(inline.content), token.map[0] + 1, token.map[1])
        for token, inline in pairwise(tokens)
        if token.type == "heading_open" and token.level == 0 and token.map is not None
    ]


def _plain(content: str) -> str:
    """Take the markup out of a heading."""
    content = _HEADING_ID.sub("", content)
    content = re.sub(r"!?\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])", r"\1", content)
    content = re.sub(r"<[^<>]+>", "", content)
    content = re.sub(r"(?<!\\)[`]+|(?<![\w\\])[*_]{1,3}(?=\S)|(?<=\S)(?<!\\)[*_]{1,3}(?!\w)", "", content)
    content = re.sub(r"\\([^\w\s])", r"\1", content)
    return " ".join(content.split())


def _ranks(tokens: Sequence[Token], lines: Sequence[str]) -> list[int]:
    """Rank the lines: blocks begin well, list items and rows less so, the inside of a fence last."""
    ranks = [80 if number and not lines[number - 1].strip() else 100 for number in range(len(lines))]
    for token in tokens:
        if token.map is None or token.nesting < 0 or token.type == "inline":
            continue
        start, end = token.map
        inside = _RANKS.get(token.type)
        if inside is not None:
            for number in range(start + 1, min(end, len(lines))):
                blank_above = not lines[number - 1].strip()
                ranks[number] = inside + (5 if blank_above else 20)
        if start < len(ranks):
            own = 50 if token.type == "tr_open" else 2 * min(token.level, 9)
            ranks[start] = min(ranks[start], own)
    return ranks


def _references(path: str, tokens: Sequence[Token], headings: Sequence[Heading]) -> Iterator[Reference]:
    """Yield what prose names: code spans that are names or paths, and links to files of the source."""
    place = -1
    for token in tokens:
        if token.type != "inline" or token.map is None:
            continue
        first = token.map[0] + 1
        while place + 1 < len(headings) and headings[place + 1].start_line <= first:
            place += 1
        source = qualified_section(path, headings[place].names) if place >= 0 else path
        for pattern, group, refer in ((_CODE_SPAN, 2, reference_to_code), (_LINK, 1, reference_to_file)):
            for match in pattern.finditer(token.content):
                line = first + token.content.count("\n", 0, match.start())
                reference = refer(path, source, match[group].strip(), line)
                if reference is not None:
                    yield reference


def _definitions(path: str, text: str, tokens: Sequence[Token], headings: Sequence[Heading]) -> Iterator[Reference]:
    """Yield the files that reference links are defined as; the parser leaves no token of a definition."""
    if "]:" not in text:
        return
    lines = text.split("\n")
    taken = bytearray(len(lines) + 1)
    for token in tokens:
        if token.map is not None and token.type in _CONTENT:
            start, end = token.map
            taken[start:end] = b"\x01" * (end - start)
    place = -1
    for number, line in enumerate(lines, 1):
        match = None if taken[number - 1] else _DEFINITION.match(line)
        if match is None:
            continue
        while place + 1 < len(headings) and headings[place + 1].start_line <= number:
            place += 1
        source = qualified_section(path, headings[place].names) if place >= 0 else path
        reference = reference_to_file(path, source, match["link"], number)
        if reference is not None:
            yield reference
