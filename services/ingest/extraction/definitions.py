"""Definitions of a source file as a tree of line spans, and the ranks of its lines: the same for every language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from services.ingest.chunks import SymbolKind

STATEMENT_DEPTH_CAP = 20
RANK_NONE = 100
_SIGNATURE_CHARACTERS = 400


@dataclass(slots=True)
class Definition:
    """A module, class or function; lines count from 1. Decorators and comments above belong to the span."""

    kind: SymbolKind
    names: tuple[str, ...]  # within the module; () for the module itself
    start_line: int
    line: int  # of "def" or "class"; 0 for the module, and for what only lends its name, such as a namespace
    end_line: int
    signature: str = ""
    summary: str = ""
    is_symbol: bool = True
    is_declaration: bool = False  # has no body
    is_overload: bool = False
    stays_whole: bool = False  # where it fits the budget, although it is a class: it has no functions
    merged: bool = False  # into the definition before it: an overload and its successor, or two on one line
    children: list[Definition] = field(default_factory=list)
    statement_lines: list[int] = field(default_factory=list)  # where statements that define nothing begin

    @property
    def name(self) -> str:
        return self.names[-1] if self.names else ""

    def walk(self) -> Iterator[Definition]:
        """Yield this definition and those below it in the order of their lines."""
        pending = [self]
        while pending:
            definition = pending.pop()
            yield definition
            pending.extend(reversed(definition.children))


def base_ranks(lines: Sequence[str]) -> list[int]:
    """Rank lines that begin no statement: behind a blank line is better, as in a docstring."""
    return [RANK_NONE - 20 if number and not lines[number - 1].strip() else RANK_NONE for number in range(len(lines))]


def rank_statement(ranks: list[int], lines: Sequence[str], first: int, start: int, depth: int) -> None:
    """Rank a statement at ``start`` whose comments above begin at ``first``: a cut between them is the worst."""
    after_blank = first >= 2 and not lines[first - 2].strip()
    depth = min(depth, STATEMENT_DEPTH_CAP)
    ranks[first - 1] = min(ranks[first - 1], 2 * depth + (0 if after_blank or first == 1 else 1))
    for number in range(first + 1, start + 1):
        ranks[number - 1] = RANK_NONE


def shortened(text: str) -> str:
    """Bound a signature or a summary, and take out what text in Postgres cannot hold."""
    text = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= _SIGNATURE_CHARACTERS else text[: _SIGNATURE_CHARACTERS - 1] + "…"
