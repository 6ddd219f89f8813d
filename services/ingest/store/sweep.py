"""Removing what no reader can see any more: rows of generations that are neither live, nor leased, nor recent."""

from __future__ import annotations

from services.core.db import Connection
from services.ingest.store import staging


async def with_superseded(connection: Connection) -> list[int]:
    """Return the ids of projects that keep a generation besides the live one."""
    cursor = await connection.execute(
        """
        SELECT p.id FROM projects p
        WHERE EXISTS (SELECT FROM generations g WHERE g.project_id = p.id AND g.number < p.generation) ORDER BY p.id
        """
    )
    return [row["id"] for row in await cursor.fetchall()]


async def project_ids(connection: Connection) -> list[int]:
    """Return the ids of all projects."""
    cursor = await connection.execute("SELECT id FROM projects ORDER BY id")
    return [row["id"] for row in await cursor.fetchall()]


async def lock(connection: Connection, project_id: int) -> None:
    """Take the project's row for the rest of the transaction."""
    await connection.execute("SELECT FROM projects WHERE id = %s FOR UPDATE", (project_id,))


async def oldest_kept(connection: Connection, project_id: int, retention_s: float) -> int:
    """Return the number of the oldest generation that somebody may still read."""
    cursor = await connection.execute(
        """
        SELECT coalesce(min(g.number), 0) AS oldest
        FROM generations g JOIN projects p ON p.id = g.project_id
        WHERE p.id = %(project)s AND (
            g.number = p.generation
            OR g.superseded_at > now() - make_interval(secs => %(retention)s)
            OR EXISTS (
                SELECT FROM leases l
                WHERE l.project_id = p.id AND l.generation = g.number AND l.expires_at > now()
            )
        )
        """,
        {"project": project_id, "retention": retention_s},
    )
    row = await cursor.fetchone()
    return int(row["oldest"]) if row else 0


async def sweep(connection: Connection, project_id: int, oldest: int) -> int:
    """Delete rows that died before the oldest kept generation, and what only they used; return how many rows died."""
    swept = 0
    parameters = {"project": project_id, "oldest": oldest}
    for table in ("symbols", "edges", "decisions", "sidecars"):
        cursor = await connection.execute(
            f"DELETE FROM {table} WHERE project_id = %(project)s AND died <= %(oldest)s", parameters
        )
        swept += cursor.rowcount
    cursor = await connection.execute(
        "DELETE FROM chunks WHERE project_id = %(project)s AND died <= %(oldest)s RETURNING content_id", parameters
    )
    swept += cursor.rowcount
    contents = {row["content_id"] for row in await cursor.fetchall()}
    cursor = await connection.execute(
        "DELETE FROM files WHERE project_id = %(project)s AND died <= %(oldest)s RETURNING text_hash", parameters
    )
    swept += cursor.rowcount
    texts = {bytes(row["text_hash"]) for row in await cursor.fetchall()}
    await staging.drop_unused(connection, project_id, sorted(contents), sorted(texts))
    await connection.execute("DELETE FROM leases WHERE expires_at < now()")
    await connection.execute(
        "DELETE FROM generations WHERE project_id = %(project)s AND number < %(oldest)s", parameters
    )
    return swept


async def referenced_sidecars(connection: Connection) -> set[bytes]:
    """Return the names of all sidecar files that a row points at."""
    cursor = await connection.execute("SELECT DISTINCT sha256 FROM sidecars")
    return {bytes(row["sha256"]) for row in await cursor.fetchall()}
