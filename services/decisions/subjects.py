"""What a query may name besides asking: a path or a symbol, and how closely a record comes to naming the same.

A record names a path by itself, by its end or by a folder around it, and a symbol with or without its module, its
arguments and the marks of its language (``a.b::c->d#e()``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from services.decisions.corpus import Named, Record
from services.decisions.records import MentionKind

_LINES = re.compile(r":\d+(?:[-:]\d+)?$")
_SYMBOL = re.compile(r"[@#&*]?[^\W\d][\w$]*(?:(?:\.|::|->|#|/)[^\W\d][\w$]*)*[!?]?")
_ARGUMENTS = re.compile(r"\([^()]*\)$|<[^<>]*>$")
_SEPARATOR = re.compile(r"\.|::|->|#|/")
# A name that is more than a word of the language: snake_case, or with a capital.
_DISTINCTIVE = re.compile(r"[^\W_]_+[^\W_]|[A-Z]")

SELF, EXACT, NEAR, FAR, AROUND = 5, 4, 3, 2, 1


@dataclass(frozen=True, slots=True)
class Match:
    """A line of a record that names the subject; ``closeness`` is SELF, EXACT, NEAR, FAR or AROUND."""

    closeness: int
    line: int


class Subject:
    """A query taken as the name of something. A question matches nothing."""

    def __init__(self, query: str) -> None:
        text = query.strip().strip("`\"'").strip()
        self._path = _LINES.sub("", text).removeprefix("./").strip("/")
        self._symbol = _parts(text)

    def matches(self, record: Record) -> list[Match]:
        """Return the lines of a record that name the subject: closest first, then in the order of the text."""
        found = {one.line: 0 for one in record.named}
        for one in record.named:
            found[one.line] = max(found[one.line], self._closeness(one))
        matches = [Match(closeness, line) for line, closeness in found.items() if closeness]
        if self._path and _ends(record.key.path, self._path):
            matches.append(Match(SELF, 1))
        return sorted(matches, key=lambda match: (-match.closeness, match.line))

    def _closeness(self, named: Named) -> int:
        if named.kind is MentionKind.FILE:
            return _path_closeness(self._path, named) if self._path else 0
        return _symbol_closeness(self._symbol, _parts(named.text)) if self._symbol else 0


def _path_closeness(asked: str, named: Named) -> int:
    path = named.text
    if path == asked:
        return EXACT
    if _ends(path, asked) or (not named.certain and _ends(asked, path)):
        return NEAR
    if path.startswith(asked + "/"):
        return FAR
    return AROUND if asked.startswith(path + "/") else 0


def _symbol_closeness(asked: Sequence[str], named: Sequence[str]) -> int:
    if asked == named:
        return EXACT
    shorter, longer = sorted((asked, named), key=len)
    distinctive = len(shorter) > 1 or bool(_DISTINCTIVE.search(shorter[0]))
    if longer[-len(shorter) :] == shorter and (distinctive or shorter is asked):
        return NEAR if len(shorter) > 1 else FAR
    inside = any(longer[start : start + len(shorter)] == shorter for start in range(len(longer) - len(shorter)))
    return AROUND if inside and distinctive else 0


def _ends(path: str, end: str) -> bool:
    return path == end or path.endswith("/" + end)


def _parts(text: str) -> list[str]:
    """Return the names that a symbol is made of; none where ``text`` is no symbol."""
    bare = _ARGUMENTS.sub("", _ARGUMENTS.sub("", text))
    if not _SYMBOL.fullmatch(bare):
        return []
    return _SEPARATOR.split(bare.strip("@#&*!?"))
