"""JSON, with the comments of JSONC and JSON5, by one pass over its tokens.

The pass never fails: what is not well formed costs the places below it. Keys below an array have no name that lasts, so
they are places to cut at and no more; so are keys that do not begin their line.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass

from services.ingest.chunks import Note
from services.ingest.extraction.config.entries import MAX_DEPTH, Entry, Scan, root_entry

_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)
      | (?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
      | (?P<open>[\[{]) | (?P<close>[\]}]) | (?P<comma>,) | (?P<colon>:)
      | (?P<word>[^\s"'/\[\]{},:]+)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class _Frame:
    """An open bracket. ``owner`` is the entry whose value it is, where that can have children."""

    is_object: bool
    owner: Entry | None
    key: str | None = None
    key_start: int = 0
    at_start: bool = True  # of a member or an element
    entry: Entry | None = None  # the member whose value comes now


def scan_json(text: str, lines: list[str]) -> Scan:
    """Find the keys of objects."""
    scan = Scan(root_entry(lines), {}, "// /* *")
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    stack = [_Frame(False, None)]
    first = True
    last = 0  # where the token before ends
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "comment":
            continue
        frame = stack[-1]
        if frame.at_start and kind != "close":
            frame.at_start = False
            line = bisect_right(starts, match.start())
            if not text[starts[line - 1] : match.start()].strip() and len(stack) > 1:
                scan.cuts.setdefault(line, len(stack) - 1)
        if kind in ("string", "word"):
            if frame.is_object and frame.key is None:
                frame.key, frame.key_start = match[0], match.start()
        elif kind == "colon":
            if frame.is_object and frame.key is not None and frame.entry is None:
                frame.entry = _entry(frame, text, starts)
        elif kind == "open":
            owner = frame.entry if frame.is_object else (scan.root if first else None)
            stack.append(_Frame(match[0] == "{", owner))
            first = False
        elif kind == "comma":
            _finish(frame, starts, last)
        elif kind == "close" and len(stack) > 1:
            _finish(stack.pop(), starts, last)
        last = match.end()
    if len(stack) > 1:
        scan.notes.append(Note("not_parsed", f"ends inside {len(stack) - 1} open brackets", len(lines)))
        while len(stack) > 1:
            _finish(stack.pop(), starts, len(text))
    return scan


def _entry(frame: _Frame, text: str, starts: list[int]) -> Entry | None:
    """Make an entry of a member that begins its line, below an entry that does."""
    owner = frame.owner
    line = bisect_right(starts, frame.key_start)
    if owner is None or owner.depth >= MAX_DEPTH or text[starts[line - 1] : frame.key_start].strip():
        return None
    if owner.line == line:
        return None
    entry = Entry((*owner.names, _name(frame.key or "")), line, line, owner.depth + 1)
    owner.children.append(entry)
    return entry


def _finish(frame: _Frame, starts: list[int], position: int) -> None:
    """End the member that came last; its value ends before ``position``."""
    if frame.entry is not None:
        frame.entry.last_line = max(frame.entry.line, bisect_right(starts, position - 1))
    frame.key, frame.entry, frame.at_start = None, None, True


def _name(token: str) -> str:
    if "\\" in token and token.startswith('"'):
        try:
            name = json.loads(token)
        except ValueError:
            name = token
        return str(name).replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    return token.strip("\"'")
