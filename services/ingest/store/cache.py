"""The embedding cache as admins handle it: counts, pages in the order of an export, taking in, retention.

Work on many vectors goes by pages of one transaction each, in the order of fingerprints. A page that is to be marked or
deleted passes over rows that somebody else has locked, so it waits for nobody and is in no deadlock.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from psycopg.rows import tuple_row

from services.core.db import Connection
from services.core.errors import DataLoss
from services.ingest.cache.format import FINGERPRINT_BYTES, ModelVectors, VectorBlock

_COPY_HEAD, _COPY_END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
# now() minus more than this leaves the range of a timestamp.
_LONGEST_S = 100.0 * 365 * 86_400
# A publish takes no longer, from the start of its transaction to its commit.
_PUBLISH_S = 120.0


@dataclass(frozen=True, slots=True)
class CachedModel:
    """Vectors of one model; ``unused`` of them are of texts that no project has."""

    digest: str
    dimensions: int
    vectors: int
    unused: int

    @property
    def size_bytes(self) -> int:
        return 2 * self.dimensions * self.vectors


async def count_models(connection: Connection, digest: str | None = None) -> tuple[ModelVectors, ...]:
    """Count the vectors of all models, or of one, by digest."""
    cursor = await connection.execute(
        """
        SELECT m.digest, m.vectors,
               (SELECT vector_dims(v.embedding) FROM vectors v WHERE v.model_digest = m.digest LIMIT 1) AS dimensions
        FROM (
            SELECT model_digest AS digest, count(*) AS vectors FROM vectors
            WHERE %(digest)s::text IS NULL OR model_digest = %(digest)s GROUP BY model_digest
        ) m ORDER BY m.digest COLLATE "C"
        """,
        {"digest": digest},
    )
    return tuple([ModelVectors(**row) async for row in cursor])


async def list_models(connection: Connection) -> list[CachedModel]:
    """Tell what the cache holds, by digest of the model."""
    cursor = await connection.execute(
        """
        SELECT v.model_digest AS digest, count(*) AS unused FROM vectors v
        WHERE NOT EXISTS (SELECT FROM contents t WHERE t.fingerprint = v.fingerprint) GROUP BY v.model_digest
        """
    )
    unused = {row["digest"]: row["unused"] for row in await cursor.fetchall()}
    return [
        CachedModel(one.digest, one.dimensions, one.vectors, unused.get(one.digest, 0))
        for one in await count_models(connection)
    ]


async def read_blocks(
    connection: Connection, index: int, model: ModelVectors, rows: int
) -> AsyncGenerator[VectorBlock, None]:
    """Yield the vectors of a model by fingerprint, bit for bit, so many ``rows`` at a time."""
    # One cursor and not pages: a plan that is poor for want of statistics is paid for once.
    async with connection.cursor("exported_vectors", binary=True, row_factory=tuple_row) as cursor:
        await cursor.execute(
            "SELECT fingerprint, halfvec_send(embedding) FROM vectors WHERE model_digest = %s ORDER BY fingerprint",
            (model.digest,),
        )
        while found := await cursor.fetchmany(rows):
            # halfvec's wire form: int16 dimensions, int16 unused, then big-endian float16.
            if any(len(vector) != 4 + 2 * model.dimensions for _, vector in found):
                raise DataLoss(
                    f"The embedding cache has vectors of several lengths for the model {model.digest[:12]}.",
                    remedy="Index the projects of the model with --re-embed, which makes its vectors anew.",
                    reason="CACHE_INCONSISTENT",
                )
            bits = np.frombuffer(b"".join(vector[4:] for _, vector in found), dtype=">u2").astype("<u2")
            vectors = bits.view("<f2").reshape(len(found), model.dimensions)
            yield VectorBlock(index, b"".join(fingerprint for fingerprint, _ in found), vectors)


async def begin_intake(connection: Connection) -> None:
    """Prepare the transaction for ``take_in``."""
    await connection.execute(
        """
        CREATE TEMPORARY TABLE imported_vectors (
            fingerprint bytea NOT NULL,
            embedding halfvec STORAGE EXTERNAL NOT NULL
        ) ON COMMIT DROP
        """
    )


async def take_in(connection: Connection, model_digest: str, fingerprints: bytes, vectors: npt.NDArray[Any]) -> int:
    """Add vectors, float16 of shape (n, dimensions) and ascending by fingerprint; return how many were not there.

    What is there already stays, but counts as unused from now on if it was. It is locked first and added after: what
    somebody was removing meanwhile is then gone, and added.
    """
    async with connection.cursor() as cursor:
        async with cursor.copy("COPY imported_vectors FROM STDIN (FORMAT BINARY)") as copy:
            await copy.write(_COPY_HEAD)
            await copy.write(_copy_rows(fingerprints, vectors))
            await copy.write(_COPY_END)
        await cursor.execute(
            """
            UPDATE vectors SET unused_since = now() WHERE id = ANY(ARRAY(
                SELECT v.id FROM imported_vectors i JOIN vectors v ON v.fingerprint = i.fingerprint
                WHERE v.unused_since IS NOT NULL ORDER BY v.fingerprint FOR UPDATE OF v
            ))
            """
        )
        await cursor.execute(
            """
            INSERT INTO vectors (fingerprint, model_digest, embedding, unused_since)
            SELECT fingerprint, %s, embedding, now() FROM imported_vectors ORDER BY fingerprint
            ON CONFLICT (fingerprint) DO NOTHING
            """,
            (model_digest,),
        )
        added = cursor.rowcount
        await cursor.execute("TRUNCATE imported_vectors")
    return added


def _copy_rows(fingerprints: bytes, vectors: npt.NDArray[Any]) -> bytes:
    """Return rows of (fingerprint, vector) as Postgres reads them in binary, bit for bit."""
    count, dimensions = vectors.shape
    rows = np.zeros(
        count,
        dtype=[
            ("fields", ">i2"),
            ("fingerprint_bytes", ">i4"),
            ("fingerprint", "u1", (FINGERPRINT_BYTES,)),
            ("embedding_bytes", ">i4"),
            ("dimensions", ">i2"),
            ("unused", ">i2"),
            ("embedding", ">u2", (dimensions,)),
        ],
    )
    rows["fields"] = 2
    rows["fingerprint_bytes"] = FINGERPRINT_BYTES
    rows["fingerprint"] = np.frombuffer(fingerprints, dtype="u1").reshape(count, FINGERPRINT_BYTES)
    rows["embedding_bytes"] = 4 + 2 * dimensions
    rows["dimensions"] = dimensions
    rows["embedding"] = vectors.view("<u2")
    return rows.tobytes()


async def mark_unused(connection: Connection, after: bytes, limit: int) -> bytes | None:
    """Note of the next ``limit`` vectors whose text no project has since when that is; return the last's fingerprint.

    None when there are no more. A vector that was noted before keeps its time.
    """
    cursor = await connection.execute(
        """
        SELECT v.fingerprint FROM vectors v
        WHERE v.fingerprint > %s AND NOT EXISTS (SELECT FROM contents t WHERE t.fingerprint = v.fingerprint)
        ORDER BY v.fingerprint LIMIT %s
        """,
        (after, limit),
    )
    fingerprints = [row["fingerprint"] for row in await cursor.fetchall()]
    if not fingerprints:
        return None
    await connection.execute(
        """
        UPDATE vectors SET unused_since = now() WHERE id = ANY(ARRAY(
            SELECT v.id FROM vectors v
            WHERE v.fingerprint = ANY(%s) AND v.unused_since IS NULL
            ORDER BY v.fingerprint FOR UPDATE OF v SKIP LOCKED
        ))
        """,
        (fingerprints,),
    )
    return bytes(fingerprints[-1])


async def mark_used(connection: Connection, limit: int) -> int:
    """Note of at most ``limit`` vectors that a project has their text again; return how many."""
    cursor = await connection.execute(
        """
        UPDATE vectors SET unused_since = NULL WHERE id = ANY(ARRAY(
            SELECT v.id FROM vectors v
            WHERE v.unused_since IS NOT NULL AND EXISTS (SELECT FROM contents t WHERE t.fingerprint = v.fingerprint)
            ORDER BY v.fingerprint LIMIT %s FOR UPDATE OF v SKIP LOCKED
        ))
        """,
        (limit,),
    )
    return cursor.rowcount


async def prune(connection: Connection, unused_for_s: float, limit: int) -> int:
    """Delete at most ``limit`` vectors that were unused for so long, and still are; return how many.

    A run first commits the texts that it needs, then clears ``unused_since`` of their vectors, and then counts what is
    there (``store.vectors.keep``). So a vector is either deleted before that, and made anew, or found used here: the
    conditions are checked on the row as it is once it is locked.
    """
    cursor = await connection.execute(
        """
        DELETE FROM vectors WHERE id = ANY(ARRAY(
            SELECT v.id FROM vectors v
            WHERE v.unused_since IS NOT NULL
              AND (%(unused_for)s <= 0 OR v.unused_since <= now() - make_interval(secs => %(unused_for)s))
              AND NOT EXISTS (SELECT FROM contents t WHERE t.fingerprint = v.fingerprint)
            ORDER BY v.fingerprint LIMIT %(limit)s FOR UPDATE OF v SKIP LOCKED
        ))
        """,
        {"unused_for": min(unused_for_s, _LONGEST_S), "limit": limit},
    )
    return cursor.rowcount


async def prune_superseded(connection: Connection, limit: int) -> int:
    """Delete at most ``limit`` superseded vectors that no generation reads any more; return how many.

    A generation may read one if it has its text and its run began before the vector was superseded, as index files are
    written during the run; the run that superseded it published at that very time and does not.
    """
    cursor = await connection.execute(
        """
        DELETE FROM superseded_vectors WHERE id = ANY(ARRAY(
            SELECT s.id FROM superseded_vectors s
            WHERE NOT EXISTS (
                SELECT FROM contents t
                JOIN generations g ON g.project_id = t.project_id
                LEFT JOIN operations o ON o.id = g.run_id
                WHERE t.fingerprint = s.fingerprint AND g.published_at <> s.superseded_at
                  AND coalesce(o.started_at, g.published_at) < s.superseded_at + make_interval(secs => %(publish)s)
            ) AND NOT EXISTS (
                SELECT FROM contents t
                JOIN operations o ON o.project_id = t.project_id
                WHERE t.fingerprint = s.fingerprint AND o.state = 'running'
                  AND o.started_at < s.superseded_at + make_interval(secs => %(publish)s)
            )
            ORDER BY s.fingerprint, s.id LIMIT %(limit)s FOR UPDATE OF s SKIP LOCKED
        ))
        """,
        {"publish": _PUBLISH_S, "limit": limit},
    )
    return cursor.rowcount


async def count_vectors(connection: Connection) -> int:
    """Count all vectors of the cache."""
    row = await (await connection.execute("SELECT count(*) AS n FROM vectors")).fetchone()
    return int(row["n"]) if row else 0
