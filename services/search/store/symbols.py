"""Symbols, and the references from and to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from services.core.db import Connection
from services.core.snapshots import Scope
from services.search.queries import Filter, Reference, Symbol
from services.search.store.filters import LIVES, OF_FILES, parameters, place, where

_SYMBOL = """
SELECT s.qualified_name, s.name, s.kind, s.signature, s.summary, s.language, s.package, s.path, s.start_line, s.end_line
FROM symbols s
"""
# A name finds the symbols of that name, a dotted one those whose qualified name ends with it.
_NAMED = """
s.name = %(last)s AND (s.qualified_name = %(name)s OR right(s.qualified_name, length(%(name)s) + 1) = '.' || %(name)s
                       OR s.name = %(name)s)
"""


async def symbols(
    connection: Connection, scope: Scope, restriction: Filter, name: str, after: tuple[str, str, int], limit: int
) -> list[Symbol]:
    """List definitions by (qualified name, path, line) after a position."""
    cursor = await connection.execute(
        f"""
        {_SYMBOL} WHERE {_NAMED} AND {LIVES.format("s")}
        {where(restriction, "s", OF_FILES)}
        AND (s.qualified_name, s.path, s.start_line) > (%(after_name)s, %(after_path)s, %(after_line)s)
        ORDER BY s.qualified_name, s.path, s.start_line LIMIT %(limit)s
        """,
        {
            **parameters(scope, restriction),
            "name": name,
            "last": name.rpartition(".")[2],
            "after_name": after[0],
            "after_path": after[1],
            "after_line": after[2],
            "limit": limit,
        },
    )
    return [_symbol(scope, row) for row in await cursor.fetchall()]


def _symbol(scope: Scope, row: Mapping[str, Any]) -> Symbol:
    return Symbol(
        qualified_name=row["qualified_name"],
        name=row["name"],
        kind=row["kind"],
        signature=row["signature"],
        summary=row["summary"],
        language=row["language"],
        place=place(scope, row),
    )


_INCOMING = """
e.target_name = %(last)s AND (
    e.target_symbol = ANY(%(definitions)s)
    OR e.target_symbol = %(name)s
    OR right(e.target_symbol, length(%(name)s) + 1) = '.' || %(name)s
    OR NOT e.resolved
    -- A name that another module passes on: resolved, but to no definition of this project.
    OR NOT EXISTS (
        SELECT FROM symbols s WHERE s.qualified_name = e.target_symbol AND s.project_id = e.project_id
          AND s.born <= %(generation)s AND (s.died IS NULL OR s.died > %(generation)s)
    )
)
"""
_OUTGOING = "e.source_symbol = ANY(%(definitions)s)"


async def references(
    connection: Connection,
    scope: Scope,
    restriction: Filter,
    *,
    name: str,
    definitions: Sequence[str],
    outgoing: bool,
    kinds: Sequence[int],
    resolved_only: bool,
    limit: int,
) -> list[Reference]:
    """List edges to a symbol, or from it: certain ones first, then by package, path and line.

    An incoming edge is certain when its target is one of ``definitions``, an outgoing one when it was resolved.
    """
    certain = "e.resolved" if outgoing else "(e.resolved AND e.target_symbol = ANY(%(definitions)s))"
    cursor = await connection.execute(
        f"""
        SELECT e.source_symbol, e.kind, e.target_symbol, {certain} AS certain, e.line_text, e.package, e.path,
               e.line AS start_line, e.line AS end_line
        FROM edges e
        WHERE {_OUTGOING if outgoing else _INCOMING} AND {LIVES.format("e")}
        {where(restriction, "e", OF_FILES)}
        AND (%(any_kind)s OR e.kind = ANY(%(edge_kinds)s)) AND (NOT %(resolved_only)s OR {certain})
        ORDER BY certain DESC, e.package, e.path, e.line, e.kind, e.target_symbol, e.source_symbol
        LIMIT %(limit)s
        """,
        {
            **parameters(scope, restriction),
            "name": name,
            "last": name.rpartition(".")[2],
            "definitions": list(definitions),
            "any_kind": not kinds,
            "edge_kinds": list(kinds),
            "resolved_only": resolved_only,
            "limit": limit,
        },
    )
    return [
        Reference(
            source_symbol=row["source_symbol"],
            kind=row["kind"],
            target_symbol=row["target_symbol"],
            resolved=row["certain"],
            line_text=row["line_text"],
            place=place(scope, row),
        )
        for row in await cursor.fetchall()
    ]
