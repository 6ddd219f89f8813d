"""Comparing what a run staged with what is live, and making it the next generation in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg.types.json import Jsonb

from services.core.db import Connection
from services.core.notifications import GENERATIONS
from services.core.sidecars import SidecarFile
from services.ingest.projects import DECISIONS, Degradation
from services.ingest.store import projects, staging, vectors
from services.ingest.store.operations import Claim, hold

# So few chunks in a small database are no reason to renew the planner's statistics.
_FEW_CHUNKS = 20
# A live chunk and a staged one are one when all of this is equal.
_SAME_CHUNK = """
s.key = c.key AND s.content_id = c.content_id AND s.kind = c.kind AND s.start_line = c.start_line
AND s.end_line = c.end_line AND s.source_id = c.source_id AND s.path = c.path
"""


@dataclass(frozen=True, slots=True)
class ChunkDiff:
    """Chunks by what publishing does to them."""

    kept: int
    moved: int
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class NextGeneration:
    """What a generation is made with, besides the staged rows."""

    pipeline_hash: bytes
    model_name: str
    model_digest: str
    model_dimensions: int
    model_budget_tokens: int
    degraded: Sequence[Degradation] = ()
    sidecars: Sequence[SidecarFile] = ()
    # What the sidecars hold.
    documents: int = 0
    vectors: int = 0


async def diff_chunks(connection: Connection, project_id: int, run_id: int, live_chunks: int) -> ChunkDiff:
    """Count what publishing the run would do to the live chunks. A moved chunk keeps key and content."""
    cursor = await connection.execute(
        f"""
        WITH touched AS (
            SELECT c.* FROM chunks c JOIN staged_files f ON f.source_id = c.source_id AND f.path = c.path
            WHERE f.run_id = %(run)s AND c.died IS NULL AND c.project_id = %(project)s
        ), joined AS (
            SELECT c.id AS live, s.key AS staged, c.content_id = s.content_id AS same_content,
                   c.id IS NOT NULL AND s.key IS NOT NULL AND {_SAME_CHUNK} AS same
            FROM touched c FULL JOIN (SELECT * FROM staged_chunks WHERE run_id = %(run)s) s ON s.key = c.key
        )
        SELECT count(*) FILTER (WHERE same) AS same,
               count(*) FILTER (WHERE NOT same AND same_content) AS moved,
               count(*) FILTER (WHERE staged IS NOT NULL AND NOT coalesce(same_content, false)) AS added,
               count(*) FILTER (WHERE live IS NOT NULL AND NOT coalesce(same_content, false)) AS removed,
               count(live) AS touched
        FROM joined
        """,
        {"run": run_id, "project": project_id},
    )
    row = await cursor.fetchone()
    assert row is not None
    return ChunkDiff(live_chunks - row["touched"] + row["same"], row["moved"], row["added"], row["removed"])


async def changes_anything(connection: Connection, run_id: int) -> bool:
    """Tell whether publishing the run would change a row of files, chunks, symbols, edges or decisions."""
    checks = [
        _differs(
            "files",
            "staged_files",
            "content_hash, text_hash, language, module, package, notes, settings, metadata",
            "AND s.state = 'present'",
        ),
        _differs(
            "chunks", "staged_chunks", "key, content_id, kind, language, qualified_name, package, start_line, end_line"
        ),
        _differs(
            "symbols",
            "staged_symbols",
            "qualified_name, name, kind, language, package, signature, summary, start_line, end_line",
        ),
        _differs(
            "edges",
            "staged_edges",
            "source_symbol, kind, target_symbol, resolved, line, line_text, language, package",
        ),
        _differs("decisions", "staged_decisions", "number, title, status, record"),
    ]
    cursor = await connection.execute(f"SELECT {' OR '.join(checks)} AS changes", {"run": run_id})
    row = await cursor.fetchone()
    return bool(row and row["changes"])


def _differs(live: str, staged: str, columns: str, condition: str = "") -> str:
    wanted = f"source_id, path, {columns}"
    lives = ", ".join(f"c.{column.strip()}" for column in wanted.split(","))
    stages = ", ".join(f"s.{column.strip()}" for column in wanted.split(","))
    live_rows = f"""
        SELECT {lives} FROM {live} c JOIN staged_files f ON f.source_id = c.source_id AND f.path = c.path
        WHERE f.run_id = %(run)s AND c.died IS NULL
    """
    staged_rows = f"SELECT {stages} FROM {staged} s WHERE s.run_id = %(run)s {condition}"
    return f"""
        EXISTS (({live_rows}) EXCEPT ALL ({staged_rows})) OR EXISTS (({staged_rows}) EXCEPT ALL ({live_rows}))
    """


async def publish(connection: Connection, claim: Claim, next_generation: NextGeneration) -> int:
    """Make the run's rows and sidecars the live generation; return its number.

    All in the caller's transaction, whose commit is the publish. Fails with Conflict when the claim is no longer the
    latest.
    """
    await hold(connection, claim)
    project_id, run_id = claim.operation.project_id, claim.operation.id
    cursor = await connection.execute(
        "UPDATE projects SET generation = generation + 1 WHERE id = %s RETURNING generation", (project_id,)
    )
    row = await cursor.fetchone()
    assert row is not None
    number: int = row["generation"]
    parameters = {"run": run_id, "project": project_id, "generation": number}
    counts = await _counts(connection, project_id, number - 1)
    for table, sign, statement in _MERGE:
        cursor = await connection.execute(statement, parameters)
        counts[table] += sign * cursor.rowcount
    mined = all(one.method != DECISIONS for one in next_generation.degraded)
    await connection.execute(
        "SELECT publish_decisions(%(run)s, %(project)s, %(generation)s, %(mined)s)", {**parameters, "mined": mined}
    )
    await vectors.replace_renewed(connection, run_id, next_generation.model_digest)
    await staging.clear(connection, run_id)
    await _replace_sidecars(connection, project_id, number, next_generation.sidecars)
    await connection.execute(
        "UPDATE generations SET superseded_at = now() WHERE project_id = %s AND superseded_at IS NULL", (project_id,)
    )
    await connection.execute(
        """
        INSERT INTO generations (project_id, number, run_id, pipeline_hash, model_name, model_digest,
                                 model_dimensions, model_budget_tokens, counts, degraded)
        VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
        """,
        (
            project_id,
            number,
            run_id,
            next_generation.pipeline_hash,
            next_generation.model_name,
            next_generation.model_digest,
            next_generation.model_dimensions,
            next_generation.model_budget_tokens,
            Jsonb(
                {
                    **counts,
                    "decisions": await _count_decisions(connection, project_id),
                    "documents": next_generation.documents,
                    "vectors": next_generation.vectors,
                }
            ),
            projects.degraded_json(next_generation.degraded),
        ),
    )
    await connection.execute(f"NOTIFY {GENERATIONS}")
    return number


async def analyze_after(connection: Connection, chunks: int) -> None:
    """Tell the planner of what was published, where that is much beside what it knows of: autovacuum's rule, at once.

    Autovacuum comes a minute later or more, and until then a query of a new project of 528 chunks takes 79 ms, not 29.
    """
    cursor = await connection.execute("SELECT reltuples FROM pg_class WHERE oid = 'chunks'::regclass")
    row = await cursor.fetchone()
    # Below zero where the table was never analyzed.
    known = max(0.0, float(row["reltuples"])) if row else 0.0
    if chunks < _FEW_CHUNKS + known / 10:
        return
    await connection.execute("ANALYZE (SKIP_LOCKED) files, file_texts, chunks, contents, symbols, edges, vectors")


async def _counts(connection: Connection, project_id: int, generation: int) -> dict[str, int]:
    """Return how many files, chunks, symbols and edges a generation has, as it was published."""
    cursor = await connection.execute(
        "SELECT counts FROM generations WHERE project_id = %s AND number = %s", (project_id, generation)
    )
    row = await cursor.fetchone()
    return {table: int(row["counts"][table]) if row else 0 for table in ("files", "chunks", "symbols", "edges")}


async def _count_decisions(connection: Connection, project_id: int) -> int:
    cursor = await connection.execute(
        "SELECT count(*) AS n FROM decisions WHERE project_id = %s AND died IS NULL", (project_id,)
    )
    row = await cursor.fetchone()
    return int(row["n"]) if row else 0


# Table, whether its rows become more or fewer, and how. In this order: an end frees the unique index over live rows for
# what is born in its place.
_MERGE: tuple[tuple[str, int, str], ...] = (
    (
        "files",
        -1,
        """
        UPDATE files c SET died = %(generation)s FROM staged_files s
        WHERE s.run_id = %(run)s AND s.source_id = c.source_id AND s.path = c.path AND c.died IS NULL
          AND (s.state = 'deleted'
               OR (s.content_hash, s.text_hash, s.language, s.module, s.package, s.notes, s.settings, s.metadata)
                  IS DISTINCT FROM
                  (c.content_hash, c.text_hash, c.language, c.module, c.package, c.notes, c.settings, c.metadata))
        """,
    ),
    (
        "files",
        1,
        """
        INSERT INTO files (project_id, source_id, package, path, language, module, content_hash, size_bytes, text_hash,
                           notes, settings, metadata, born)
        SELECT %(project)s, s.source_id, s.package, s.path, s.language, s.module, s.content_hash, s.size_bytes,
               s.text_hash, s.notes, s.settings, s.metadata, %(generation)s
        FROM staged_files s
        WHERE s.run_id = %(run)s AND s.state = 'present'
          AND NOT EXISTS (SELECT FROM files c WHERE c.source_id = s.source_id AND c.path = s.path AND c.died IS NULL)
        ORDER BY s.source_id, s.path
        """,
    ),
    (
        "chunks",
        -1,
        f"""
        UPDATE chunks c SET died = %(generation)s FROM staged_files f
        WHERE f.run_id = %(run)s AND f.source_id = c.source_id AND f.path = c.path AND c.died IS NULL
          AND NOT EXISTS (SELECT FROM staged_chunks s WHERE s.run_id = %(run)s AND {_SAME_CHUNK})
        """,
    ),
    (
        "chunks",
        1,
        """
        INSERT INTO chunks (project_id, source_id, content_id, package, path, key, kind, language, qualified_name,
                            start_line, end_line, born)
        SELECT %(project)s, s.source_id, s.content_id, s.package, s.path, s.key, s.kind, s.language, s.qualified_name,
               s.start_line, s.end_line, %(generation)s
        FROM staged_chunks s
        WHERE s.run_id = %(run)s
          AND NOT EXISTS (SELECT FROM chunks c WHERE c.project_id = %(project)s AND c.key = s.key AND c.died IS NULL)
        ORDER BY s.key
        """,
    ),
    (
        "symbols",
        -1,
        """
        UPDATE symbols c SET died = %(generation)s FROM staged_files f
        WHERE f.run_id = %(run)s AND f.source_id = c.source_id AND f.path = c.path AND c.died IS NULL
        """,
    ),
    (
        "symbols",
        1,
        """
        INSERT INTO symbols (project_id, source_id, package, path, qualified_name, name, kind, language, signature,
                             summary, start_line, end_line, born)
        SELECT %(project)s, source_id, package, path, qualified_name, name, kind, language, signature, summary,
               start_line, end_line, %(generation)s
        FROM staged_symbols WHERE run_id = %(run)s ORDER BY source_id, path, start_line, qualified_name
        """,
    ),
    (
        "edges",
        -1,
        """
        UPDATE edges c SET died = %(generation)s FROM staged_files f
        WHERE f.run_id = %(run)s AND f.source_id = c.source_id AND f.path = c.path AND c.died IS NULL
        """,
    ),
    (
        "edges",
        1,
        """
        INSERT INTO edges (project_id, source_id, package, path, language, source_symbol, kind, target_symbol,
                           target_name, resolved, line, line_text, born)
        SELECT %(project)s, source_id, package, path, language, source_symbol, kind, target_symbol, target_name,
               resolved, line, line_text, %(generation)s
        FROM staged_edges WHERE run_id = %(run)s ORDER BY source_id, path, line, target_symbol
        """,
    ),
)


async def _replace_sidecars(
    connection: Connection, project_id: int, generation: int, files: Sequence[SidecarFile]
) -> None:
    """End sidecars that the generation does not have, and add those that are new to it."""
    live = {
        (file.method, file.logical_name, file.sha256): row_id for row_id, file in await _live(connection, project_id)
    }
    wanted = {(file.method, file.logical_name, file.sha256): file for file in files}
    ended = [row_id for key, row_id in live.items() if key not in wanted]
    await connection.execute("UPDATE sidecars SET died = %s WHERE id = ANY(%s)", (generation, ended))
    for key in sorted(wanted.keys() - live.keys()):
        file = wanted[key]
        await connection.execute(
            """
            INSERT INTO sidecars (project_id, method, logical_name, sha256, size_bytes, born)
            VALUES (%s, %s, %s, %s, %s, %s)
            """,
            (project_id, file.method, file.logical_name, file.sha256, file.size_bytes, generation),
        )


async def live_sidecars(connection: Connection, project_id: int) -> list[SidecarFile]:
    """Return the sidecars of the live generation by method and name."""
    return [file for _, file in await _live(connection, project_id)]


async def built_at(connection: Connection, project_id: int) -> dict[str, datetime]:
    """Return when the newest live sidecar of each method was published."""
    cursor = await connection.execute(
        """
        SELECT method, max(created_at) AS at FROM sidecars WHERE project_id = %s AND died IS NULL GROUP BY method
        """,
        (project_id,),
    )
    return {row["method"]: row["at"] for row in await cursor.fetchall()}


async def _live(connection: Connection, project_id: int) -> list[tuple[int, SidecarFile]]:
    cursor = await connection.execute(
        """
        SELECT id, method, logical_name, sha256, size_bytes FROM sidecars
        WHERE project_id = %s AND died IS NULL ORDER BY method, logical_name, id
        """,
        (project_id,),
    )
    return [
        (row["id"], SidecarFile(row["method"], row["logical_name"], bytes(row["sha256"]), row["size_bytes"]))
        for row in await cursor.fetchall()
    ]


async def replace_live_sidecars(
    connection: Connection, project_id: int, files: Sequence[SidecarFile], documents: int, vectors_held: int
) -> None:
    """Point the live generation at rebuilt sidecars: the same answers from other bytes."""
    cursor = await connection.execute("SELECT generation FROM projects WHERE id = %s FOR UPDATE", (project_id,))
    row = await cursor.fetchone()
    assert row is not None
    # Generations that are kept besides the live one go on with the files that they share with it.
    await connection.execute(
        "UPDATE sidecars SET died = %(live)s WHERE project_id = %(project)s AND died IS NULL AND born < %(live)s",
        {"project": project_id, "live": row["generation"]},
    )
    await connection.execute("DELETE FROM sidecars WHERE project_id = %s AND died IS NULL", (project_id,))
    await _replace_sidecars(connection, project_id, row["generation"], files)
    # A rebuilt vector file has what the cache has got since.
    await connection.execute(
        "UPDATE generations SET counts = counts || %s WHERE project_id = %s AND number = %s",
        (Jsonb({"documents": documents, "vectors": vectors_held}), project_id, row["generation"]),
    )
    await connection.execute(f"NOTIFY {GENERATIONS}")
