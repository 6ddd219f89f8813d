"""The definitions of a Python file as a tree of line spans, whichever way they were found."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from services.ingest.chunks import SymbolKind
from services.ingest.extraction.outline import Outlined

STATEMENT_DEPTH_CAP = 20
RANK_NONE = 100
_SIGNATURE_CHARACTERS = 400

DefinitionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(slots=True)
class Definition:
    """A module, class or function; lines count from 1. Decorators and comments above belong to the span."""

    kind: SymbolKind
    names: tuple[str, ...]  # within the module; () for the module itself
    start_line: int
    line: int  # of "def" or "class"; 0 for the module
    end_line: int
    signature: str = ""
    summary: str = ""
    is_overload: bool = False
    merged: bool = False  # into the definition before it: an overload and its successor
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


def from_tree(tree: ast.Module, lines: Sequence[str]) -> tuple[Definition, list[int]]:
    """Find the definitions of a parsed file, and rank its lines as places to cut at."""
    module = Definition(SymbolKind.MODULE, (), 1, 0, len(lines), summary=_summary(tree))
    ranks = _base_ranks(lines)
    pending: list[tuple[list[ast.stmt], Definition, int, int]] = [(tree.body, module, 0, 0)]
    while pending:
        body, owner, depth, bound = pending.pop()
        for statement in body:
            start = statement.lineno
            if isinstance(statement, DefinitionNode):
                start = min([start, *(decorator.lineno for decorator in statement.decorator_list)])
            first = _with_comments_above(lines, start, bound)
            _rank(ranks, lines, first, start, min(depth, STATEMENT_DEPTH_CAP))
            bound = statement.end_lineno or statement.lineno
            if isinstance(statement, DefinitionNode):
                definition = _definition(statement, owner, first)
                owner.children.append(definition)
                pending.append((statement.body, definition, depth + 1, statement.lineno))
                continue
            blocks = _blocks(statement)
            if not blocks:
                owner.statement_lines.append(statement.lineno)
            pending.extend((block, owner, depth + 1, statement.lineno) for block in blocks)
    _finish(module, lines)
    return module, ranks


def from_outline(outlined: Sequence[Outlined], lines: Sequence[str]) -> tuple[Definition, list[int]]:
    """Nest outlined definitions by their spans, and rank lines by indentation."""
    module = Definition(SymbolKind.MODULE, (), 1, 0, len(lines))
    ranks = _base_ranks(lines)
    stack = [(module, -1)]
    for item in outlined:
        while len(stack) > 1 and item.start_line > stack[-1][0].end_line:
            stack.pop()
        owner = stack[-1][0]
        first = _with_comments_above(lines, item.start_line, max(owner.line, _last_end(owner)))
        definition = Definition(
            _kind(item.is_class, owner),
            (*owner.names, item.name),
            first,
            item.line,
            min(item.end_line, owner.end_line),
            signature=_shortened(item.header),
        )
        owner.children.append(definition)
        _rank(ranks, lines, first, item.start_line, min(len(stack) - 1, STATEMENT_DEPTH_CAP))
        stack.append((definition, item.indent))
    inside = {number for child in module.children for number in range(child.start_line, child.end_line + 1)}
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if number not in inside and stripped and not stripped.startswith("#"):
            module.statement_lines.append(number)
            if not line[:1].isspace():
                ranks[number - 1] = min(ranks[number - 1], 2)
    for definition in module.walk():
        if definition.kind is SymbolKind.CLASS:
            covered = {n for child in definition.children for n in range(child.start_line, child.end_line + 1)}
            definition.statement_lines = [
                number
                for number in range(definition.line, definition.end_line + 1)
                if number not in covered
                and lines[number - 1].strip()
                and not lines[number - 1].lstrip().startswith("#")
            ]
    _finish(module, lines)
    return module, ranks


def _definition(node: DefinitionNode, owner: Definition, first: int) -> Definition:
    is_class = isinstance(node, ast.ClassDef)
    return Definition(
        _kind(is_class, owner),
        (*owner.names, node.name),
        first,
        node.lineno,
        node.end_lineno or node.lineno,
        signature=_signature(node),
        summary=_summary(node),
        is_overload=any(_last_name(decorator) == "overload" for decorator in node.decorator_list),
    )


def _kind(is_class: bool, owner: Definition) -> SymbolKind:
    if is_class:
        return SymbolKind.CLASS
    return SymbolKind.METHOD if owner.kind is SymbolKind.CLASS else SymbolKind.FUNCTION


def _finish(module: Definition, lines: Sequence[str]) -> None:
    for owner in module.walk():
        owner.children.sort(key=lambda child: child.start_line)
        owner.statement_lines.sort()
        for place, child in enumerate(owner.children):
            following = owner.children[place + 1] if place + 1 < len(owner.children) else None
            limit = following.start_line - 1 if following is not None else owner.end_line
            child.end_line = _with_comments_below(lines, child, limit)
    for owner in module.walk():
        _merge_overloads(owner, lines)


def _merge_overloads(owner: Definition, lines: Sequence[str]) -> None:
    """Keep overloads with what they declare: alone they are noise beside the implementation."""
    for previous, child in pairwise(owner.children):
        between = lines[previous.end_line : child.start_line - 1]
        if previous.is_overload and previous.name == child.name and not any(line.strip() for line in between):
            child.merged = True


def _with_comments_above(lines: Sequence[str], start: int, bound: int) -> int:
    """Take the unbroken run of comment lines right above; ``bound`` is the last line of what stands before."""
    while start - 1 > bound and lines[start - 2].lstrip().startswith("#"):
        start -= 1
    return start


def _with_comments_below(lines: Sequence[str], definition: Definition, limit: int) -> int:
    """Take the comments below that are indented deeper than the definition itself."""
    end = definition.end_line
    indent = _width(lines[definition.line - 1])
    for number in range(end + 1, limit + 1):
        line = lines[number - 1]
        if not line.strip():
            continue
        if not line.lstrip().startswith("#") or _width(line) <= indent:
            break
        end = number
    return end


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    blocks: list[list[ast.stmt]] = []
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if block:
            blocks.append(block)
    blocks.extend(handler.body for handler in getattr(statement, "handlers", ()))
    blocks.extend(case.body for case in getattr(statement, "cases", ()))
    return blocks


def _base_ranks(lines: Sequence[str]) -> list[int]:
    """Rank lines that begin no statement: behind a blank line is better, as in a docstring."""
    return [RANK_NONE - 20 if number and not lines[number - 1].strip() else RANK_NONE for number in range(len(lines))]


def _rank(ranks: list[int], lines: Sequence[str], first: int, start: int, depth: int) -> None:
    after_blank = first >= 2 and not lines[first - 2].strip()
    ranks[first - 1] = min(ranks[first - 1], 2 * depth + (0 if after_blank or first == 1 else 1))
    for number in range(first + 1, start + 1):
        ranks[number - 1] = RANK_NONE


def _last_end(owner: Definition) -> int:
    return owner.children[-1].end_line if owner.children else 0


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _signature(node: DefinitionNode) -> str:
    try:
        if isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base) for base in node.bases]
            bases += [f"{keyword.arg or '**'}={ast.unparse(keyword.value)}" for keyword in node.keywords]
            return _shortened(f"class {node.name}({', '.join(bases)})" if bases else f"class {node.name}")
        prefix = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
        return _shortened(f"{prefix} {node.name}({ast.unparse(node.args)}){returns}")
    except (RecursionError, ValueError):
        return node.name


def _summary(node: DefinitionNode | ast.Module) -> str:
    docstring = ast.get_docstring(node, clean=False) or ""
    # A docstring may hold what text in Postgres cannot.
    storable = docstring.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    first = next((line.strip() for line in storable.split("\n") if line.strip()), "")
    return _shortened(first)


def _shortened(text: str) -> str:
    text = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= _SIGNATURE_CHARACTERS else text[: _SIGNATURE_CHARACTERS - 1] + "…"


def _width(line: str) -> int:
    expanded = line.replace("\f", "").expandtabs(8)
    return len(expanded) - len(expanded.lstrip(" "))
