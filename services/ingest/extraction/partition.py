"""From a tree of definitions to the units that become chunks, and to symbols: the same for every language.

Every non-blank line belongs to exactly one unit: a definition owns its decorators and the comments above it, what lies
between definitions goes to the class or module unit of its owner, and comments alone go to the definition below. Nested
functions stay in their parent unless it is over the budget.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from services.ingest.chunks import Budget, ChunkKind, Symbol, SymbolKind, Unit, structural_key
from services.ingest.extraction.definitions import Definition

_CHUNK_KINDS = {
    SymbolKind.MODULE: ChunkKind.MODULE,
    SymbolKind.CLASS: ChunkKind.CLASS,
    SymbolKind.FUNCTION: ChunkKind.FUNCTION,
    SymbolKind.METHOD: ChunkKind.METHOD,
}
_ALWAYS_DIVIDED = (SymbolKind.CLASS, SymbolKind.MODULE)


@dataclass(frozen=True, slots=True)
class Naming:
    """How the definitions of a file are named."""

    module: str  # qualified name of the file itself
    prefix: str  # what the qualified names of its definitions begin with; "" where the language has global names
    head: str  # first part of every title

    @property
    def name(self) -> str:
        return self.module.rpartition(".")[2]

    def qualified(self, names: Sequence[str]) -> str:
        """Return the qualified name of a definition, or of the module for no names."""
        if not names:
            return self.module
        return ".".join([self.prefix, *names]) if self.prefix else ".".join(names)


@dataclass(frozen=True, slots=True)
class Partition:
    """Divides the lines of a file among its definitions."""

    root: Definition
    lines: Sequence[str]
    naming: Naming
    budget: Budget

    def units(self) -> Iterator[Unit]:
        """Yield the units in the order of their lines."""
        children = [child for child in self.root.children if not child.merged]
        if len(children) == 1 and children[0].kind is SymbolKind.FUNCTION and not children[0].is_declaration:
            whole = self._unit(children[0], 1, len(self.lines))
            if self._fits(whole):  # a file that is one function is one chunk
                yield whole
                return
        # Trees of hostile files are deep: generators that call each other would end at the interpreter's limit.
        pending: list[Iterator[Unit | tuple[Definition, int, int]]] = [self._divide(self.root, 1, len(self.lines))]
        while pending:
            for part in pending[-1]:
                if isinstance(part, Unit):
                    yield part
                else:
                    pending.append(self._child(*part))
                    break
            else:
                pending.pop()

    def _divide(self, owner: Definition, start: int, end: int) -> Iterator[Unit | tuple[Definition, int, int]]:
        """Divide the lines of one owner between its children and itself."""
        spans: list[tuple[Definition, int, int]] = []
        own: list[tuple[int, int]] = []
        cursor = start
        for child in owner.children:
            first = child.start_line
            if child.merged:
                if spans:  # else it begins on the line of its owner, and stays there
                    previous, previous_start, _ = spans[-1]
                    spans[-1] = (previous, previous_start, child.end_line)
                    cursor = child.end_line + 1
                continue
            if self._holds_statement(owner, cursor, first - 1):
                own.append((cursor, first - 1))
            else:
                first = self._first_text(cursor, first)
            spans.append((child, first, child.end_line))
            cursor = child.end_line + 1
        if self._holds_statement(owner, cursor, end) or not spans:
            own.append((cursor, end))
        else:
            child, first, _ = spans[-1]
            spans[-1] = (child, first, end)
        ordered = sorted([*((a, b, None) for a, b in own), *((a, b, child) for child, a, b in spans)], key=_start)
        for first, last, owned in ordered:
            yield self._unit(owner, first, last) if owned is None else (owned, first, last)

    def _child(self, child: Definition, start: int, end: int) -> Iterator[Unit | tuple[Definition, int, int]]:
        unit = self._unit(child, start, end)
        divided = child.kind in _ALWAYS_DIVIDED and not child.stays_whole
        if divided or (child.children and not child.is_overload and not self._fits(unit)):
            yield from self._divide(child, start, end)
        else:
            yield unit

    def _holds_statement(self, owner: Definition, start: int, end: int) -> bool:
        """Whether a run of an owner's lines says something of its own; comments and ``else:`` alone do not."""
        if start <= owner.line <= end:
            return True
        place = bisect.bisect_left(owner.statement_lines, start)
        return place < len(owner.statement_lines) and owner.statement_lines[place] <= end

    def _first_text(self, start: int, end: int) -> int:
        return next((number for number in range(start, end) if self.lines[number - 1].strip()), end)

    def _unit(self, definition: Definition, start: int, end: int) -> Unit:
        return Unit(
            kind=_CHUNK_KINDS[definition.kind],
            anchor=(".".join(definition.names),) if definition.names else (),
            qualified_name=self.naming.qualified(definition.names),
            name=definition.name or self.naming.name,
            title=" > ".join([self.naming.head, *definition.names]),
            start_line=start,
            end_line=end,
        )

    def _fits(self, unit: Unit) -> bool:
        return self.budget.fits(unit.title, "\n".join(self.lines[unit.start_line - 1 : unit.end_line]).strip("\n"))


def _start(span: tuple[int, int, Definition | None]) -> int:
    return span[0]


def symbols_of(
    root: Definition, more: Sequence[Symbol], naming: Naming, path: str, line_count: int
) -> tuple[Symbol, ...]:
    """Return the symbols of a file in the order of their lines, each with its key.

    ``more`` are those that are no definitions of the tree; their ``key`` is the names within the module, or "".
    """
    found = [Symbol(SymbolKind.MODULE, naming.name, naming.module, "", root.summary, 1, max(1, line_count), "")]
    found += [
        Symbol(
            definition.kind,
            definition.name,
            naming.qualified(definition.names),
            definition.signature,
            definition.summary,
            definition.start_line,
            definition.end_line,
            ".".join(definition.names),
        )
        for definition in root.walk()
        if definition.names and definition.is_symbol
    ]
    found += more
    found.sort(key=lambda symbol: (symbol.start_line, -symbol.end_line))
    ordinals: Counter[str] = Counter()
    symbols: list[Symbol] = []
    for symbol in found:
        anchor = symbol.key or (symbol.name if symbol.kind is SymbolKind.VARIABLE else "")
        key = structural_key(path, (anchor,) if anchor else (), ordinals[anchor])
        ordinals[anchor] += 1
        symbols.append(replace(symbol, key=key))
    return tuple(symbols)
