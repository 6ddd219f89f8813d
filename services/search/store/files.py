"""Files: their text, and how many have which metadata."""

from __future__ import annotations

import zlib

from psycopg.rows import tuple_row

from services.core.db import Connection
from services.core.errors import NotFound
from services.core.snapshots import Scope
from services.search.queries import Filter
from services.search.store.filters import CHUNK_LIVES, LIVES, OF_FILES, parameters, where

# Keys of facets in an answer.
MOST_FACETS = 200
_HAS_CHUNK_OF_KIND = f"""
EXISTS (SELECT FROM chunks c WHERE c.source_id = f.source_id AND c.path = f.path AND c.kind = ANY(%(kinds)s)
                               AND {CHUNK_LIVES})
"""


async def file_text(connection: Connection, scope: Scope, path: str, package: str) -> tuple[str, str]:
    """Return package and text of a file; NotFound when there is none, or several and no package is named."""
    cursor = await connection.execute(
        f"""
        SELECT f.package, t.text_zlib FROM files f
        JOIN file_texts t ON t.project_id = f.project_id AND t.text_hash = f.text_hash
        WHERE f.path = %(path)s AND (%(package)s = '' OR f.package = %(package)s) AND {LIVES.format("f")}
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


async def facets(connection: Connection, scope: Scope, restriction: Filter, limit: int) -> list[tuple[str, str, int]]:
    """Count the files that pass a filter by (key, value): their metadata, with package and language.

    Of each key, the ``limit`` values of the most files; of the keys, those of the most files, ``MOST_FACETS`` of them.
    """
    passes = where(restriction, "f", OF_FILES) + (f" AND {_HAS_CHUNK_OF_KIND}" if restriction.kinds else "")
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
            WHERE f.project_id = %(project)s AND {LIVES.format("f")} {passes}
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
            {**parameters(scope, restriction), "most": limit},
        )
        return [(key, value, files) async for key, value, files in cursor]
