"""What decisions are kept as. Every statement that reads takes a scope: a visible project at one generation of it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from services.core.db import Connection
from services.core.errors import Conflict
from services.core.snapshots import Scope
from services.decisions.encoding import EncodedDecision, decode
from services.decisions.records import Decision

_LIVES = (
    "{0}.project_id = %(project)s AND {0}.born <= %(generation)s AND ({0}.died IS NULL OR {0}.died > %(generation)s)"
)


@dataclass(frozen=True, slots=True)
class Run:
    """An index run as ingest names it, with the fencing number under which it works."""

    project_id: int
    id: int
    fence: int


@dataclass(frozen=True, slots=True)
class FileKey:
    """A file of a generation. A path alone may stand in several packages of a project."""

    package: str
    path: str


async def hold_run(connection: Connection, run: Run) -> None:
    """Keep the run from ending or being taken over until the transaction ends; Conflict when it has been."""
    # NO KEY UPDATE: calls of one run take turns, while ingest goes on adding rows that refer to the run.
    cursor = await connection.execute(
        """
        SELECT FROM operations WHERE id = %s AND project_id = %s AND fence = %s AND state = 'running'
        FOR NO KEY UPDATE
        """,
        (run.id, run.project_id, run.fence),
    )
    if await cursor.fetchone() is None:
        raise Conflict(
            f"Run {run.id} of project {run.project_id} is not running under fence {run.fence}.",
            remedy="Follow the run that has taken the project over.",
            reason="RUN_FENCED_OFF",
        )


async def source_ids(connection: Connection, project_id: int) -> frozenset[int]:
    """Return the ids of a project's sources."""
    cursor = await connection.execute("SELECT id FROM sources WHERE project_id = %s", (project_id,))
    return frozenset([row["id"] for row in await cursor.fetchall()])


async def replace_staged(
    connection: Connection,
    run: Run,
    files: Sequence[tuple[int, str]],
    records: Sequence[tuple[int, EncodedDecision]],
) -> None:
    """Stage records, as (source id, record), in place of all that the run has staged for ``files``."""
    await connection.execute(
        """
        DELETE FROM staged_decisions s USING unnest(%s::bigint[], %s::text[]) AS f (source_id, path)
        WHERE s.run_id = %s AND s.source_id = f.source_id AND s.path = f.path
        """,
        ([source_id for source_id, _ in files], [path for _, path in files], run.id),
    )
    ordered = sorted(records, key=lambda one: (one[0], one[1].path.encode()))
    await connection.execute(
        """
        INSERT INTO staged_decisions (run_id, source_id, path, number, title, status, record)
        SELECT %s, * FROM unnest(%s::bigint[], %s::text[], %s::integer[], %s::text[], %s::smallint[], %s::jsonb[])
        """,
        (
            run.id,
            [source_id for source_id, _ in ordered],
            [one.path for _, one in ordered],
            [one.number for _, one in ordered],
            [one.title for _, one in ordered],
            [one.status for _, one in ordered],
            [Jsonb(one.record) for _, one in ordered],
        ),
    )


async def decisions(connection: Connection, scope: Scope) -> list[tuple[FileKey, Decision]]:
    """Return the decisions that live in the scope by path, then package, their sections without texts."""
    cursor = await connection.execute(
        f"""
        SELECT d.package, d.path, d.number, d.title, d.status, d.record FROM decisions d
        WHERE {_LIVES.format("d")} ORDER BY d.path, d.package
        """,
        {"project": scope.project_id, "generation": scope.generation},
    )
    return [
        (
            FileKey(row["package"], row["path"]),
            decode(row["path"], row["number"], row["title"], row["status"], row["record"]),
        )
        for row in await cursor.fetchall()
    ]


async def file_keys(connection: Connection, scope: Scope) -> list[FileKey]:
    """Return all files that live in the scope, by package and path."""
    cursor = await connection.execute(
        f"SELECT f.package, f.path FROM files f WHERE {_LIVES.format('f')} ORDER BY f.package, f.path",
        {"project": scope.project_id, "generation": scope.generation},
    )
    return [FileKey(row["package"], row["path"]) for row in await cursor.fetchall()]


async def file_texts(connection: Connection, scope: Scope, keys: Sequence[FileKey]) -> dict[FileKey, str]:
    """Return the texts of those of the files that live in the scope."""
    cursor = await connection.execute(
        f"""
        SELECT f.package, f.path, t.text_zlib FROM unnest(%(packages)s::text[], %(paths)s::text[]) AS k (package, path)
        JOIN files f ON f.package = k.package AND f.path = k.path
        JOIN file_texts t ON t.project_id = f.project_id AND t.text_hash = f.text_hash
        WHERE {_LIVES.format("f")}
        """,
        {
            "project": scope.project_id,
            "generation": scope.generation,
            "packages": [key.package for key in keys],
            "paths": [key.path for key in keys],
        },
    )
    return {
        FileKey(row["package"], row["path"]): zlib.decompress(row["text_zlib"]).decode()
        for row in await cursor.fetchall()
    }
