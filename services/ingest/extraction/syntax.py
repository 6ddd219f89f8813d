"""From what a grammar's query captured to the tree of definitions, and the ranks of lines.

Definitions nest as their spans do. A definition takes along the comments and attributes right above it. What could not
be parsed defines nothing and stays with the definition, or the module, that it stands in.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from services.ingest.chunks import SymbolKind
from services.ingest.extraction.captures import Captured, Found, rows_of
from services.ingest.extraction.comments import first_sentence, is_legal
from services.ingest.extraction.definitions import RANK_NONE, Definition, base_ranks, rank_statement, shortened
from services.ingest.extraction.grammars import Grammar

_CALLABLE = frozenset({"function", "method", "macro", "procedure"})
_FUNCTIONS = (SymbolKind.FUNCTION, SymbolKind.METHOD)
_SYMBOL_ONLY = frozenset({"constant", "variable"})
_SCOPES = {"namespace": SymbolKind.MODULE, "implementation": SymbolKind.CLASS}
# Definitions in definitions: more is no code that anybody wrote, and each level repeats the names above it.
_MAX_NESTING = 24
# A declaration of so many lines is worth a chunk although nobody documented it.
_LONG_DECLARATION_LINES = 4
_SIGNATURE_BYTES = 1600
_NOT_A_STATEMENT = re.compile(
    r"[\s})\];,]*(?:(?<=[})\];,\s])(?://|/\*|--|#(?!\w)).*)?$"
    r"|\s*(?:end|fi|done|esac|else|\{|<\?php|\?>|#\s*(?:endif|else)\b.*|(?:type|var|const)\s*\("
    r"|(?:public|private|protected|signals|public slots|private slots)\s*:?|[\"']use strict[\"'])\s*;?\s*$"
)


@dataclass(slots=True)
class Syntax:
    """The structure of one file. ``symbols`` are those that are no definitions with lines of their own."""

    root: Definition
    ranks: list[int]
    symbols: list[Definition] = field(default_factory=list)
    # Byte spans of the definitions of the tree, outer before inner.
    spans: list[tuple[int, int, Definition]] = field(default_factory=list)


def build(captured: Captured, data: bytes, lines: Sequence[str], grammar: Grammar) -> Syntax:
    """Build the tree; ``lines`` are those of ``data``."""
    return _Builder(captured, data, lines, grammar).build()


class _Builder:
    def __init__(self, captured: Captured, data: bytes, lines: Sequence[str], grammar: Grammar) -> None:
        self._grammar = grammar
        self._captured = captured
        self._data = data
        self._lines = lines
        raw = data.split(b"\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in raw)]
        self._comment = bytearray(len(lines) + 1)  # by line: 1 for a comment, 2 for an attribute
        for mark, nodes in ((2, captured.attributes), (1, captured.comments)):
            for first, last in rows_of(nodes, raw):
                for row in range(first, min(last + 1, len(lines))):
                    self._comment[row + 1] = mark
        # What a signature leaves out.
        self._extras = sorted((node.start_byte, node.end_byte) for node in (*captured.attributes, *captured.comments))
        self._headers: dict[int, int] = {}  # id of a scope that is no symbol: last line of its head

    def build(self) -> Syntax:
        root = Definition(SymbolKind.MODULE, (), 1, 0, len(self._lines))
        syntax = Syntax(root, base_ranks(self._lines))
        stack: list[tuple[int, Definition]] = [(len(self._data) + 1, root)]
        found = sorted(self._captured.definitions, key=lambda one: (one.start_byte, -one.end_byte, one.order))
        for one in found:
            while one.start_byte >= stack[-1][0]:
                stack.pop()
            owner = stack[-1][1]
            if one.kind in _SYMBOL_ONLY:
                if one.parts and all(item.kind in _SCOPES.values() for _, item in stack):
                    syntax.symbols.append(self._definition(one, owner))
                continue
            if len(stack) > _MAX_NESTING or not (one.parts or one.kind in _SCOPES):
                continue
            if self._grammar.flat_functions and one.kind in _CALLABLE and owner.kind in _FUNCTIONS:
                continue
            definition = self._definition(one, owner)
            owner.children.append(definition)
            stack.append((min(one.end_byte, stack[-1][0]), definition))
            above = definition.start_line < one.start_row + 1
            start = self._starts[definition.start_line - 1] if above else one.start_byte
            syntax.spans.append((start, one.end_byte, definition))
        walked = list(root.walk())
        for owner in reversed(walked):
            self._settle(owner, syntax)
        for owner in root.walk():
            self._merge(owner)
            if owner.children or owner.kind not in _FUNCTIONS:
                owner.statement_lines = self._statement_lines(owner)
        for owner in reversed(walked):
            owner.stays_whole = owner.kind is SymbolKind.CLASS and all(child.stays_whole for child in owner.children)
        kept = {id(definition) for definition in root.walk()}
        syntax.spans = [span for span in syntax.spans if id(span[2]) in kept]
        root.summary = self._module_summary(root)
        self._rank(syntax.ranks)
        return syntax

    def _definition(self, one: Found, owner: Definition) -> Definition:
        names = (*(() if one.is_global else owner.names), *one.scope, *one.parts)
        kind = _SCOPES.get(one.kind, SymbolKind.CLASS)
        if one.kind in _CALLABLE:
            is_owned = owner.kind is SymbolKind.CLASS or one.scope or len(one.parts) > 1 or one.kind == "method"
            kind = SymbolKind.METHOD if is_owned else SymbolKind.FUNCTION
        elif one.kind in _SYMBOL_ONLY:
            kind = SymbolKind.VARIABLE
        first = one.start_row + 1
        while first - 1 >= 1 and self._comment[first - 1]:
            first -= 1
        comments: Sequence[str] = [
            self._lines[number - 1] for number in range(first, one.start_row + 1) if self._comment[number] == 1
        ]
        if not comments and one.doc == "":
            comments = self._apart(first - 1)
        is_scope = one.kind in _SCOPES
        definition = Definition(
            kind,
            names,
            max(first, owner.start_line),
            0 if is_scope else one.name_row + 1,
            min(one.end_row + 1, owner.end_line),
            signature="" if is_scope else self._signature(one),
            summary=first_sentence(one.doc.split("\n") if one.doc else comments),
            is_symbol=not is_scope,
            is_declaration=one.is_declaration,
        )
        if is_scope:
            self._headers[id(definition)] = max(one.name_row, one.body_row) + 1
        return definition

    def _apart(self, blank: int) -> Sequence[str]:
        """Return a documentation comment that one blank line parts from its definition."""
        end = blank - 1
        if end < 1 or self._lines[blank - 1].strip() or self._comment[end] != 1:
            return []
        start = end
        while self._comment[start - 1] == 1:
            start -= 1
        comment = self._lines[start - 1 : end]
        return comment if comment[0].lstrip().startswith("/**") and not is_legal(comment) else []

    def _signature(self, one: Found) -> str:
        """Return the head of a definition up to its body, on one line, without attributes."""
        stop = min(one.end_byte if one.body_byte is None else one.body_byte, one.start_byte + _SIGNATURE_BYTES)
        kept: list[bytes] = []
        position = one.start_byte
        for place in range(bisect_left(self._extras, (position, 0)), len(self._extras)):
            start, end = self._extras[place]
            if start >= stop:
                break
            if start >= position:
                kept.append(self._data[position:start])
                position = end
        kept.append(self._data[position:stop])
        text = b" ".join(kept).decode("utf-8", "ignore")
        if one.body_byte is None:
            text = _first_lines(text.lstrip(), is_declaration=one.is_declaration)
        if one.kind == "struct" and one.parts[-1] not in text:
            text += f" {one.parts[-1]}"  # a typedef has its name behind the body
        return shortened(" ".join(text.split()).rstrip(" {=;:,").removesuffix("=>").rstrip())

    def _settle(self, owner: Definition, syntax: Syntax) -> None:
        """Turn those declarations into symbols alone that are not worth lines of their own."""
        owner.children.sort(key=lambda child: (child.start_line, -child.end_line))
        kept: list[Definition] = []
        following: Definition | None = None
        for child in reversed(owner.children):
            if not child.is_declaration:
                kept.append(child)
                following = child
                continue
            if following is not None and following.name == child.name and self._adjoin(child, following):
                child.is_overload, following.merged = True, True
            elif not (child.children or (owner.kind is not SymbolKind.CLASS and self._is_worth_lines(child))):
                syntax.symbols.append(child)
                following = None
                continue
            kept.append(child)
            following = child
        owner.children = kept[::-1]

    def _adjoin(self, child: Definition, following: Definition) -> bool:
        return not any(line.strip() for line in self._lines[child.end_line : following.start_line - 1])

    def _is_worth_lines(self, child: Definition) -> bool:
        documented = self._comment[child.start_line] == 1 and child.start_line < child.line
        return documented or child.end_line - child.line >= _LONG_DECLARATION_LINES - 1

    def _merge(self, owner: Definition) -> None:
        """Keep definitions apart that share no line, and together those that do."""
        busy = owner.line
        for child in owner.children:
            if child.start_line <= busy:
                child.merged = True
                child.start_line = min(child.start_line, child.end_line)
            busy = max(busy, child.end_line)

    def _statement_lines(self, owner: Definition) -> list[int]:
        """List the lines of an owner that say something of its own."""
        found: list[int] = []
        position = max(owner.start_line, self._headers.get(id(owner), 0) + 1 if not owner.is_symbol else 1)
        spans = [(child.start_line, child.end_line) for child in owner.children]
        for start, end in [*spans, (owner.end_line + 1, owner.end_line)]:
            found += [
                number
                for number in range(position, start)
                if not self._comment[number] and not _NOT_A_STATEMENT.match(self._lines[number - 1])
            ]
            position = max(position, end + 1)
        return found

    def _module_summary(self, root: Definition) -> str:
        if self._captured.doc:
            return first_sentence(self._captured.doc.split("\n"))
        position = 1
        bound = min((child.start_line for child in root.children), default=len(self._lines) + 1)
        while position < bound:
            if self._comment[position] != 1:
                if self._lines[position - 1].strip():
                    return ""
                position += 1
                continue
            end = position
            while end + 1 < bound and self._comment[end + 1] == 1:
                end += 1
            comment = self._lines[position - 1 : end]
            if not is_legal(comment) and not comment[0].startswith("#!"):
                return first_sentence(comment)
            if comment[0].startswith("#!") and len(comment) > 1 and not is_legal(comment[1:]):
                return first_sentence(comment[1:])
            position = end + 1
        return ""

    def _rank(self, ranks: list[int]) -> None:
        for row, depth in self._captured.statements:
            if row < len(self._lines):
                rank_statement(ranks, self._lines, row + 1, row + 1, depth)
        for above, below in pairwise(range(1, len(self._lines) + 1)):
            if self._comment[above]:
                ranks[below - 1] = RANK_NONE  # a comment stays with what it is about


def _first_lines(text: str, *, is_declaration: bool) -> str:
    """Cut a head whose body no field marks: at the first brace, or behind the line in which all brackets are closed."""
    depth = 0
    for place, character in enumerate(text):
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif depth <= 0 and (character in "{\n" or (text.startswith("=>", place) and not is_declaration)):
            return text[:place]
    return text
