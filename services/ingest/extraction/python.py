"""Python by ``ast``: one chunk per function and method, one per class body without its methods, the rest by module.

Every non-blank line belongs to exactly one chunk: a definition owns its decorators and the comments above it, what
lies between definitions goes to the class or module chunk of its owner, and comments alone go to the definition below.
Nested functions stay in their parent unless it is over the budget. A file that does not parse is outlined instead.
"""

from __future__ import annotations

import ast
import bisect
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.ingest.chunks import (
    Budget,
    ChunkKind,
    Extraction,
    Note,
    Reference,
    ReferenceKind,
    Symbol,
    SymbolKind,
    Unit,
    bounded,
    structural_key,
)
from services.ingest.extraction.definitions import Definition, from_outline, from_tree
from services.ingest.extraction.outline import outline, without_type_parameters
from services.ingest.extraction.references import Bindings, imports_of_lines
from services.ingest.modules import is_package
from services.ingest.sniffing import split_lines

_CHUNK_KINDS = {
    SymbolKind.MODULE: ChunkKind.MODULE,
    SymbolKind.CLASS: ChunkKind.CLASS,
    SymbolKind.FUNCTION: ChunkKind.FUNCTION,
    SymbolKind.METHOD: ChunkKind.METHOD,
}


def extract_python(path: str, text: str, *, module: str, budget: Budget) -> Extraction:
    """Extract one Python file; ``text`` has LF line ends."""
    lines = split_lines(text)
    notes: list[Note] = []
    references: list[Reference] = []
    variables: list[Symbol] = []
    tree = _parse(text, notes)
    if tree is None:
        root, ranks = from_outline(outline(text, lines), lines)
        imports = imports_of_lines(lines, module, package=is_package(path))
        references += [Reference(module, ReferenceKind.IMPORT, target, True, line) for line, target in imports]
    else:
        root, ranks = from_tree(tree, lines)
        bindings = Bindings(tree, module, package=is_package(path))
        references += bindings.references()
        variables = [
            Symbol(SymbolKind.VARIABLE, name, f"{module}.{name}" if module else name, "", "", start, end, "")
            for name, start, end in bindings.variables()
        ]
    units = list(_Partition(root, lines, module, path, budget).units())
    chunks, size_notes = bounded(units, lines, ranks, budget, path=path, language="python", module=module)
    symbols = _symbols(root, variables, path, module, len(lines))
    return Extraction(path, "python", module, chunks, symbols, tuple(references), (*notes, *size_notes))


def _parse(text: str, notes: list[Note]) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes of other people's code
        try:
            return ast.parse(text)
        except SyntaxError as error:
            first = error
        except (RecursionError, MemoryError):  # MemoryError is what the parser raises when its own stack is full
            notes.append(Note("not_parsed", "nested too deeply, or too large, for the parser"))
            return None
        except ValueError as error:
            notes.append(Note("not_parsed", f"ValueError: {error}"))
            return None
        relaxed = without_type_parameters(text)
        if relaxed is not None:
            try:
                tree = ast.parse(relaxed)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                pass
            else:
                notes.append(Note("type_parameters_dropped", "type parameters need a later Python", first.lineno or 0))
                return tree
    notes.append(Note("not_parsed", f"SyntaxError: {first.msg}", first.lineno or 0))
    return None


@dataclass(frozen=True, slots=True)
class _Partition:
    """Divides the lines of a file among its definitions."""

    root: Definition
    lines: Sequence[str]
    module: str
    path: str
    budget: Budget

    def units(self) -> Iterator[Unit]:
        children = [child for child in self.root.children if not child.merged]
        if len(children) == 1 and children[0].kind is SymbolKind.FUNCTION:
            whole = self._unit(children[0], 1, len(self.lines))
            if self._fits(whole):  # a file that is one function is one chunk
                yield whole
                return
        yield from self._divide(self.root, 1, len(self.lines))

    def _divide(self, owner: Definition, start: int, end: int) -> Iterator[Unit]:
        """Divide the lines of one owner between its children and itself."""
        spans: list[tuple[Definition, int, int]] = []
        own: list[tuple[int, int]] = []
        cursor = start
        for child in owner.children:
            first = child.start_line
            if child.merged and spans:
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
            if owned is None:
                yield self._unit(owner, first, last)
            else:
                yield from self._child(owned, first, last)

    def _child(self, child: Definition, start: int, end: int) -> Iterator[Unit]:
        unit = self._unit(child, start, end)
        if child.kind is SymbolKind.CLASS or (child.children and not child.is_overload and not self._fits(unit)):
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
        kind = _CHUNK_KINDS[definition.kind]
        return Unit(
            kind=kind,
            anchor=(".".join(definition.names),) if definition.names else (),
            qualified_name=_qualified(self.module, definition.names),
            name=definition.name or self.module.rpartition(".")[2],
            title=" > ".join([self.module or self.path, *definition.names]),
            start_line=start,
            end_line=end,
        )

    def _fits(self, unit: Unit) -> bool:
        return self.budget.fits(unit.title, "\n".join(self.lines[unit.start_line - 1 : unit.end_line]).strip("\n"))


def _start(span: tuple[int, int, Definition | None]) -> int:
    return span[0]


def _qualified(module: str, names: Sequence[str]) -> str:
    return ".".join([module, *names]) if module else ".".join(names)


def _symbols(
    root: Definition, variables: Sequence[Symbol], path: str, module: str, line_count: int
) -> tuple[Symbol, ...]:
    found = [Symbol(SymbolKind.MODULE, module.rpartition(".")[2], module, "", root.summary, 1, max(1, line_count), "")]
    found += [
        Symbol(
            definition.kind,
            definition.name,
            _qualified(module, definition.names),
            definition.signature,
            definition.summary,
            definition.start_line,
            definition.end_line,
            ".".join(definition.names),
        )
        for definition in root.walk()
        if definition.names
    ]
    found += variables
    found.sort(key=lambda symbol: (symbol.start_line, -symbol.end_line))
    ordinals: Counter[str] = Counter()
    symbols: list[Symbol] = []
    for symbol in found:
        anchor = symbol.key or (symbol.name if symbol.kind is SymbolKind.VARIABLE else "")
        key = structural_key(path, (anchor,) if anchor else (), ordinals[anchor])
        ordinals[anchor] += 1
        symbols.append(
            Symbol(
                symbol.kind,
                symbol.name,
                symbol.qualified_name,
                symbol.signature,
                symbol.summary,
                symbol.start_line,
                symbol.end_line,
                key,
            )
        )
    return tuple(symbols)
