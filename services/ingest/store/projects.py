"""Projects, sources and the state of their live generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from services.core.authorization import Visible, no_such_project
from services.core.db import Connection
from services.core.errors import Conflict, NotFound
from services.ingest.keys import MAX_PATH_BYTES, fitted
from services.ingest.projects import (
    FOLDER,
    WHEEL,
    Degradation,
    Generation,
    Indexed,
    Observation,
    Origin,
    Project,
    Source,
)
from services.ingest.tiers import Tier, TierRule

_PROJECT = """
SELECT p.id, p.name, p.display_name, p.embedding_model, p.generation, p.created_at, g.published_at, p.tiers,
       p.index_dependencies, p.sync_interval_s, p.watch, coalesce(g.model_name, '') AS live_model
FROM projects p LEFT JOIN generations g ON g.project_id = p.id AND g.number = p.generation
"""
_VISIBLE = "(%(visible)s::bigint[] IS NULL OR p.id = ANY(%(visible)s))"
_SOURCE = """
SELECT id, project_id, name, package, origin_kind AS kind, origin_location AS location, created_at, managed,
       indexed_tier, indexed_digest, indexed_size_bytes, indexed_mtime_ns, origin_revision AS revision
FROM sources
"""


@dataclass(frozen=True, slots=True)
class ProjectChanges:
    """New values of a project; None leaves one as it is."""

    display_name: str | None = None
    embedding_model: str | None = None
    tiers: Sequence[TierRule] | None = None
    index_dependencies: bool | None = None
    sync_interval_s: float | None = None
    watch: bool | None = None


async def create_project(connection: Connection, name: str, display_name: str, embedding_model: str) -> Project:
    try:
        await connection.execute(
            "INSERT INTO projects (name, display_name, embedding_model) VALUES (%s, %s, %s)",
            (name, display_name or name, embedding_model),
        )
    except psycopg.errors.UniqueViolation:
        raise _project_taken(name) from None
    return await get_project(connection, name, Visible())


async def check_free(connection: Connection, name: str) -> None:
    """Raise Conflict when there is a project of that id."""
    if await (await connection.execute("SELECT 1 FROM projects WHERE name = %s", (name,))).fetchone() is not None:
        raise _project_taken(name)


def _project_taken(name: str) -> Conflict:
    return Conflict(f"There is a project {name!r} already.", remedy="Choose another id.", reason="ALREADY_EXISTS")


async def get_project(connection: Connection, name: str, visible: Visible, *, lock: bool = False) -> Project:
    """Return a project; with ``lock``, no run records anything of it for the rest of the transaction."""
    cursor = await connection.execute(
        f"{_PROJECT} WHERE p.name = %(name)s AND {_VISIBLE} {'FOR UPDATE OF p' if lock else ''}",
        {"name": name, "visible": visible.sql()},
    )
    row = await cursor.fetchone()
    if row is None:
        raise no_such_project(name)
    return _project(row)


async def get_project_by_id(connection: Connection, project_id: int) -> Project | None:
    row = await (await connection.execute(f"{_PROJECT} WHERE p.id = %s", (project_id,))).fetchone()
    return _project(row) if row else None


def _project(row: Mapping[str, Any]) -> Project:
    rules = tuple(TierRule(one["glob"], Tier(one["tier"])) for one in row["tiers"])
    return Project(**{**row, "tiers": rules})


async def list_projects(connection: Connection, visible: Visible, after: str, limit: int) -> list[Project]:
    cursor = await connection.execute(
        f"{_PROJECT} WHERE p.name > %(after)s AND {_VISIBLE} ORDER BY p.name LIMIT %(limit)s",
        {"after": after, "visible": visible.sql(), "limit": limit},
    )
    return [_project(row) for row in await cursor.fetchall()]


async def update_project(connection: Connection, project_id: int, changes: ProjectChanges) -> None:
    """Write the fields that are not None."""
    await connection.execute(
        """
        UPDATE projects SET display_name = coalesce(%s, display_name),
               embedding_model = coalesce(%s, embedding_model), tiers = coalesce(%s::jsonb, tiers),
               index_dependencies = coalesce(%s, index_dependencies),
               sync_interval_s = coalesce(%s, sync_interval_s), watch = coalesce(%s, watch)
        WHERE id = %s
        """,
        (
            changes.display_name,
            changes.embedding_model,
            None if changes.tiers is None else Jsonb([{"glob": r.glob, "tier": r.tier} for r in changes.tiers]),
            changes.index_dependencies,
            changes.sync_interval_s,
            changes.watch,
            project_id,
        ),
    )


async def delete_project(connection: Connection, project_id: int) -> None:
    """Delete a project and all its rows; vectors stay, other projects may have the same texts."""
    await connection.execute("DELETE FROM chunks WHERE project_id = %s", (project_id,))
    await connection.execute("DELETE FROM projects WHERE id = %s", (project_id,))


async def create_source(connection: Connection, project_id: int, name: str, package: str, origin: Origin) -> None:
    try:
        await connection.execute(
            """
            INSERT INTO sources (project_id, name, package, origin_kind, origin_location, origin_revision)
            VALUES (%s, %s, %s, %s, %s, %s)
            """,
            (project_id, name, package, origin.kind, origin.location, origin.revision),
        )
    except psycopg.errors.UniqueViolation as error:
        raise _taken(error) from None


async def point_source(connection: Connection, source_id: int, origin: Origin) -> None:
    """Give a source another origin of its kind."""
    try:
        await connection.execute(
            # What is indexed is not of this origin until a run has looked: a size of -1 is nobody's.
            "UPDATE sources SET origin_location = %s, origin_revision = %s, indexed_size_bytes = -1"
            " WHERE id = %s AND origin_kind = %s",
            (origin.location, origin.revision, source_id, origin.kind),
        )
    except psycopg.errors.UniqueViolation as error:
        raise _taken(error) from None


def _taken(error: psycopg.errors.UniqueViolation) -> Conflict:
    constraint = error.diag.constraint_name or ""
    taken = "origin" if "origin" in constraint else "package" if "package" in constraint else "id"
    return Conflict(
        f"The project has a source with this {taken} already.",
        remedy="List the sources, and use or delete the one that is there.",
        reason="ALREADY_EXISTS",
    )


async def put_dependency(connection: Connection, project_id: int, package: str, location: str) -> None:
    """Add a dependency as a source named like its package, or point that at another archive."""
    await connection.execute(
        """
        INSERT INTO sources (project_id, name, package, origin_kind, origin_location, managed)
        VALUES (%(project)s, %(package)s, %(package)s, %(kind)s, %(location)s, true)
        -- Another file may have the size and time of the one before: it is to be hashed.
        ON CONFLICT (project_id, name) DO UPDATE SET origin_location = excluded.origin_location, indexed_size_bytes = -1
        WHERE sources.managed AND sources.origin_location <> excluded.origin_location
        """,
        {"project": project_id, "package": package, "kind": WHEEL, "location": location},
    )


async def hold_sources(connection: Connection, project_id: int) -> dict[int, Origin]:
    """Return the origins of a project's sources by id; none of them is removed for the rest of the transaction."""
    cursor = await connection.execute(
        """
        SELECT id, origin_kind, origin_location, origin_revision FROM sources
        WHERE project_id = %s ORDER BY id FOR KEY SHARE
        """,
        (project_id,),
    )
    return {
        row["id"]: Origin(row["origin_kind"], row["origin_location"], row["origin_revision"])
        for row in await cursor.fetchall()
    }


async def record_source(connection: Connection, source_id: int, tier: Tier, indexed: Indexed | None) -> None:
    """Remember what a source was indexed with, and as which archive or commit."""
    await connection.execute(
        """
        UPDATE sources
        SET indexed_tier = %s, indexed_digest = %s, indexed_size_bytes = %s, indexed_mtime_ns = %s WHERE id = %s
        """,
        (
            tier.value,
            indexed.digest if indexed else None,
            indexed.size_bytes if indexed else None,
            indexed.mtime_ns if indexed else None,
            source_id,
        ),
    )


async def get_source(connection: Connection, project_id: int, name: str) -> Source:
    cursor = await connection.execute(f"{_SOURCE} WHERE project_id = %s AND name = %s", (project_id, name))
    row = await cursor.fetchone()
    if row is None:
        raise NotFound(
            f"The project has no source {name!r}.", remedy="List the sources of the project.", reason="SOURCE_NOT_FOUND"
        )
    return _source(row)


def _source(row: Mapping[str, Any]) -> Source:
    digest, size, mtime = (row[f"indexed_{name}"] for name in ("digest", "size_bytes", "mtime_ns"))
    plain = {name: value for name, value in row.items() if not name.startswith("indexed_")}
    indexed = None if digest is None else Indexed(bytes(digest), size, mtime)
    return Source(**plain, indexed_tier=Tier(row["indexed_tier"]), indexed=indexed)


async def list_sources(
    connection: Connection, project_id: int, after: str = "", limit: int | None = None
) -> list[Source]:
    cursor = await connection.execute(
        f"{_SOURCE} WHERE project_id = %s AND name > %s ORDER BY name LIMIT %s", (project_id, after, limit)
    )
    return [_source(row) for row in await cursor.fetchall()]


async def source_ids(connection: Connection, kind: str) -> set[int]:
    """Return the ids of all sources of a kind."""
    cursor = await connection.execute("SELECT id FROM sources WHERE origin_kind = %s", (kind,))
    return {row["id"] for row in await cursor.fetchall()}


async def delete_source(connection: Connection, source_id: int) -> None:
    await connection.execute("DELETE FROM sources WHERE id = %s", (source_id,))


async def live_generation(connection: Connection, project_id: int) -> Generation | None:
    """Return the live generation of a project; None before its first publish."""
    cursor = await connection.execute(
        """
        SELECT g.project_id, g.number, g.published_at, g.pipeline_hash, g.model_name, g.model_digest,
               g.model_dimensions, g.model_budget_tokens, g.counts, g.degraded, g.run_id
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


async def observe(
    connection: Connection, project_id: int, stale: bool, reason: str, *, observed_at: datetime | None = None
) -> None:
    """Record what the last comparison of sources and live generation saw, now or when it looked."""
    await connection.execute(
        """
        INSERT INTO observations (project_id, observed_at, stale, reason) VALUES (%s, coalesce(%s, now()), %s, %s)
        ON CONFLICT (project_id) DO UPDATE
        SET observed_at = excluded.observed_at, stale = excluded.stale, reason = excluded.reason
        """,
        (project_id, observed_at, stale, reason),
    )


async def outdate(connection: Connection, project_id: int, reason: str) -> None:
    """Record that the live generation is not what the project now asks for."""
    await connection.execute(
        """
        INSERT INTO observations (project_id, observed_at, stale, reason)
        SELECT id, now(), true, %(reason)s FROM projects WHERE id = %(project)s AND generation > 0
        ON CONFLICT (project_id) DO UPDATE SET stale = true, reason = excluded.reason
        """,
        {"project": project_id, "reason": reason},
    )


async def observation(connection: Connection, project_id: int) -> Observation | None:
    cursor = await connection.execute(
        "SELECT observed_at, stale, reason FROM observations WHERE project_id = %s", (project_id,)
    )
    row = await cursor.fetchone()
    return Observation(**row) if row else None


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


async def skipped_of(connection: Connection, source_id: int) -> list[tuple[str, str, str]]:
    """Return (path, reason, detail) of what the last run skipped of a source."""
    cursor = await connection.execute(
        "SELECT path, reason, detail FROM skipped_files WHERE source_id = %s ORDER BY path", (source_id,)
    )
    return [(row["path"], row["reason"], row["detail"]) for row in await cursor.fetchall()]


async def verified(connection: Connection, project_id: int) -> None:
    """Record that every file of the project was read."""
    await connection.execute("UPDATE projects SET verified_at = now() WHERE id = %s", (project_id,))


async def due_for_verify(connection: Connection, interval_s: float) -> list[int]:
    """Return the ids of projects whose files were not all read for ``interval_s``, and that have no run to come.

    One whose verify failed waits for the next interval.
    """
    cursor = await connection.execute(
        """
        SELECT p.id FROM projects p
        WHERE p.generation > 0 AND p.verified_at < now() - make_interval(secs => %(interval)s)
          AND EXISTS (SELECT FROM sources s WHERE s.project_id = p.id)
          AND NOT EXISTS (
              SELECT FROM operations o WHERE o.project_id = p.id AND (
                  o.state IN ('queued', 'running')
                  OR (o.options ? 'verify' AND o.created_at > now() - make_interval(secs => %(interval)s))
              )
          )
        ORDER BY p.id FOR UPDATE OF p SKIP LOCKED
        """,
        {"interval": interval_s},
    )
    return [row["id"] for row in await cursor.fetchall()]


async def due_for_sync(connection: Connection) -> list[int]:
    """Return the ids of projects that are to be indexed by themselves now, and that have no run to come."""
    cursor = await connection.execute(
        """
        SELECT p.id FROM projects p
        WHERE p.sync_interval_s > 0 AND EXISTS (SELECT FROM sources s WHERE s.project_id = p.id)
          AND NOT EXISTS (
              SELECT FROM operations o WHERE o.project_id = p.id AND (
                  o.state IN ('queued', 'running') OR o.ended_at > now() - make_interval(secs => p.sync_interval_s)
              )
          )
        ORDER BY p.id FOR UPDATE OF p SKIP LOCKED
        """
    )
    return [row["id"] for row in await cursor.fetchall()]


async def watched_folders(connection: Connection) -> dict[int, tuple[str, ...]]:
    """Return the folders of the projects that are watched, by the ids of these."""
    cursor = await connection.execute(
        """
        SELECT p.id, array_agg(s.origin_location ORDER BY s.origin_location) AS folders
        FROM projects p JOIN sources s ON s.project_id = p.id
        WHERE p.watch AND s.origin_kind = %s GROUP BY p.id
        """,
        (FOLDER,),
    )
    return {row["id"]: tuple(row["folders"]) for row in await cursor.fetchall()}


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


async def list_notes(
    connection: Connection, project_id: int, after: tuple[str, str, int], limit: int
) -> list[dict[str, Any]]:
    """List notes on live files by (source, path, place in the file's notes) after a position."""
    cursor = await connection.execute(
        """
        SELECT s.name AS source, f.path, n.place, n.note ->> 'code' AS code, n.note ->> 'detail' AS detail,
               (n.note ->> 'line')::int AS line
        FROM files f JOIN sources s ON s.id = f.source_id
        CROSS JOIN LATERAL jsonb_array_elements(f.notes) WITH ORDINALITY AS n (note, place)
        WHERE f.project_id = %s AND f.died IS NULL AND f.notes <> '[]' AND (s.name, f.path, n.place) > (%s, %s, %s)
        ORDER BY s.name, f.path, n.place LIMIT %s
        """,
        (project_id, *after, limit),
    )
    return await cursor.fetchall()


async def count_notes(connection: Connection, project_id: int) -> dict[str, int]:
    """Count the notes on live files by code."""
    cursor = await connection.execute(
        """
        SELECT n.note ->> 'code' AS code, count(*) AS n
        FROM files f CROSS JOIN LATERAL jsonb_array_elements(f.notes) AS n (note)
        WHERE f.project_id = %s AND f.died IS NULL AND f.notes <> '[]' GROUP BY 1 ORDER BY 1
        """,
        (project_id,),
    )
    return {row["code"]: row["n"] for row in await cursor.fetchall()}


async def count_skipped(connection: Connection, project_id: int) -> int:
    return await _number(
        await connection.execute(
            "SELECT count(*) AS n FROM skipped_files f JOIN sources s ON s.id = f.source_id WHERE s.project_id = %s",
            (project_id,),
        )
    )


def degraded_json(degraded: Sequence[Degradation]) -> Jsonb:
    return Jsonb([{"method": one.method, "reason": one.reason, "remedy": one.remedy} for one in degraded])
