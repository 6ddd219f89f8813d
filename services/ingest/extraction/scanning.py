"""Tokens of languages that we scan ourselves, with what the captures of a scanner need to know of their places."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from services.ingest.extraction.captures import Captured, Found, Mark


@dataclass(frozen=True, slots=True)
class Token:
    """A token: ``kind`` is the name of the group of the lexer that it matched. Bytes are offsets into the file."""

    kind: str
    text: str
    start: int
    end: int


class Source:
    """A file as a stream of tokens, with its rows."""

    def __init__(self, data: bytes, lexer: re.Pattern[bytes]) -> None:
        self._data = data
        self._lexer = lexer
        self._starts = [0, *(match.end() for match in re.finditer(b"\n", data))]
        self._seen = -1

    def tokens(self, captured: Captured) -> Iterator[Token]:
        """Yield tokens in order; comments go to ``captured`` instead."""
        for match in self._lexer.finditer(self._data):
            start, end = match.span()
            kind = match.lastgroup or ""
            if kind == "comment":
                captured.comments.append(Mark(start, end, self._point(start), self._point(end)))
            else:
                yield Token(kind, match[0][:400].decode("utf-8", "replace"), start, end)

    def row(self, byte: int) -> int:
        """Return the row of a byte, from 0."""
        return bisect_right(self._starts, byte) - 1

    def _point(self, byte: int) -> tuple[int, int]:
        row = self.row(byte)
        return row, byte - self._starts[row]

    def begin(self, captured: Captured, byte: int, depth: int) -> None:
        """Note that a statement begins, unless one in its row has."""
        row = self.row(byte)
        if row > self._seen:
            self._seen = row
            captured.statements.append((row, depth))

    def found(self, kind: str, parts: tuple[str, ...], start: int, name: int, *, is_declaration: bool = False) -> Found:
        """Begin a definition; ``close`` ends it."""
        return Found(
            order=0,
            kind=kind,
            is_declaration=is_declaration,
            parts=parts,
            scope=(),
            is_global=False,
            start_byte=start,
            end_byte=len(self._data),
            start_row=self.row(start),
            end_row=self.row(max(0, len(self._data.rstrip()) - 1)),
            name_row=self.row(name),
            body_byte=None,
            body_row=self.row(name),
        )

    def close(self, one: Found, end: int) -> None:
        """End a definition behind a byte."""
        one.end_byte = end
        one.end_row = self.row(max(one.start_byte, end - 1))
