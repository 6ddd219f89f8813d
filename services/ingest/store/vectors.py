"""The embedding cache: vectors by fingerprint, the truth that .tq files are made from (DESIGN I7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.core.db import Connection
from services.ingest.chunks import model_input
from services.ingest.store.sidecars import NEXT_CONTENTS


@dataclass(frozen=True, slots=True)
class MissingText:
    """A text whose vector the cache does not have."""

    fingerprint: bytes
    model_input: str


async def count_texts(connection: Connection, project_id: int, run_id: int) -> tuple[int, int]:
    """Count the distinct texts that the run must have vectors of, and those of them that the cache has."""
    cursor = await connection.execute(
        f"""
        WITH wanted AS (
            SELECT DISTINCT t.fingerprint FROM ({NEXT_CONTENTS}) n JOIN contents t ON t.id = n.content_id
            WHERE t.fingerprint IS NOT NULL
        )
        SELECT count(*) AS texts, count(v.id) AS hits
        FROM wanted w LEFT JOIN vectors v ON v.fingerprint = w.fingerprint
        """,
        {"run": run_id, "project": project_id},
    )
    row = await cursor.fetchone()
    return (row["texts"], row["hits"]) if row else (0, 0)


async def missing_texts(
    connection: Connection, project_id: int, run_id: int, after: bytes, limit: int
) -> list[MissingText]:
    """List texts that still have no vector, by fingerprint."""
    cursor = await connection.execute(
        f"""
        SELECT DISTINCT ON (t.fingerprint) t.fingerprint, t.embedded_title, t.text
        FROM ({NEXT_CONTENTS}) n JOIN contents t ON t.id = n.content_id
        WHERE t.fingerprint > %(after)s
          AND NOT EXISTS (SELECT FROM vectors v WHERE v.fingerprint = t.fingerprint)
        ORDER BY t.fingerprint, t.id LIMIT %(limit)s
        """,
        {"run": run_id, "project": project_id, "after": after, "limit": limit},
    )
    return [
        MissingText(bytes(row["fingerprint"]), model_input(row["embedded_title"], row["text"]))
        for row in await cursor.fetchall()
    ]


async def insert_vectors(
    connection: Connection, model_digest: str, fingerprints: Sequence[bytes], vectors: npt.NDArray[np.float32]
) -> None:
    """Store vectors, shape (n, dimensions); one that is there already stays."""
    order = sorted(range(len(fingerprints)), key=lambda i: fingerprints[i])
    await connection.execute(
        """
        INSERT INTO vectors (fingerprint, model_digest, embedding)
        SELECT f, %s, v::vector::halfvec FROM unnest(%s::bytea[], %s::text[]) AS n (f, v)
        ON CONFLICT (fingerprint) DO NOTHING
        """,
        (model_digest, [fingerprints[i] for i in order], [vector_text(vectors[i]) for i in order]),
    )


def vector_text(vector: npt.NDArray[np.float32]) -> str:
    """Write a vector the way pgvector reads it, exactly."""
    return "[" + ",".join(repr(float(x)) for x in vector) + "]"
