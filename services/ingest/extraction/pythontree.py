"""Python's definitions from the tree of ``ast``."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import pairwise

from services.ingest.chunks import SymbolKind
from services.ingest.extraction.definitions import Definition, base_ranks, rank_statement, shortened

DefinitionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def from_tree(tree: ast.Module, lines: Sequence[str]) -> tuple[Definition, list[int]]:
    """Find the definitions of a parsed file, and rank its lines as places to cut at."""
    module = Definition(SymbolKind.MODULE, (), 1, 0, len(lines), summary=_summary(tree))
    ranks = base_ranks(lines)
    pending: list[tuple[list[ast.stmt], Definition, int, int]] = [(tree.body, module, 0, 0)]
    while pending:
        body, owner, depth, bound = pending.pop()
        for statement in body:
            start = statement.lineno
            if isinstance(statement, DefinitionNode):
                start = min([start, *(decorator.lineno for decorator in statement.decorator_list)])
            first = _with_comments_above(lines, start, bound)
            rank_statement(ranks, lines, first, start, depth)
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
    finish(module, lines)
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


def finish(module: Definition, lines: Sequence[str]) -> None:
    """Order what was found, and give each definition the comments at its end and its overloads."""
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
            return shortened(f"class {node.name}({', '.join(bases)})" if bases else f"class {node.name}")
        prefix = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
        return shortened(f"{prefix} {node.name}({ast.unparse(node.args)}){returns}")
    except (RecursionError, ValueError):
        return node.name


def _summary(node: DefinitionNode | ast.Module) -> str:
    docstring = ast.get_docstring(node, clean=False) or ""
    # A docstring may hold what text in Postgres cannot.
    storable = docstring.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    first = next((line.strip() for line in storable.split("\n") if line.strip()), "")
    return shortened(first)


def _width(line: str) -> int:
    expanded = line.replace("\f", "").expandtabs(8)
    return len(expanded) - len(expanded.lstrip(" "))
