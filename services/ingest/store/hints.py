"""What is known of a source's files: live contents, and the hints that save reading them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg import AsyncCursor
from psycopg.rows import TupleRow, tuple_row

from services.core.db import Connection
from services.ingest.changes import Hint, LiveFile


async def live_files(connection: Connection, source_id: int) -> dict[str, LiveFile]:
    """Return the live files by path."""
    async with _quick_cursor(connection) as cursor:
        await cursor.execute(
            "SELECT path, content_hash, module, settings FROM files WHERE source_id = %s AND died IS NULL", (source_id,)
        )
        return {path: LiveFile(*known) for path, *known in await cursor.fetchall()}


async def count_orphaned(connection: Connection, project_id: int) -> int:
    """Count live files whose source was removed from the project."""
    cursor = await connection.execute(
        """
        SELECT count(*) AS n FROM files f
        WHERE f.project_id = %s AND f.died IS NULL AND NOT EXISTS (SELECT FROM sources s WHERE s.id = f.source_id)
        """,
        (project_id,),
    )
    row = await cursor.fetchone()
    return int(row["n"]) if row else 0


async def read_hints(connection: Connection, source_id: int) -> dict[str, Hint]:
    """Return the hint of each known file by path."""
    async with _quick_cursor(connection) as cursor:
        await cursor.execute(
            """
            SELECT path, size_bytes, mtime_ns, content_hash, git_blob, skip_reason, skip_detail
            FROM file_hints WHERE source_id = %s
            """,
            (source_id,),
        )
        return {
            path: Hint(size, mtime, content_hash, (reason, detail) if reason is not None else None, blob)
            for path, size, mtime, content_hash, blob, reason, detail in await cursor.fetchall()
        }


async def write_hints(
    connection: Connection, source_id: int, hints: Mapping[str, Hint], gone: Sequence[str] = ()
) -> None:
    """Renew hints, and forget those of files that are gone."""
    paths = sorted(hints)
    rows = [hints[path] for path in paths]
    await connection.execute(
        """
        INSERT INTO file_hints (source_id, path, size_bytes, mtime_ns, content_hash, skip_reason, skip_detail, git_blob)
        SELECT %s, * FROM unnest(
            %s::text[], %s::bigint[], %s::bigint[], %s::bytea[], %s::text[], %s::text[], %s::bytea[]
        )
        ON CONFLICT (source_id, path) DO UPDATE
        SET size_bytes = excluded.size_bytes, mtime_ns = excluded.mtime_ns, content_hash = excluded.content_hash,
            skip_reason = excluded.skip_reason, skip_detail = excluded.skip_detail, git_blob = excluded.git_blob
        """,
        (
            source_id,
            paths,
            [hint.size_bytes for hint in rows],
            [hint.mtime_ns for hint in rows],
            [hint.content_hash for hint in rows],
            [hint.skip[0] if hint.skip else None for hint in rows],
            [hint.skip[1] if hint.skip else None for hint in rows],
            [hint.git_blob for hint in rows],
        ),
    )
    await connection.execute(
        "DELETE FROM file_hints WHERE source_id = %s AND path = ANY(%s)", (source_id, sorted(gone))
    )


def _quick_cursor(connection: Connection) -> AsyncCursor[TupleRow]:
    """Return a cursor for a row per file: dicts and text cost twice as much."""
    return connection.cursor(binary=True, row_factory=tuple_row)
