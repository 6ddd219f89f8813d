"""Markdown by its headings: one chunk per section, titled with the headings above it.

CommonMark and tables, parsed by markdown-it-py; inline text is not parsed, which is most of the cost. Headings count at
the top level only, not in quotes, lists or fences. What stands before the first heading, front matter included, is the
preamble. A heading with nothing below it but a deeper heading joins that first child.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

from services.ingest.chunks import (
    Budget,
    ChunkKind,
    Extraction,
    Reference,
    ReferenceKind,
    Symbol,
    SymbolKind,
    Unit,
    bounded,
    structural_key,
)
from services.ingest.extraction.languages import has_known_suffix
from services.ingest.sniffing import split_lines

_FRONT_MATTER = re.compile(r"---[ \t]*\n.*?^(?:---|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)
_HEADING_ID = re.compile(r"\s*\{[#:.][^}]*\}\s*$")
_CODE_SPAN = re.compile(r"(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\]\(\s*<?([^\s<>()]+(?:\([^\s()]*\)[^\s()]*)*)>?")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?=\(.*\)$|$)", re.DOTALL)
_PATH = re.compile(r"\.{0,2}/?(?:[\w.-]+/)*[\w-][\w.-]*\.[A-Za-z]\w{0,9}(?::\d+(?:-\d+)?)?$|(?:[\w.-]+/)+$")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//|#")
_RANKS = {"fence": 60, "code_block": 60, "table_open": 40, "html_block": 60, "tr_open": 50}


@dataclass(frozen=True, slots=True)
class _Heading:
    names: tuple[str, ...]  # of the headings above it and its own
    start_line: int
    body_line: int
    end_line: int
    level: int


def extract_markdown(path: str, text: str, *, budget: Budget) -> Extraction:
    """Extract one Markdown file; ``text`` has LF line ends."""
    lines = split_lines(text)
    tokens = _parser().parse(_without_front_matter(text))
    headings = _headings(tokens, len(lines))
    units = list(_units(path, headings, lines))
    chunks, notes = bounded(units, lines, _ranks(tokens, lines), budget, path=path, language="markdown", module="")
    return Extraction(
        path,
        "markdown",
        "",
        chunks,
        _symbols(path, headings, lines),
        tuple(_references(path, tokens, headings)),
        notes,
    )


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table").disable("inline")


def _without_front_matter(text: str) -> str:
    match = _FRONT_MATTER.match(text)
    return "\n" * match[0].count("\n") + text[match.end() :] if match else text


def _headings(tokens: Sequence[Token], line_count: int) -> list[_Heading]:
    found: list[tuple[int, str, int, int]] = []
    for token, inline in pairwise(tokens):
        if token.type == "heading_open" and token.level == 0 and token.map is not None:
            found.append((int(token.tag[1:]), _plain(inline.content), token.map[0] + 1, token.map[1]))
    headings: list[_Heading] = []
    above: list[tuple[int, str]] = []
    for place, (level, name, start, last) in enumerate(found):
        above = [item for item in above if item[0] < level]
        above.append((level, name))
        following = found[place + 1][2] - 1 if place + 1 < len(found) else line_count
        headings.append(_Heading(tuple(item[1] for item in above), start, last + 1, following, level))
    return headings


def _plain(content: str) -> str:
    """Take the markup out of a heading."""
    content = _HEADING_ID.sub("", content)
    content = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", content)
    content = re.sub(r"<[^>]+>", "", content)
    content = re.sub(r"(?<!\\)[`]+|(?<![\w\\])[*_]{1,3}(?=\S)|(?<=\S)(?<!\\)[*_]{1,3}(?!\w)", "", content)
    content = re.sub(r"\\([^\w\s])", r"\1", content)
    return " ".join(content.split())


def _units(path: str, headings: Sequence[_Heading], lines: Sequence[str]) -> Iterator[Unit]:
    stem = path.rpartition("/")[2].rpartition(".")[0] or path
    first = headings[0].start_line if headings else len(lines) + 1
    yield Unit(ChunkKind.SECTION, (), path, stem, path.replace("/", " > "), 1, first - 1)
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


def _symbols(path: str, headings: Sequence[_Heading], lines: Sequence[str]) -> tuple[Symbol, ...]:
    symbols: list[Symbol] = []
    ordinals: Counter[tuple[str, ...]] = Counter()
    for place, heading in enumerate(headings):
        # A section as a symbol spans its subsections too.
        end = next(
            (later.start_line - 1 for later in headings[place + 1 :] if later.level <= heading.level), len(lines)
        )
        summary = next((line.strip() for line in lines[heading.body_line - 1 : heading.end_line] if line.strip()), "")
        symbols.append(
            Symbol(
                kind=SymbolKind.SECTION,
                name=heading.names[-1],
                qualified_name=qualified_section(path, heading.names),
                signature="#" * heading.level + " " + heading.names[-1],
                summary=summary[:400],
                start_line=heading.start_line,
                end_line=end,
                key=structural_key(path, heading.names, ordinals[heading.names]),
            )
        )
        ordinals[heading.names] += 1
    return tuple(symbols)


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


def _references(path: str, tokens: Sequence[Token], headings: Sequence[_Heading]) -> Iterator[Reference]:
    """Yield what prose names: code spans that are names or paths, and links to files of the source."""
    place = -1
    for token in tokens:
        if token.type != "inline" or token.map is None:
            continue
        first = token.map[0] + 1
        while place + 1 < len(headings) and headings[place + 1].start_line <= first:
            place += 1
        source = qualified_section(path, headings[place].names) if place >= 0 else path
        for match in _CODE_SPAN.finditer(token.content):
            span = match[2].strip()
            line = first + token.content.count("\n", 0, match.start())
            if _is_path(span):
                target = _joined(path, span.partition(":")[0], relative=False)
                if target:
                    yield Reference(source, ReferenceKind.LINK, target, False, line)
                continue
            named = _NAME.match(span)
            if named is not None and len(named[0]) > 1:
                yield Reference(source, ReferenceKind.MENTION, named[0], False, line)
        for match in _LINK.finditer(token.content):
            if _SCHEME.match(match[1]):
                continue
            target = _joined(path, unquote(match[1].partition("#")[0].partition("?")[0]), relative=True)
            if target:
                line = first + token.content.count("\n", 0, match.start())
                yield Reference(source, ReferenceKind.LINK, target, True, line)


def _is_path(span: str) -> bool:
    """Tell ``src/app.py`` and ``app.py`` from ``requests.sessions``."""
    return _PATH.match(span) is not None and ("/" in span or has_known_suffix(span.partition(":")[0]))


def _joined(path: str, target: str, *, relative: bool) -> str:
    """Resolve a path that a document names to one below the root, or nothing where it leads out of it."""
    if target.startswith("/"):
        joined = posixpath.normpath(target.lstrip("/") or ".")
    else:
        explicit = relative or target.startswith("./") or target.startswith("../")
        joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), target) if explicit else target)
    return "" if joined == "." or joined.startswith("..") or "\0" in joined else joined
