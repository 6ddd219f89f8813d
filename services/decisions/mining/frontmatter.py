"""Front matter: ``---`` (YAML) or ``+++`` (TOML) before the text, read as labelled values.

A small reader instead of YAML: records in the wild hold unquoted placeholders (``status: {proposed | accepted}``) that
no YAML parser accepts, nesting says nothing to us, and time stays linear.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from services.decisions.mining.document import Field

_KEY = re.compile(r"""^["']?([A-Za-z][\w -]{0,60}?)["']?\s*[:=](?:\s+(.*))?$""")
_ITEM = re.compile(r"^\s*-\s+(.*)$")
_COMMENT = re.compile(r"\s#\s?.*$")
_MAX_LINES = 400


def read_front_matter(lines: Sequence[str]) -> tuple[list[Field], int]:
    """Return the fields and the number of lines that front matter takes (0 where there is none)."""
    fence = lines[0].lstrip("\ufeff").rstrip() if lines else ""
    if fence not in ("---", "+++"):
        return [], 0
    closers = ("---", "...") if fence == "---" else ("+++",)
    for number in range(1, min(len(lines), _MAX_LINES)):
        if lines[number].rstrip() in closers:
            return _fields(lines, number), number + 1
    return [], 0


def _fields(lines: Sequence[str], end: int) -> list[Field]:
    fields: list[Field] = []
    for number in range(1, end):
        line = lines[number]
        key = _KEY.match(line)
        if key:
            label = key.group(1).strip().lower().replace("_", "-").replace("-", " ")
            fields.append(Field(label, _scalar(key.group(2) or ""), number))
            continue
        item = _ITEM.match(line)
        continued = item.group(1) if item else line.strip() if line[:1] in (" ", "\t") else ""
        if continued and fields and not continued.startswith("#"):
            last = fields[-1]
            joiner = ", " if item else " "
            value = _scalar(continued)
            opened = last.value in ("", "|", ">", "|-", ">-")
            fields[-1] = Field(last.label, value if opened else last.value + joiner + value, last.line)
    return fields


def _scalar(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] in "\"'":
        closing = text.find(text[0], 1)
        return text[1:closing] if closing > 0 else text[1:]
    if text.startswith("#"):
        return ""
    text = _COMMENT.sub("", text).strip()
    if len(text) >= 2 and text[0] == "[" and text[-1] == "]" and "](" not in text:
        return ", ".join(part.strip().strip("\"'") for part in text[1:-1].split(","))
    return text
