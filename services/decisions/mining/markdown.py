"""Markdown: block structure by markdown-it, so that a heading in a code block or a field in a comment is neither."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt

from services.decisions.mining.document import Document, Heading, split_lines
from services.decisions.mining.frontmatter import read_front_matter

# Inline parsing is left out: blocks and link definitions are all that is needed, and inline markup is what makes
# Markdown parsers slow on hostile text.
_PARSER = MarkdownIt("commonmark").enable("table").disable("inline")

# "7. Use H2" over a line of "=" is a list item to CommonMark, and a title to those who write it.
_NUMBERED_TITLE = re.compile(r"^(\d{1,6})([.)] +\S[^\n]{0,200}\n={3,}[ \t]*$)", re.MULTILINE)
_ESCAPED_NUMBER = re.compile(r"^(\d{1,6})\\([.)])")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,300}>")
_FIELDLIKE = re.compile(r"^\W{0,4}[A-Za-z][A-Za-z /-]{0,40}[*_]{0,3}:")
_ANCHOR = re.compile(r"(?<!\s)\s*\{#[^{}]*\}\s*$")
_MAX_UNDERLINED_CHARS = 160


def read_markdown(text: str) -> Document:
    """Return ``text`` as a document."""
    lines = split_lines(text)
    fields, body = read_front_matter(lines)
    prose = [""] * body + lines[body:]
    if prose:
        prose[0] = prose[0].lstrip("\ufeff")
    environment: dict[str, dict[str, dict[str, str]]] = {}
    headings: list[Heading] = []
    tokens = _PARSER.parse(_NUMBERED_TITLE.sub(r"\1\\\2", "\n".join(prose)), environment)
    for index, token in enumerate(tokens):
        if token.map is None:
            continue
        start, end = token.map
        if token.type == "heading_open" and token.level == 0:
            title = _ESCAPED_NUMBER.sub(r"\1\2", strip_comments(tokens[index + 1].content).strip())
            underlined = token.markup in ("-", "=")
            if underlined and not _underlined(title):
                prose[end - 1] = ""
                continue
            headings.append(Heading(start, end, int(token.tag[1]), _ANCHOR.sub("", title)))
        elif token.type in ("fence", "code_block"):
            prose[start:end] = [""] * (end - start)
        elif token.type == "html_block":
            prose[start:end] = _html(prose[start:end])
    prose = strip_comments("\n".join(prose)).split("\n")
    for heading in headings:
        prose[heading.start : heading.end] = [""] * (heading.end - heading.start)
    targets = {
        label.lower(): reference.get("href", "") for label, reference in environment.get("references", {}).items()
    }
    return Document(tuple(lines), tuple(prose), tuple(headings), tuple(fields), targets)


def strip_comments(text: str) -> str:
    """Return ``text`` with HTML comments taken out; line breaks stay."""
    if "<!--" not in text:
        return text
    parts: list[str] = []
    position = 0
    while (opened := text.find("<!--", position)) >= 0:
        closed = text.find("-->", opened + 4)
        if closed < 0:
            break
        parts.append(text[position:opened])
        parts.append("\n" * text.count("\n", opened, closed))
        position = closed + 3
    parts.append(text[position:])
    return "".join(parts)


def _underlined(title: str) -> bool:
    # A rule drawn right under a paragraph of fields makes a heading of it, which nobody meant.
    return "\n" not in title and len(title) <= _MAX_UNDERLINED_CHARS and not _FIELDLIKE.match(title)


def _html(lines: list[str]) -> list[str]:
    text = "\n".join(lines)
    if text.lstrip().startswith("<!--") and "-->" not in text:
        return [""] * len(lines)
    return _TAG.sub(" ", strip_comments(text)).split("\n")
