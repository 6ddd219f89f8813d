"""reStructuredText by its section titles, as Markdown is by its headings.

A scanner of lines, by the rules of docutils' specification for titles: a style's level is the order in which it is
first seen, a title begins a block, tables and explicit markup come first. Nothing is executed and nothing is included,
which docutils does while it parses; and no directive has to be known, which Sphinx's are not to docutils.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from services.ingest.chunks import Budget, Extraction, Reference, bounded
from services.ingest.extraction.rst_inline import Directive, references
from services.ingest.extraction.sections import Title, cutting, nested, section_symbols, section_units
from services.ingest.file_settings import ChunkBy
from services.ingest.sniffing import split_lines

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*[ \t\f\v]*$")
_SIMPLE_TABLE_TOP = re.compile(r"=+( +=+)+[ ]*$")
_SIMPLE_TABLE_BORDER = re.compile(r"=+( +=+)*[ ]*$")
# What begins a block that is no paragraph, so no title either: bullets, fields, line blocks, doctests, grid tables.
_NO_TITLE = re.compile(
    r"[-+*\u2022\u2023\u2043](?:[ ]|$) | :(?![: ])(?:[^:\\]|\\.|:(?!(?:[ `]|$)))*(?<![ ]):(?:[ ]|$)"
    r" | \|(?:[ ]|$) | >>>(?:[ ]|$) | \+-[-+]+-\+[ ]*$ | __(?:[ ]|$)",
    re.VERBOSE,
)
_EXPLICIT = re.compile(r"([ ]*)\.\.(?:[ ]+|$)")
_DIRECTIVE = re.compile(r"[ ]*\.\.[ ]+(?:\|[^|]+\|[ ]+)?(?P<name>[\w.+:-]*[\w])[ ]?::(?:[ ]+(?P<argument>.*)|$)")
_NO_COMMENT = re.compile(r"[ ]*\.\.[ ]+(?:_|\[[^\]]+\][ ]|\|[^|]+\|[ ]|__(?:[ ]|:))")
# Their bodies are no prose.
_VERBATIM = frozenset(
    {
        "code", "code-block", "sourcecode", "highlight", "parsed-literal", "raw", "math", "literalinclude",
        "csv-table", "productionlist", "graphviz", "digraph", "graph", "plot", "testcode", "testoutput",
        "testsetup", "testcleanup", "doctest", "ipython", "jupyter-execute", "prompt", "mermaid", "uml",
        "plantuml", "console", "runblock", "code-cell", "tikz",
    }
)  # fmt: skip
_LEVELS = 40  # deeper titles are none
_RANK_VERBATIM = 60


@dataclass(slots=True)
class _Scan:
    """What one pass over the lines found."""

    titles: list[Title] = field(default_factory=list)
    directives: list[Directive] = field(default_factory=list)
    prose: list[bool] = field(default_factory=list)  # by line
    verbatim: list[bool] = field(default_factory=list)  # by line: code and comments


def extract_rst(path: str, text: str, *, budget: Budget, chunk_by: ChunkBy = ChunkBy.AUTO) -> Extraction:
    """Extract one reStructuredText file; ``text`` has LF line ends."""
    lines = split_lines(text)
    expanded = [line.expandtabs(8) if "\t" in line else line for line in lines]
    scan = _scan(expanded)
    headings = nested(scan.titles, len(lines))
    chunks, notes = bounded(
        section_units(path, nested(cutting(scan.titles, chunk_by), len(lines)), lines),
        lines,
        _ranks(expanded, scan),
        budget,
        path=path,
        language="rst",
        module="",
    )
    found: Iterator[Reference] = references(path, expanded, scan.prose, scan.directives, headings)
    return Extraction(path, "rst", "", chunks, section_symbols(path, headings, lines), tuple(found), notes)


def _scan(lines: Sequence[str]) -> _Scan:
    scan = _Scan(prose=[False] * len(lines), verbatim=[False] * len(lines))
    styles: dict[str, int] = {}
    hidden_below: int | None = None  # lines indented deeper than this belong to code or a comment
    number = 0
    begins_block = True
    while number < len(lines):
        line = lines[number]
        if not line.strip():
            scan.verbatim[number] = hidden_below is not None
            begins_block = True
            number += 1
            continue
        indent = len(line) - len(line.lstrip())
        if hidden_below is not None and indent > hidden_below:
            scan.verbatim[number] = True
            number += 1
            begins_block = True
            continue
        hidden_below = None
        if indent == 0 and begins_block:
            title, size = _title(lines, number, styles)
            if title is not None:
                scan.titles.append(title)
            if size:
                scan.prose[number : number + size] = [title is None and _ADORNMENT.match(line) is None] * size
                number += size
                begins_block = True
                continue
        explicit = _EXPLICIT.match(line)
        if explicit is not None:
            hidden_below = _explicit(lines, number, indent, scan)
        else:
            scan.prose[number] = True
            if line.rstrip().endswith("::"):
                hidden_below = indent
        # Where explicit markup or an indented block ends without a blank line, a new block begins all the same.
        begins_block = explicit is not None or indent > 0
        number += 1
    return scan


def _title(lines: Sequence[str], number: int, styles: dict[str, int]) -> tuple[Title | None, int]:
    """Recognise what stands at the left margin and begins a block: the lines of a title, of a transition or table."""
    line = lines[number].rstrip()
    following = lines[number + 1].rstrip() if number + 1 < len(lines) else ""
    if _SIMPLE_TABLE_TOP.match(line):
        return None, _table_lines(lines, number)
    if _ADORNMENT.match(line):
        last = lines[number + 2].rstrip() if number + 2 < len(lines) else ""
        if following.strip() and last == line and not (_ADORNMENT.match(following) and len(line) < 4):
            if _width(following) <= len(line) or len(line) >= 4:
                return _of_style(styles, line[0] * 2, following, number, 3), 3
            return None, 0
        return None, 1 if not following and len(line) >= 4 else 0
    if not _ADORNMENT.match(following) or _EXPLICIT.match(line) or _NO_TITLE.match(line):
        return None, 0
    if _width(line) > len(following) and len(following) < 4:
        return None, 0
    return _of_style(styles, following[0], line, number, 2), 2


def _of_style(styles: dict[str, int], style: str, text: str, number: int, size: int) -> Title | None:
    level = styles.setdefault(style, len(styles) + 1)
    return Title(level, _plain(text), number + 1, number + size) if level <= _LEVELS else None


def _table_lines(lines: Sequence[str], number: int) -> int:
    """Count the lines of a simple table, which ends at its second border, or at one before a blank line."""
    width = len(lines[number].strip())
    borders = 0
    for last in range(number + 1, len(lines)):
        if _SIMPLE_TABLE_BORDER.match(lines[last]) and len(lines[last].strip()) == width:
            borders += 1
            if borders == 2 or last + 1 == len(lines) or not lines[last + 1].strip():
                return last + 1 - number
    return 0


def _explicit(lines: Sequence[str], number: int, indent: int, scan: _Scan) -> int | None:
    """Take explicit markup; return the indent below which lines are hidden, if any are."""
    line = lines[number]
    directive = _DIRECTIVE.match(line)
    if directive is not None:
        name = directive["name"].lower()
        scan.directives.append(Directive(name, (directive["argument"] or "").strip(), number, indent))
        scan.prose[number] = name not in _VERBATIM
        return indent if name.rpartition(":")[2] in _VERBATIM else None
    if _NO_COMMENT.match(line):
        scan.prose[number] = True
        return None
    scan.verbatim[number] = True
    is_empty = line.strip() == ".." and (number + 1 == len(lines) or not lines[number + 1].strip())
    return None if is_empty else indent


def _plain(text: str) -> str:
    """Take the markup out of a title."""
    text = re.sub(r":[\w.+:-]+:`([^`]*)`", r"`\1`", text)
    text = re.sub(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}", r"\1", text)
    text = re.sub(r"\|([^|\s][^|]*)\|", r"\1", text)
    text = re.sub(r"`{1,2}~?!?([^`]+)`{1,2}_{0,2}|(?<![\w*])\*{1,2}(?=\S)([^*]+)(?<=\S)\*{1,2}(?![\w*])", r"\1\2", text)
    text = re.sub(r"\\(?:\s|(.))", r"\1", text)
    return " ".join(text.split())


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    wide = sum(1 for character in text if unicodedata.east_asian_width(character) in "WF")
    return len(text) + wide - sum(1 for character in text if unicodedata.combining(character))


def _ranks(lines: Sequence[str], scan: _Scan) -> list[int]:
    """Rank the lines: directives and paragraphs begin well, indented ones less so, the inside of code last."""
    directives = {directive.line for directive in scan.directives}
    ranks: list[int] = []
    for number, line in enumerate(lines):
        after_blank = number == 0 or not lines[number - 1].strip()
        indent = min(len(line) - len(line.lstrip()), 20)
        if scan.verbatim[number]:
            rank = _RANK_VERBATIM + (5 if after_blank else 20)
        elif after_blank:
            rank = indent + (0 if number in directives else 2)
        else:
            rank = 30 + indent
        ranks.append(rank)
    return ranks
