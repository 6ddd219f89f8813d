"""What stands in Markdown files and is no Markdown: front matter, and the modules of MDX."""

from __future__ import annotations

import re

_FRONT_MATTER = re.compile(
    r"---[ \t]*\n(?P<yaml>.*?)^(?:---|\.\.\.)[ \t]*$|\+\+\+[ \t]*\n(?P<toml>.*?)^\+\+\+[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
# A rule at the top of a document looks the same; what follows it is no key.
_KEY = re.compile(
    r"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*(?:[\w$.-]+|\"[^\"\n]+\"|'[^'\n]+')[ \t]*(?::(?:[ \t]|$)|=)", re.MULTILINE
)
_TITLE = re.compile(r"^title[ \t]*[:=][ \t]*(?P<title>[^\n]+?)[ \t]*$", re.MULTILINE)
_TITLE_CHARACTERS = 200
_MODULE = re.compile(r"(?:import|export)\b(?=[ \t{*\"'])")
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


def front_matter(text: str) -> tuple[int, str]:
    """Return how many characters the front matter takes, 0 where there is none, and the title that it gives."""
    match = _FRONT_MATTER.match(text)
    if match is None:
        return 0, ""
    body = match["yaml"] if match["yaml"] is not None else match["toml"]
    if body.strip() and not _KEY.match(body):
        return 0, ""
    title = _TITLE.search(body)
    return match.end(), _unquoted(title["title"])[:_TITLE_CHARACTERS] if title else ""


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] in "\"'" and value[-1] == value[0]:
        return value[1:-1].strip()
    return "" if value[0] in "|>&*!" else value.partition(" #")[0].strip()


def without_modules(text: str) -> str:
    """Blank out imports and exports of MDX, keeping every line where it is; they end with a blank line."""
    lines = text.split("\n")
    begins_block = True
    within = False
    depth = 0
    for number, line in enumerate(lines):
        is_blank = not line.strip()
        if within and is_blank and depth <= 0:
            within = False
        elif begins_block and _MODULE.match(line):
            within, depth = True, 0
        if within:
            depth += sum((character in _OPENING) - (character in _CLOSING) for character in line)
            lines[number] = ""
        begins_block = is_blank
    return "\n".join(lines)
