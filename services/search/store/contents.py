"""Contents: which of them a query may see, and how near their vectors are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from psycopg.rows import tuple_row

from services.core.db import Connection
from services.core.snapshots import Scope
from services.search.queries import Filter
from services.search.store.filters import CHUNK_LIVES, parameters, where

# Fewer matching contents than this are searched exactly, through an allowlist, instead of widening the search.
ALLOWLIST_LIMIT = 4096
# The least key among the places of a content (of a table aliased t or s) that the query may see; NULL when it has none.
_LEAST_KEY = f"SELECT min(c.key) AS key FROM chunks c WHERE c.content_id = {{alias}}.id AND {CHUNK_LIVES} {{where}}"


async def allowed_contents(connection: Connection, scope: Scope, restriction: Filter) -> list[int] | None:
    """Return the ids of the contents that pass a filter, ascending; None when there are too many for an allowlist."""
    cursor = await connection.execute(
        f"""
        SELECT DISTINCT c.content_id AS id FROM chunks c WHERE {CHUNK_LIVES} {where(restriction, "c")}
        ORDER BY 1 LIMIT {ALLOWLIST_LIMIT + 1}
        """,
        parameters(scope, restriction),
    )
    ids = [row["id"] for row in await cursor.fetchall()]
    return ids if len(ids) <= ALLOWLIST_LIMIT else None


def _array(ids: Sequence[int]) -> str:
    """Write ids as Postgres reads an array: for hundreds of them several times as fast as adapting a list."""
    return "{" + ",".join(map(str, ids)) + "}"


class Located(NamedTuple):
    """A content that lives in the scope and passes the filter: its least chunk key, and the hash of its text."""

    content_id: int
    key: str
    text_hash: bytes


async def locate(connection: Connection, scope: Scope, restriction: Filter, ids: Sequence[int]) -> dict[int, Located]:
    """Return those of the contents that live in the scope and pass the filter, by id."""
    least = _LEAST_KEY.format(alias="t", where=where(restriction, "c"))
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(
            f"""
            SELECT t.id, k.key, t.text_hash FROM contents t CROSS JOIN LATERAL ({least}) k
            WHERE t.id = ANY(%(ids)s::bigint[]) AND k.key IS NOT NULL
            """,
            {**parameters(scope, restriction), "ids": _array(ids)},
        )
        return {content_id: Located(content_id, key, text_hash) async for content_id, key, text_hash in cursor}


async def score_vectors(
    connection: Connection, scope: Scope, restriction: Filter, query: str, ids: Sequence[int], limit: int
) -> list[tuple[Located, float]]:
    """Hydrate vectors and rescore them exactly: contents with their inner product, best first, ties by key.

    ``query`` is a vector as pgvector reads it. Exact is: from the stored halfvec, in float32, in one order.
    """
    return await _scored(connection, scope, restriction, "v.id = ANY(%(ids)s::bigint[])", query, ids, limit)


async def score_contents(
    connection: Connection, scope: Scope, restriction: Filter, query: str, ids: Sequence[int], limit: int
) -> list[tuple[Located, float]]:
    """Score the vectors of contents exactly, as ``score_vectors`` does."""
    return await _scored(connection, scope, restriction, "t.id = ANY(%(ids)s::bigint[])", query, ids, limit)


async def _scored(
    connection: Connection,
    scope: Scope,
    restriction: Filter,
    selection: str,
    query: str,
    ids: Sequence[int],
    limit: int,
) -> list[tuple[Located, float]]:
    least = _LEAST_KEY.format(alias="s", where=where(restriction, "c"))
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(
            f"""
            SELECT s.id, k.key, s.text_hash, s.score
            FROM (
                SELECT t.id, t.text_hash, -(v.embedding::vector <#> %(query)s::vector) AS score
                FROM vectors v JOIN contents t ON t.fingerprint = v.fingerprint AND t.project_id = %(project)s
                WHERE {selection}
            ) s CROSS JOIN LATERAL ({least}) k
            WHERE k.key IS NOT NULL ORDER BY s.score DESC, k.key LIMIT %(limit)s
            """,
            {**parameters(scope, restriction), "query": query, "ids": _array(ids), "limit": limit},
        )
        return [(Located(content_id, key, text_hash), score) async for content_id, key, text_hash, score in cursor]


async def named_contents(
    connection: Connection, scope: Scope, restriction: Filter, identifiers: Sequence[str], limit: int
) -> list[Located]:
    """Return contents of definitions by key whose qualified name is an identifier or ends with it, part by part."""
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(
            f"""
            SELECT t.id, min(c.key) AS key, t.text_hash
            FROM unnest(%(identifiers)s::text[]) AS i (name)
            JOIN contents t ON t.project_id = %(project)s AND t.name = (regexp_match(i.name, '[^.]+$'))[1]
            JOIN chunks c ON c.content_id = t.id
            WHERE right(c.qualified_name, length(i.name) + 1) IN (i.name, '.' || i.name)
              AND {CHUNK_LIVES} {where(restriction, "c")}
            GROUP BY t.id ORDER BY key LIMIT %(limit)s
            """,
            {**parameters(scope, restriction), "identifiers": list(identifiers), "limit": limit},
        )
        return [Located(*row) async for row in cursor]
