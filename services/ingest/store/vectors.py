"""The embedding cache: vectors by fingerprint, the truth that .tq files are made from (DESIGN I7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString

import numpy as np
import numpy.typing as npt
from psycopg.rows import tuple_row

from services.core.db import Connection
from services.ingest.chunks import model_input
from services.ingest.embedder import Processor
from services.ingest.store.sidecars import NEXT_CONTENTS


@dataclass(frozen=True, slots=True)
class MissingText:
    """A text whose vector the cache does not have."""

    fingerprint: bytes
    model_input: str


# Contents of new and changed files alone: those of the others have their vectors already.
_STAGED_CONTENTS = "SELECT DISTINCT content_id FROM staged_chunks WHERE run_id = %(run)s"


def _contents(everything: bool) -> str:
    return NEXT_CONTENTS if everything else _STAGED_CONTENTS


async def keep(connection: Connection, run_id: int) -> None:
    """Keep the vectors that the run needs from being pruned as unused, now or while this statement waits."""
    await connection.execute(
        f"""
        UPDATE vectors SET unused_since = NULL WHERE id = ANY(ARRAY(
            -- In the order in which imports and prunes take them.
            SELECT v.id FROM vectors v
            WHERE v.unused_since IS NOT NULL AND v.fingerprint IN (
                SELECT t.fingerprint FROM ({_STAGED_CONTENTS}) n JOIN contents t ON t.id = n.content_id
            )
            ORDER BY v.fingerprint FOR UPDATE OF v
        ))
        """,
        {"run": run_id},
    )


async def count_texts(connection: Connection, project_id: int, run_id: int, *, everything: bool) -> tuple[int, int]:
    """Count the distinct texts of new and changed files, or of all, and those of them that the cache has."""
    cursor = await connection.execute(
        f"""
        WITH wanted AS (
            SELECT DISTINCT t.fingerprint FROM ({_contents(everything)}) n JOIN contents t ON t.id = n.content_id
            WHERE t.fingerprint IS NOT NULL
        )
        SELECT count(*) AS texts, count(v.id) AS hits
        FROM wanted w LEFT JOIN vectors v ON v.fingerprint = w.fingerprint
        """,
        {"run": run_id, "project": project_id},
    )
    row = await cursor.fetchone()
    return (row["texts"], row["hits"]) if row else (0, 0)


async def missing(connection: Connection, project_id: int, run_id: int, *, everything: bool) -> list[bytes]:
    """Return the fingerprints, in order, of texts of new and changed files, or of all, that have no vector yet."""
    return await _fingerprints(
        connection,
        f"""
        SELECT DISTINCT t.fingerprint FROM ({_contents(everything)}) n JOIN contents t ON t.id = n.content_id
        WHERE t.fingerprint IS NOT NULL AND NOT EXISTS (SELECT FROM vectors v WHERE v.fingerprint = t.fingerprint)
        ORDER BY 1
        """,
        {"run": run_id, "project": project_id},
    )


async def not_renewed(connection: Connection, project_id: int, run_id: int) -> list[bytes]:
    """Return the fingerprints, in order, of all texts that the run has not embedded anew yet."""
    return await _fingerprints(
        connection,
        f"""
        SELECT DISTINCT t.fingerprint FROM ({NEXT_CONTENTS}) n JOIN contents t ON t.id = n.content_id
        WHERE t.fingerprint IS NOT NULL AND NOT EXISTS (
            SELECT FROM staged_vectors s WHERE s.run_id = %(run)s AND s.fingerprint = t.fingerprint
        )
        ORDER BY 1
        """,
        {"run": run_id, "project": project_id},
    )


async def _fingerprints(connection: Connection, query: LiteralString, parameters: Mapping[str, int]) -> list[bytes]:
    async with connection.cursor(row_factory=tuple_row, binary=True) as cursor:
        await cursor.execute(query, parameters)
        return [fingerprint async for (fingerprint,) in cursor]


async def texts(connection: Connection, project_id: int, fingerprints: Sequence[bytes]) -> list[MissingText]:
    """Return the texts behind fingerprints, by fingerprint."""
    cursor = await connection.execute(
        """
        SELECT DISTINCT ON (fingerprint) fingerprint, embedded_title, text FROM contents
        WHERE project_id = %s AND fingerprint = ANY(%s) ORDER BY fingerprint, id
        """,
        (project_id, list(fingerprints)),
    )
    return [
        MissingText(bytes(row["fingerprint"]), model_input(row["embedded_title"], row["text"]))
        for row in await cursor.fetchall()
    ]


async def note_processor(connection: Connection, model_digest: str, processor: Processor) -> int:
    """Return the id of a kind of processor that makes vectors of a model, noting it when it is the first time."""
    parameters = (model_digest, processor.probe_fingerprint)
    known = "SELECT id FROM embedding_processors WHERE model_digest = %s AND probe_fingerprint = %s"
    row = await (await connection.execute(known, parameters)).fetchone()
    if row is None:
        await connection.execute(
            """
            INSERT INTO embedding_processors (model_digest, probe_fingerprint, probe_cosine) VALUES (%s, %s, %s)
            ON CONFLICT (model_digest, probe_fingerprint) DO NOTHING
            """,
            (*parameters, processor.probe_cosine),
        )
        row = await (await connection.execute(known, parameters)).fetchone()
    assert row is not None
    return int(row["id"])


async def stage_vectors(
    connection: Connection,
    run_id: int,
    fingerprints: Sequence[bytes],
    vectors: npt.NDArray[np.float32],
    processor_id: int,
) -> None:
    """Keep vectors, shape (n, dimensions), that replace those of the cache when the run publishes.

    One that came out as the cache has it replaces nothing.
    """
    await connection.execute(
        """
        INSERT INTO staged_vectors (run_id, processor_id, fingerprint, id, embedding)
        SELECT %s, %s, n.fingerprint, CASE WHEN d.differs THEN nextval(pg_get_serial_sequence('vectors', 'id')) END,
               CASE WHEN d.differs THEN n.embedding END
        FROM (SELECT f AS fingerprint, v::vector::halfvec AS embedding FROM unnest(%s::bytea[], %s::text[]) u (f, v)) n
        LEFT JOIN vectors c ON c.fingerprint = n.fingerprint
        CROSS JOIN LATERAL (SELECT c.embedding IS NULL OR c.embedding <> n.embedding AS differs) d
        ON CONFLICT (run_id, fingerprint) DO NOTHING
        """,
        (run_id, processor_id, list(fingerprints), [vector_text(vector) for vector in vectors]),
    )
    # What came out the same was made by this kind of processor as well as by the one before.
    await connection.execute(
        """
        UPDATE vectors SET processor_id = %(processor)s WHERE id = ANY(ARRAY(
            SELECT v.id FROM staged_vectors s JOIN vectors v ON v.fingerprint = s.fingerprint
            WHERE s.run_id = %(run)s AND s.fingerprint = ANY(%(fingerprints)s) AND s.id IS NULL
              AND v.processor_id IS DISTINCT FROM %(processor)s
            ORDER BY v.fingerprint FOR UPDATE OF v
        ))
        """,
        {"processor": processor_id, "run": run_id, "fingerprints": list(fingerprints)},
    )


async def any_renewed(connection: Connection, run_id: int) -> bool:
    """Tell whether any vector came out otherwise than the cache has it."""
    cursor = await connection.execute(
        "SELECT EXISTS (SELECT FROM staged_vectors WHERE run_id = %s AND id IS NOT NULL) AS any", (run_id,)
    )
    row = await cursor.fetchone()
    return bool(row and row["any"])


async def replace_renewed(connection: Connection, run_id: int, model_digest: str) -> None:
    """Make what the run embedded anew the cache. What it replaces stays readable under its id (DESIGN I3)."""
    await connection.execute(
        """
        WITH replaced AS (
            DELETE FROM vectors v USING staged_vectors s
            WHERE s.run_id = %(run)s AND s.id IS NOT NULL AND s.fingerprint = v.fingerprint
            RETURNING v.id, v.fingerprint, v.model_digest, v.embedding
        )
        INSERT INTO superseded_vectors (id, fingerprint, model_digest, embedding)
        SELECT id, fingerprint, model_digest, embedding FROM replaced
        """,
        {"run": run_id},
    )
    await connection.execute(
        """
        INSERT INTO vectors (id, fingerprint, model_digest, embedding, processor_id) OVERRIDING SYSTEM VALUE
        SELECT id, fingerprint, %(digest)s, embedding, processor_id FROM staged_vectors
        WHERE run_id = %(run)s AND id IS NOT NULL ORDER BY fingerprint
        """,
        {"run": run_id, "digest": model_digest},
    )


async def insert_vectors(
    connection: Connection,
    model_digest: str,
    fingerprints: Sequence[bytes],
    vectors: npt.NDArray[np.float32],
    processor_id: int,
) -> None:
    """Store vectors, shape (n, dimensions); one that is there already stays."""
    order = sorted(range(len(fingerprints)), key=lambda i: fingerprints[i])
    await connection.execute(
        """
        INSERT INTO vectors (fingerprint, model_digest, processor_id, embedding)
        SELECT f, %s, %s, v::vector::halfvec FROM unnest(%s::bytea[], %s::text[]) AS n (f, v)
        ON CONFLICT (fingerprint) DO NOTHING
        """,
        (model_digest, processor_id, [fingerprints[i] for i in order], [vector_text(vectors[i]) for i in order]),
    )


def vector_text(vector: npt.NDArray[np.float32]) -> str:
    """Write a vector the way pgvector reads it, exactly."""
    return "[" + ",".join(repr(float(x)) for x in vector) + "]"
