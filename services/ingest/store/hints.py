"""What is known of a source's files: live contents, and the hints that save reading them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.core.db import Connection
from services.ingest.changes import Hint, LiveFile


async def live_files(connection: Connection, source_id: int) -> dict[str, LiveFile]:
    """Return the live files by path."""
    cursor = await connection.execute(
        "SELECT path, content_hash, module FROM files WHERE source_id = %s AND died IS NULL", (source_id,)
    )
    return {row["path"]: LiveFile(bytes(row["content_hash"]), row["module"]) for row in await cursor.fetchall()}


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
    cursor = await connection.execute(
        """
        SELECT path, size_bytes, mtime_ns, content_hash, skip_reason, skip_detail FROM file_hints WHERE source_id = %s
        """,
        (source_id,),
    )
    return {
        row["path"]: Hint(
            row["size_bytes"],
            row["mtime_ns"],
            bytes(row["content_hash"]),
            (row["skip_reason"], row["skip_detail"]) if row["skip_reason"] is not None else None,
        )
        for row in await cursor.fetchall()
    }


async def write_hints(
    connection: Connection, source_id: int, hints: Mapping[str, Hint], gone: Sequence[str] = ()
) -> None:
    """Renew hints, and forget those of files that are gone."""
    paths = sorted(hints)
    rows = [hints[path] for path in paths]
    await connection.execute(
        """
        INSERT INTO file_hints (source_id, path, size_bytes, mtime_ns, content_hash, skip_reason, skip_detail)
        SELECT %s, * FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bytea[], %s::text[], %s::text[])
        ON CONFLICT (source_id, path) DO UPDATE
        SET size_bytes = excluded.size_bytes, mtime_ns = excluded.mtime_ns, content_hash = excluded.content_hash,
            skip_reason = excluded.skip_reason, skip_detail = excluded.skip_detail
        """,
        (
            source_id,
            paths,
            [hint.size_bytes for hint in rows],
            [hint.mtime_ns for hint in rows],
            [hint.content_hash for hint in rows],
            [hint.skip[0] if hint.skip else None for hint in rows],
            [hint.skip[1] if hint.skip else None for hint in rows],
        ),
    )
    await connection.execute(
        "DELETE FROM file_hints WHERE source_id = %s AND path = ANY(%s)", (source_id, sorted(gone))
    )
