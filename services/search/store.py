"""What search reads. Every statement takes a scope: the project, visible to the caller, and one generation of it."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from psycopg.rows import tuple_row

from services.core.db import Connection
from services.core.errors import NotFound
from services.core.sidecars import SidecarFile
from services.core.snapshots import Scope
from services.search.queries import Chunk, Filter, Place, Reference, Symbol

# Fewer matching contents than this are searched exactly, through an allowlist, instead of widening the search.
ALLOWLIST_LIMIT = 4096

_LIVES = (
    "{0}.project_id = %(project)s AND {0}.born <= %(generation)s AND ({0}.died IS NULL OR {0}.died > %(generation)s)"
)
_CHUNK_LIVES = _LIVES.format("c")
# No typed parameter is NULL-tested in vain: a condition stands only where the filter has values.
_CONDITIONS = {
    "packages": "{0}.package = ANY(%(packages)s)",
    "path_globs": "{0}.path ~ ANY(%(path_globs)s)",
    "languages": "{0}.language = ANY(%(languages)s)",
    "kinds": "{0}.kind = ANY(%(kinds)s)",
    "metadata": f"""EXISTS (
        SELECT FROM files m WHERE m.project_id = %(project)s AND m.source_id = {{0}}.source_id AND m.path = {{0}}.path
          AND m.metadata <> '{{{{}}}}' AND {_LIVES.format("m")} AND (
              SELECT bool_and(m.metadata ? k.key AND (k.is_any OR m.metadata -> k.key ?| k.listed))
              FROM jsonb_to_recordset(%(metadata)s::jsonb) AS k (key text, is_any boolean, listed text[])
          )
    )""",
}
# Keys of facets in an answer.
MOST_FACETS = 200
# Of those, what symbols, references and files have too.
_OF_FILES = ("packages", "path_globs", "languages", "metadata")
_HAS_CHUNK_OF_KIND = f"""
EXISTS (SELECT FROM chunks c WHERE c.source_id = f.source_id AND c.path = f.path AND c.kind = ANY(%(kinds)s)
                               AND {_CHUNK_LIVES})
"""


async def generation_row(connection: Connection, project_id: int, generation: int) -> dict[str, Any] | None:
    """Return model, degradations and processors of a generation; None when it is not kept.

    ``processors`` are those that made vectors of the model: their probe cosines by fingerprint; None for none.
    """
    cursor = await connection.execute(
        """
        SELECT g.number, g.model_name, g.model_digest, g.model_dimensions, g.degraded,
               (SELECT jsonb_object_agg(p.probe_fingerprint, p.probe_cosine) FROM embedding_processors p
                WHERE p.model_digest = g.model_digest
                  AND EXISTS (SELECT FROM vectors v WHERE v.processor_id = p.id)) AS processors
        FROM generations g WHERE g.project_id = %s AND g.number = %s
        """,
        (project_id, generation),
    )
    return await cursor.fetchone()


async def live_generations(connection: Connection) -> list[tuple[int, int]]:
    """Return (project id, live generation) of every project that has published."""
    cursor = await connection.execute("SELECT id, generation FROM projects WHERE generation > 0 ORDER BY id")
    return [(row["id"], row["generation"]) for row in await cursor.fetchall()]


async def sidecars(connection: Connection, project_id: int, generation: int) -> list[SidecarFile]:
    """Return the sidecars of a generation by method and name."""
    cursor = await connection.execute(
        f"""
        SELECT s.method, s.logical_name, s.sha256, s.size_bytes FROM sidecars s WHERE {_LIVES.format("s")}
        ORDER BY s.method, s.logical_name, s.id
        """,
        {"project": project_id, "generation": generation},
    )
    return [
        SidecarFile(row["method"], row["logical_name"], bytes(row["sha256"]), row["size_bytes"])
        for row in await cursor.fetchall()
    ]


async def renew_leases(connection: Connection, holder: str, held: Sequence[tuple[int, int]], seconds: float) -> None:
    """Keep generations, as (project id, number), for this reader."""
    await connection.execute(
        """
        INSERT INTO leases (project_id, generation, holder, expires_at)
        SELECT h.project_id, h.generation, %(holder)s, now() + make_interval(secs => %(seconds)s)
        FROM unnest(%(projects)s::bigint[], %(generations)s::bigint[]) AS h (project_id, generation)
        JOIN projects p ON p.id = h.project_id
        ORDER BY 1, 2
        ON CONFLICT (project_id, generation, holder) DO UPDATE SET expires_at = excluded.expires_at
        """,
        {
            "holder": holder,
            "seconds": seconds,
            "projects": [one[0] for one in held],
            "generations": [one[1] for one in held],
        },
    )


def glob_regex(glob: str) -> str:
    """Translate a path glob to a Postgres regular expression that matches the whole path."""
    # Any number of ** in a row means what one does, and costs what one does.
    glob = re.sub(r"(\*\*/)+", "**/", re.sub(r"\*{3,}", "**", glob))
    out, i = "", 0
    while i < len(glob):
        char = glob[i]
        if glob.startswith("**/", i):
            out, i = out + "(?:.*/)?", i + 3
        elif glob.startswith("**", i):
            out, i = out + ".*", i + 2
        elif char == "*":
            out, i = out + "[^/]*", i + 1
        elif char == "?":
            out, i = out + "[^/]", i + 1
        elif char == "[" and (end := glob.find("]", i + 2)) > 0:
            body = glob[i + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            out, i = out + "[" + ("^" + body[1:] if body.startswith("!") else body) + "]", end + 1
        else:
            out, i = out + re.sub(r"([^\w/ ])", r"\\\1", char), i + 1
    return f"^{out}$"


def _parameters(scope: Scope, restriction: Filter) -> dict[str, Any]:
    return {
        "project": scope.project_id,
        "generation": scope.generation,
        "packages": list(restriction.packages),
        "path_globs": [glob_regex(glob) for glob in restriction.path_globs],
        "languages": list(restriction.languages),
        "kinds": list(restriction.kinds),
        "metadata": json.dumps(
            [{"key": key, "is_any": not values, "listed": list(values)} for key, values in restriction.metadata]
        ),
    }


def _where(restriction: Filter, alias: str, fields: Sequence[str] = tuple(_CONDITIONS)) -> str:
    """Return the conditions of a filter on a table, each preceded by AND."""
    return "".join(f" AND {_CONDITIONS[field].format(alias)}" for field in fields if getattr(restriction, field))


# The least key among the places of a content (of a table aliased t or s) that the query may see; NULL when it has none.
_LEAST_KEY = f"SELECT min(c.key) AS key FROM chunks c WHERE c.content_id = {{alias}}.id AND {_CHUNK_LIVES} {{where}}"


async def allowed_contents(connection: Connection, scope: Scope, restriction: Filter) -> list[int] | None:
    """Return the ids of the contents that pass a filter, ascending; None when there are too many for an allowlist."""
    cursor = await connection.execute(
        f"""
        SELECT DISTINCT c.content_id AS id FROM chunks c WHERE {_CHUNK_LIVES} {_where(restriction, "c")}
        ORDER BY 1 LIMIT {ALLOWLIST_LIMIT + 1}
        """,
        _parameters(scope, restriction),
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
    least = _LEAST_KEY.format(alias="t", where=_where(restriction, "c"))
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(
            f"""
            SELECT t.id, k.key, t.text_hash FROM contents t CROSS JOIN LATERAL ({least}) k
            WHERE t.id = ANY(%(ids)s::bigint[]) AND k.key IS NOT NULL
            """,
            {**_parameters(scope, restriction), "ids": _array(ids)},
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
    least = _LEAST_KEY.format(alias="s", where=_where(restriction, "c"))
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
            {**_parameters(scope, restriction), "query": query, "ids": _array(ids), "limit": limit},
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
              AND {_CHUNK_LIVES} {_where(restriction, "c")}
            GROUP BY t.id ORDER BY key LIMIT %(limit)s
            """,
            {**_parameters(scope, restriction), "identifiers": list(identifiers), "limit": limit},
        )
        return [Located(*row) async for row in cursor]


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
        WHERE w.id = ANY(%(ids)s) AND w.project_id = %(project)s AND {_CHUNK_LIVES} {_where(restriction, "c")}
        ORDER BY w.id, (t.id = w.id) DESC, c.key
        """,
        {**_parameters(scope, restriction), "ids": list(ids)},
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
        places=tuple(_place(scope, row) for row in rows),
    )


def _place(scope: Scope, row: Mapping[str, Any]) -> Place:
    return Place(scope.project, row["package"], row["path"], row["start_line"], row["end_line"])


async def chunk_with_neighbours(
    connection: Connection, scope: Scope, key: str, neighbours: int
) -> tuple[Chunk, list[Chunk], list[Chunk]]:
    """Return a chunk, and those before and after it in its file."""
    cursor = await connection.execute(
        f"""
        WITH wanted AS (SELECT c.source_id, c.path FROM chunks c WHERE c.key = %(key)s AND {_CHUNK_LIVES})
        SELECT t.title, t.text, c.key, c.kind, c.language, c.qualified_name, c.package, c.path, c.start_line, c.end_line
        FROM wanted w JOIN chunks c ON c.source_id = w.source_id AND c.path = w.path
        JOIN contents t ON t.id = c.content_id
        WHERE {_CHUNK_LIVES} ORDER BY c.start_line, c.end_line, c.key
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
        WHERE {_CHUNK_LIVES} {_where(restriction, "c")} AND c.key > %(after)s ORDER BY c.key LIMIT %(limit)s
        """,
        {**_parameters(scope, restriction), "after": after, "limit": limit},
    )
    return [_chunk(scope, [row]) for row in await cursor.fetchall()]


async def file_text(connection: Connection, scope: Scope, path: str, package: str) -> tuple[str, str]:
    """Return package and text of a file; NotFound when there is none, or several and no package is named."""
    cursor = await connection.execute(
        f"""
        SELECT f.package, t.text_zlib FROM files f
        JOIN file_texts t ON t.project_id = f.project_id AND t.text_hash = f.text_hash
        WHERE f.path = %(path)s AND (%(package)s = '' OR f.package = %(package)s) AND {_LIVES.format("f")}
        ORDER BY f.package
        """,
        {"project": scope.project_id, "generation": scope.generation, "path": path, "package": package},
    )
    rows = await cursor.fetchall()
    if not rows:
        raise NotFound(
            f"Generation {scope.generation} of {scope.project} has no file {path!r}.",
            remedy="Take path and generation from one search answer.",
            reason="FILE_NOT_FOUND",
        )
    if len(rows) > 1:
        raise NotFound(
            f"Several packages of {scope.project} have a file {path!r}.",
            remedy=f"Name one of: {', '.join(row['package'] for row in rows)}.",
            reason="FILE_AMBIGUOUS",
        )
    return rows[0]["package"], zlib.decompress(rows[0]["text_zlib"]).decode()


_SYMBOL = """
SELECT s.qualified_name, s.name, s.kind, s.signature, s.summary, s.language, s.package, s.path, s.start_line, s.end_line
FROM symbols s
"""
# A name finds the symbols of that name, a dotted one those whose qualified name ends with it.
_NAMED = """
s.name = %(last)s AND (s.qualified_name = %(name)s OR right(s.qualified_name, length(%(name)s) + 1) = '.' || %(name)s
                       OR s.name = %(name)s)
"""


async def facets(connection: Connection, scope: Scope, restriction: Filter, limit: int) -> list[tuple[str, str, int]]:
    """Count the files that pass a filter by (key, value): their metadata, with package and language.

    Of each key, the ``limit`` values of the most files; of the keys, those of the most files, ``MOST_FACETS`` of them.
    """
    where = _where(restriction, "f", _OF_FILES) + (f" AND {_HAS_CHUNK_OF_KIND}" if restriction.kinds else "")
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(
            f"""
            WITH counted AS (
                SELECT e.key, v.value COLLATE "C" AS value, count(*) AS files
                FROM files f CROSS JOIN LATERAL jsonb_each(
                f.metadata || jsonb_build_object(
                    'package', jsonb_build_array(f.package), 'language', jsonb_build_array(f.language)
                )
            ) AS e (key, listed) CROSS JOIN LATERAL jsonb_array_elements_text(e.listed) AS v (value)
            WHERE f.project_id = %(project)s AND {_LIVES.format("f")} {where}
                GROUP BY 1, 2
            ), placed AS (
                SELECT key, value, files, row_number() OVER (PARTITION BY key ORDER BY files DESC, value) AS place,
                       sum(files) OVER (PARTITION BY key) AS of_key
                FROM counted
            ), keys AS (
                SELECT key FROM placed WHERE place = 1 ORDER BY of_key DESC, key COLLATE "C" LIMIT {MOST_FACETS}
            )
            SELECT key, value, files FROM placed JOIN keys USING (key) WHERE place <= %(most)s
            """,
            {**_parameters(scope, restriction), "most": limit},
        )
        return [(key, value, files) async for key, value, files in cursor]


async def symbols(
    connection: Connection, scope: Scope, restriction: Filter, name: str, after: tuple[str, str, int], limit: int
) -> list[Symbol]:
    """List definitions by (qualified name, path, line) after a position."""
    cursor = await connection.execute(
        f"""
        {_SYMBOL} WHERE {_NAMED} AND {_LIVES.format("s")}
        {_where(restriction, "s", _OF_FILES)}
        AND (s.qualified_name, s.path, s.start_line) > (%(after_name)s, %(after_path)s, %(after_line)s)
        ORDER BY s.qualified_name, s.path, s.start_line LIMIT %(limit)s
        """,
        {
            **_parameters(scope, restriction),
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
        place=_place(scope, row),
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
        WHERE {_OUTGOING if outgoing else _INCOMING} AND {_LIVES.format("e")}
        {_where(restriction, "e", _OF_FILES)}
        AND (%(any_kind)s OR e.kind = ANY(%(edge_kinds)s)) AND (NOT %(resolved_only)s OR {certain})
        ORDER BY certain DESC, e.package, e.path, e.line, e.kind, e.target_symbol, e.source_symbol
        LIMIT %(limit)s
        """,
        {
            **_parameters(scope, restriction),
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
            place=_place(scope, row),
        )
        for row in await cursor.fetchall()
    ]
