"""Projects, sources and the state of their live generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from services.core.authorization import Visible, no_such_project
from services.core.db import Connection
from services.core.errors import Conflict, NotFound
from services.ingest.keys import MAX_PATH_BYTES, fitted
from services.ingest.projects import Degradation, Generation, Project, Source

_PROJECT = """
SELECT p.id, p.name, p.display_name, p.embedding_model, p.generation, p.created_at, g.published_at
FROM projects p LEFT JOIN generations g ON g.project_id = p.id AND g.number = p.generation
"""
_VISIBLE = "(%(visible)s::bigint[] IS NULL OR p.id = ANY(%(visible)s))"
_SOURCE = (
    "SELECT id, project_id, name, package, origin_kind AS kind, origin_location AS location, created_at FROM sources"
)


async def create_project(connection: Connection, name: str, display_name: str, embedding_model: str) -> Project:
    try:
        await connection.execute(
            "INSERT INTO projects (name, display_name, embedding_model) VALUES (%s, %s, %s)",
            (name, display_name or name, embedding_model),
        )
    except psycopg.errors.UniqueViolation:
        raise Conflict(
            f"There is a project {name!r} already.", remedy="Choose another id.", reason="ALREADY_EXISTS"
        ) from None
    return await get_project(connection, name, Visible())


async def get_project(connection: Connection, name: str, visible: Visible) -> Project:
    cursor = await connection.execute(
        f"{_PROJECT} WHERE p.name = %(name)s AND {_VISIBLE}", {"name": name, "visible": visible.sql()}
    )
    row = await cursor.fetchone()
    if row is None:
        raise no_such_project(name)
    return Project(**row)


async def get_project_by_id(connection: Connection, project_id: int) -> Project | None:
    row = await (await connection.execute(f"{_PROJECT} WHERE p.id = %s", (project_id,))).fetchone()
    return Project(**row) if row else None


async def list_projects(connection: Connection, visible: Visible, after: str, limit: int) -> list[Project]:
    cursor = await connection.execute(
        f"{_PROJECT} WHERE p.name > %(after)s AND {_VISIBLE} ORDER BY p.name LIMIT %(limit)s",
        {"after": after, "visible": visible.sql(), "limit": limit},
    )
    return [Project(**row) for row in await cursor.fetchall()]


async def update_project(connection: Connection, project_id: int, changes: Mapping[str, str]) -> None:
    for column in ("display_name", "embedding_model"):
        if column in changes:
            await connection.execute(f"UPDATE projects SET {column} = %s WHERE id = %s", (changes[column], project_id))


async def delete_project(connection: Connection, project_id: int) -> None:
    """Delete a project and all its rows; vectors stay, other projects may have the same texts."""
    await connection.execute("DELETE FROM chunks WHERE project_id = %s", (project_id,))
    await connection.execute("DELETE FROM projects WHERE id = %s", (project_id,))


async def create_source(
    connection: Connection, project_id: int, name: str, package: str, kind: str, location: str
) -> None:
    try:
        await connection.execute(
            "INSERT INTO sources (project_id, name, package, origin_kind, origin_location) VALUES (%s, %s, %s, %s, %s)",
            (project_id, name, package, kind, location),
        )
    except psycopg.errors.UniqueViolation as error:
        constraint = error.diag.constraint_name or ""
        taken = "origin" if "origin" in constraint else "package" if "package" in constraint else "id"
        raise Conflict(
            f"The project has a source with this {taken} already.",
            remedy="List the sources, and use or delete the one that is there.",
            reason="ALREADY_EXISTS",
        ) from None


async def get_source(connection: Connection, project_id: int, name: str) -> Source:
    cursor = await connection.execute(f"{_SOURCE} WHERE project_id = %s AND name = %s", (project_id, name))
    row = await cursor.fetchone()
    if row is None:
        raise NotFound(
            f"The project has no source {name!r}.", remedy="List the sources of the project.", reason="SOURCE_NOT_FOUND"
        )
    return Source(**row)


async def list_sources(
    connection: Connection, project_id: int, after: str = "", limit: int | None = None
) -> list[Source]:
    cursor = await connection.execute(
        f"{_SOURCE} WHERE project_id = %s AND name > %s ORDER BY name LIMIT %s", (project_id, after, limit)
    )
    return [Source(**row) for row in await cursor.fetchall()]


async def delete_source(connection: Connection, source_id: int) -> None:
    await connection.execute("DELETE FROM sources WHERE id = %s", (source_id,))


async def live_generation(connection: Connection, project_id: int) -> Generation | None:
    """Return the live generation of a project; None before its first publish."""
    cursor = await connection.execute(
        """
        SELECT g.project_id, g.number, g.published_at, g.pipeline_hash, g.model_name, g.model_digest,
               g.model_dimensions, g.model_budget_tokens, g.counts, g.degraded
        FROM generations g JOIN projects p ON p.id = g.project_id AND p.generation = g.number
        WHERE p.id = %s
        """,
        (project_id,),
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    return Generation(**{**row, "degraded": tuple(Degradation(**one) for one in row["degraded"])})


async def count_rows(connection: Connection, project_id: int, generation: int) -> dict[str, int]:
    """Count what lives in a generation, from the rows themselves."""
    counts = {}
    for table in ("files", "chunks", "symbols", "edges", "decisions"):
        cursor = await connection.execute(
            f"SELECT count(*) AS n FROM {table}"
            " WHERE project_id = %(project)s AND born <= %(generation)s AND (died IS NULL OR died > %(generation)s)",
            {"project": project_id, "generation": generation},
        )
        counts[table] = await _number(cursor)
    cursor = await connection.execute(
        """
        SELECT count(DISTINCT c.content_id) AS documents, count(DISTINCT v.id) AS vectors,
               count(DISTINCT t.fingerprint) AS fingerprints
        FROM chunks c JOIN contents t ON t.id = c.content_id LEFT JOIN vectors v ON v.fingerprint = t.fingerprint
        WHERE c.project_id = %(project)s AND c.born <= %(generation)s
          AND (c.died IS NULL OR c.died > %(generation)s)
        """,
        {"project": project_id, "generation": generation},
    )
    counts.update(await cursor.fetchone() or {})
    return counts


async def _number(cursor: psycopg.AsyncCursor[Any]) -> int:
    row = await cursor.fetchone()
    assert row is not None
    return int(row["n"])


async def observe(connection: Connection, project_id: int, stale: bool, reason: str) -> None:
    """Record what the last comparison of sources and live generation saw."""
    await connection.execute(
        """
        INSERT INTO observations (project_id, observed_at, stale, reason) VALUES (%s, now(), %s, %s)
        ON CONFLICT (project_id) DO UPDATE
        SET observed_at = excluded.observed_at, stale = excluded.stale, reason = excluded.reason
        """,
        (project_id, stale, reason),
    )


async def observation(connection: Connection, project_id: int) -> dict[str, Any] | None:
    cursor = await connection.execute(
        "SELECT observed_at, stale, reason FROM observations WHERE project_id = %s", (project_id,)
    )
    return await cursor.fetchone()


async def replace_skipped(connection: Connection, source_id: int, skipped: Sequence[tuple[str, str, str]]) -> None:
    """Replace the list of skipped files of a source: (path, reason, detail)."""
    await connection.execute("DELETE FROM skipped_files WHERE source_id = %s", (source_id,))
    async with connection.cursor() as cursor:
        await cursor.executemany(
            """
            INSERT INTO skipped_files (source_id, path, reason, detail) VALUES (%s, %s, %s, %s)
            ON CONFLICT (source_id, path) DO NOTHING
            """,
            [(source_id, fitted(path, MAX_PATH_BYTES), *why) for path, *why in sorted(skipped)],
        )


async def list_skipped(
    connection: Connection, project_id: int, after: tuple[str, str], limit: int
) -> list[dict[str, str]]:
    """List skipped files by (source, path) after a position."""
    cursor = await connection.execute(
        """
        SELECT s.name AS source, f.path, f.reason, f.detail
        FROM skipped_files f JOIN sources s ON s.id = f.source_id
        WHERE s.project_id = %s AND (s.name, f.path) > (%s, %s)
        ORDER BY s.name, f.path LIMIT %s
        """,
        (project_id, *after, limit),
    )
    return await cursor.fetchall()


async def count_skipped(connection: Connection, project_id: int) -> int:
    return await _number(
        await connection.execute(
            "SELECT count(*) AS n FROM skipped_files f JOIN sources s ON s.id = f.source_id WHERE s.project_id = %s",
            (project_id,),
        )
    )


def degraded_json(degraded: Sequence[Degradation]) -> Jsonb:
    return Jsonb([{"method": one.method, "reason": one.reason, "remedy": one.remedy} for one in degraded])
