"""reStructuredText: sections, comments and directives; enough for records, and much less than docutils.

Section underlines follow docutils: a style's level is the order in which it is first seen.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from services.decisions.mining.document import Document, Heading, split_lines

_TARGET = re.compile(r"^\.\. _(`[^`]+`|[^:]+):\s*(\S.*)?$")
_DIRECTIVE = re.compile(r"^\.\. [\w:+.-]+::")
# What these hold is prose or a table of the record; what any other directive holds is not.
_TRANSPARENT = re.compile(r"^\.\. (?:list-table|table|note|important|attention|warning|admonition|hint|tip)::")
_ADORNMENT = frozenset(string.punctuation)


def read_rst(text: str) -> Document:
    """Return ``text`` as a document."""
    lines = split_lines(text)
    if lines:
        lines[0] = lines[0].lstrip("\ufeff")
    prose, targets = _prose(lines)
    headings = _headings(lines, prose)
    for heading in headings:
        prose[heading.start : heading.end] = [""] * (heading.end - heading.start)
    return Document(tuple(split_lines(text)), tuple(prose), tuple(headings), (), targets)


def _prose(lines: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    prose: list[str] = []
    targets: dict[str, str] = {}
    hidden = False
    literal = False
    for line in lines:
        indented = line[:1] in (" ", "\t")
        if line.strip() and not indented:
            hidden = literal = False
        if hidden or (literal and indented):
            prose.append("")
            continue
        if line.startswith("..") and (len(line) == 2 or line[2] in " \t"):
            target = _TARGET.match(line)
            if target and target.group(2):
                targets[target.group(1).strip("`").strip().lower()] = target.group(2).strip()
            hidden = not (_TRANSPARENT.match(line) and _DIRECTIVE.match(line))
            prose.append("")
            continue
        if line.rstrip().endswith("::"):
            literal = True
        prose.append(line)
    return prose, targets


def _headings(lines: Sequence[str], prose: Sequence[str]) -> list[Heading]:
    styles: list[tuple[str, bool]] = []
    headings: list[Heading] = []
    number = 0
    while number + 1 < len(lines):
        title = lines[number + 1]
        if (
            number + 2 < len(lines)
            and _adorns(lines[number], title)
            and title.strip()
            and _adornment(lines[number + 2]) == _adornment(lines[number])
            and not _adornment(title)
        ):
            headings.append(Heading(number, number + 3, _level(styles, lines[number][0], True), title.strip()))
            number += 3
            continue
        text = lines[number]
        if (
            prose[number].strip()
            and text[:1] not in (" ", "\t")
            and not _adornment(text)
            and (number == 0 or not prose[number - 1].strip())
            and _adorns(lines[number + 1], text)
        ):
            headings.append(Heading(number, number + 2, _level(styles, lines[number + 1][0], False), text.strip()))
            number += 2
            continue
        number += 1
    return headings


def _adornment(line: str) -> str:
    line = line.rstrip()
    return line[0] if len(line) >= 2 and line[0] in _ADORNMENT and line == line[0] * len(line) else ""


def _adorns(line: str, title: str) -> bool:
    # docutils warns of a short underline from four characters on, and takes it.
    return bool(_adornment(line)) and len(line.rstrip()) >= min(4, len(title.strip()))


def _level(styles: list[tuple[str, bool]], mark: str, overlined: bool) -> int:
    style = (mark, overlined)
    if style not in styles:
        styles.append(style)
    return styles.index(style) + 1
