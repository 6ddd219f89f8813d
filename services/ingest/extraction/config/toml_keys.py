"""TOML by its table headers and keys: ``tomllib`` tells no places, and a scanner of lines is enough to find them."""

from __future__ import annotations

import re

from services.ingest.chunks import Note
from services.ingest.extraction.config.entries import Entry, Scan, root_entry

_PART = r"""(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_PATH = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_HEADER = re.compile(rf"[ \t]*\[\[?[ \t]*(?P<path>{_PATH})[ \t]*\]\]?[ \t]*(?:#[^\n]*)?(?=\n|$)")
_KEY = re.compile(rf"[ \t]*(?P<path>{_PATH})[ \t]*=")
_PARTS = re.compile(_PART)
_LEXEME = re.compile(
    r"""(?P<comment>\#[^\n]*)
      | \"{3}(?:\\.|[^\\])*?\"{3,5} | '{3}.*?'{3,5} | "(?:\\.|[^"\\\n])*"? | '[^'\n]*'?
      | (?P<open>[\[{]) | (?P<close>[\]}]) | (?P<end>\n)""",
    re.VERBOSE | re.DOTALL,
)


def scan_toml(text: str, lines: list[str]) -> Scan:
    """Find tables and keys; whatever else the text says is passed over."""
    scan = Scan(root_entry(lines), {}, "#", is_divided=True)
    owner = scan.root
    key: Entry | None = None
    position, line, depth = 0, 1, 0
    while position < len(text):
        header = _HEADER.match(text, position)
        if header is not None:
            names = _names(header["path"])
            key, owner = None, Entry(names, line, line, len(names), is_table=True)
            scan.root.children.append(owner)
            scan.cuts[line] = 0
            position = header.end()
        elif (assignment := _KEY.match(text, position)) is not None:
            names = _names(assignment["path"])
            key = Entry((*owner.names, *names), line, line, owner.depth + len(names))
            owner.children.append(key)
            owner.last_line = line if owner.depth else owner.last_line
            scan.cuts[line] = 2
            position = assignment.end()
        # To the end of the line, or of the value that began in it.
        for match in _LEXEME.finditer(text, position):
            position = match.end()
            if match.lastgroup == "comment":
                continue
            if match.lastgroup == "end":
                line += 1
                if depth == 0:
                    break
                if line <= len(lines):
                    scan.cuts.setdefault(line, 2 + depth)
            elif match.lastgroup == "open":
                depth += 1
            elif match.lastgroup == "close":
                depth = max(0, depth - 1)
            else:
                line += match[0].count("\n")
            last = min(line, len(lines))
            if key is not None:
                key.last_line = last
            owner.last_line = max(owner.last_line, last) if owner.depth else owner.last_line
        else:
            position = len(text)
    if depth:
        scan.notes.append(Note("not_parsed", "a bracket is not closed", (key or owner).line))
    return scan


def _names(path: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") if part[0] in "\"'" else part for part in _PARTS.findall(path))
