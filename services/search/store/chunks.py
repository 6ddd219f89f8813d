"""Chunks, with the places of their text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from services.core.db import Connection
from services.core.errors import NotFound
from services.core.snapshots import Scope
from services.search.queries import Chunk, Filter
from services.search.store.filters import CHUNK_LIVES, parameters, place, where


async def chunks_of_contents(
    connection: Connection, scope: Scope, restriction: Filter, ids: Sequence[int]
) -> dict[int, Chunk]:
    """Return contents as chunks, with every place of the same text that lives in the scope and passes the filter."""
    cursor = await connection.execute(
        f"""
        SELECT w.id AS wanted, t.id = w.id AS own, t.title, t.text, c.key, c.kind, c.language, c.qualified_name,
               c.package, c.path, c.start_line, c.end_line
        FROM contents w
        JOIN contents t ON t.project_id = w.project_id AND t.text_hash = w.text_hash
        JOIN chunks c ON c.content_id = t.id
        WHERE w.id = ANY(%(ids)s) AND w.project_id = %(project)s AND {CHUNK_LIVES} {where(restriction, "c")}
        ORDER BY w.id, (t.id = w.id) DESC, c.key
        """,
        {**parameters(scope, restriction), "ids": list(ids)},
    )
    rows: dict[int, list[dict[str, Any]]] = {}
    for row in await cursor.fetchall():
        rows.setdefault(row["wanted"], []).append(row)
    return {content_id: _chunk(scope, group) for content_id, group in rows.items() if group[0]["own"]}


def _chunk(scope: Scope, rows: Sequence[Mapping[str, Any]]) -> Chunk:
    first = rows[0]
    return Chunk(
        key=first["key"],
        kind=first["kind"],
        language=first["language"],
        title=first["title"],
        qualified_name=first["qualified_name"],
        text=first["text"],
        places=tuple(place(scope, row) for row in rows),
    )


async def chunk_with_neighbours(
    connection: Connection, scope: Scope, key: str, neighbours: int
) -> tuple[Chunk, list[Chunk], list[Chunk]]:
    """Return a chunk, and those before and after it in its file."""
    cursor = await connection.execute(
        f"""
        WITH wanted AS (SELECT c.source_id, c.path FROM chunks c WHERE c.key = %(key)s AND {CHUNK_LIVES})
        SELECT t.title, t.text, c.key, c.kind, c.language, c.qualified_name, c.package, c.path, c.start_line, c.end_line
        FROM wanted w JOIN chunks c ON c.source_id = w.source_id AND c.path = w.path
        JOIN contents t ON t.id = c.content_id
        WHERE {CHUNK_LIVES} ORDER BY c.start_line, c.end_line, c.key
        """,
        {"project": scope.project_id, "generation": scope.generation, "key": key},
    )
    found = [_chunk(scope, [row]) for row in await cursor.fetchall()]
    position = next((i for i, chunk in enumerate(found) if chunk.key == key), None)
    if position is None:
        raise NotFound(
            f"Generation {scope.generation} of {scope.project} has no chunk {key!r}.",
            remedy="Take the key and the generation from one search answer.",
            reason="CHUNK_NOT_FOUND",
        )
    return (
        found[position],
        found[max(0, position - neighbours) : position],
        found[position + 1 : position + 1 + neighbours],
    )


async def list_chunks(connection: Connection, scope: Scope, restriction: Filter, after: str, limit: int) -> list[Chunk]:
    """List chunks by key after a key."""
    cursor = await connection.execute(
        f"""
        SELECT t.title, t.text, c.key, c.kind, c.language, c.qualified_name, c.package, c.path, c.start_line, c.end_line
        FROM chunks c JOIN contents t ON t.id = c.content_id
        WHERE {CHUNK_LIVES} {where(restriction, "c")} AND c.key > %(after)s ORDER BY c.key LIMIT %(limit)s
        """,
        {**parameters(scope, restriction), "after": after, "limit": limit},
    )
    return [_chunk(scope, [row]) for row in await cursor.fetchall()]
