"""What sidecars are made from. Synchronous: building one is a thread's work, and large ones are streamed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import psycopg

Ids = npt.NDArray[np.uint64]

_PAGE_ROWS = 4096
# With more changes, comparing all ids of both generations costs less than looking at each change.
_MOST_CHANGES = 20_000

# Contents that live after the run: staged ones, and live ones of files that the run does not touch.
NEXT_CONTENTS = """
SELECT content_id FROM staged_chunks WHERE run_id = %(run)s
UNION
SELECT c.content_id FROM chunks c
WHERE c.project_id = %(project)s AND c.died IS NULL AND NOT EXISTS (
    SELECT FROM staged_files f WHERE f.run_id = %(run)s AND f.source_id = c.source_id AND f.path = c.path
)
"""
_LIVE_CONTENTS = """
SELECT DISTINCT c.content_id FROM chunks c
WHERE c.project_id = %(project)s AND c.born <= %(generation)s AND (c.died IS NULL OR c.died > %(generation)s)
"""


@dataclass(frozen=True, slots=True)
class Content:
    """What a lexical document is made from."""

    id: int
    language: str
    name: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Changes:
    """Ids that a generation adds to those of the one before, and those that it no longer has, ascending."""

    added: Sequence[int]
    removed: Sequence[int]


def content_changes(connection: psycopg.Connection, project_id: int, run_id: int) -> Changes:
    """Compare the contents of the run's generation with those of the live one."""
    parameters = {"run": run_id, "project": project_id}
    added = connection.execute(
        """
        SELECT DISTINCT n.content_id FROM staged_chunks n
        WHERE n.run_id = %(run)s
          AND NOT EXISTS (SELECT FROM chunks c WHERE c.content_id = n.content_id AND c.died IS NULL)
        ORDER BY 1
        """,
        parameters,
    ).fetchall()
    # From the few touched contents on: without statistics the planner would look at all live chunks for each of them.
    removed = connection.execute(
        """
        WITH touched AS MATERIALIZED (
            SELECT DISTINCT n.content_id
            FROM staged_files t JOIN chunks n ON n.source_id = t.source_id AND n.path = t.path
            WHERE t.run_id = %(run)s AND n.project_id = %(project)s AND n.died IS NULL
        ), gone AS MATERIALIZED (
            SELECT content_id FROM touched EXCEPT SELECT content_id FROM staged_chunks WHERE run_id = %(run)s
        )
        SELECT g.content_id FROM gone g
        WHERE NOT EXISTS (
            SELECT FROM chunks c WHERE c.content_id = g.content_id AND c.died IS NULL AND NOT EXISTS (
                SELECT FROM staged_files f WHERE f.run_id = %(run)s AND f.source_id = c.source_id AND f.path = c.path
            )
        )
        ORDER BY 1
        """,
        parameters,
    ).fetchall()
    return Changes([row[0] for row in added], [row[0] for row in removed])


def vector_changes(connection: psycopg.Connection, project_id: int, contents: Changes) -> Changes | None:
    """Return what changes of contents mean for vectors; None when that takes looking at all of them.

    A generation that was published before some of its vectors were superseded has them under their old ids.
    """
    if len(contents.added) + len(contents.removed) > _MOST_CHANGES:
        return None
    superseded = connection.execute(
        """
        SELECT EXISTS (
            SELECT FROM superseded_vectors s JOIN contents t ON t.fingerprint = s.fingerprint AND t.project_id = %s
        )
        """,
        (project_id,),
    ).fetchone()
    if superseded and superseded[0]:
        return None
    added = connection.execute(
        """
        SELECT DISTINCT v.id FROM contents t JOIN vectors v ON v.fingerprint = t.fingerprint
        WHERE t.id = ANY(%s) ORDER BY 1
        """,
        (list(contents.added),),
    ).fetchall()
    removed = connection.execute(
        """
        SELECT DISTINCT v.id FROM contents t JOIN vectors v ON v.fingerprint = t.fingerprint
        WHERE t.id = ANY(%(removed)s) AND NOT EXISTS (
            SELECT FROM contents o
            WHERE o.fingerprint = t.fingerprint AND o.project_id = %(project)s AND o.id <> ALL(%(removed)s)
              AND (o.id = ANY(%(added)s)
                   OR EXISTS (SELECT FROM chunks c WHERE c.content_id = o.id AND c.died IS NULL))
        )
        ORDER BY 1
        """,
        {"project": project_id, "added": list(contents.added), "removed": list(contents.removed)},
    ).fetchall()
    return Changes([row[0] for row in added], [row[0] for row in removed])


def contents(connection: psycopg.Connection, ids: Sequence[int]) -> Iterator[Content]:
    """Yield contents by id, ascending."""
    for start in range(0, len(ids), _PAGE_ROWS):
        cursor = connection.execute(
            "SELECT id, language, name, title, text FROM contents WHERE id = ANY(%s) ORDER BY id",
            (list(ids[start : start + _PAGE_ROWS]),),
        )
        for row in cursor:
            yield Content(*row)


def next_content_ids(connection: psycopg.Connection, project_id: int, run_id: int) -> list[int]:
    """Return the ids of all contents of the run's generation, ascending."""
    return _ids(connection, NEXT_CONTENTS, {"project": project_id, "run": run_id})


def live_content_ids(connection: psycopg.Connection, project_id: int, generation: int) -> list[int]:
    """Return the ids of all contents of a published generation, ascending."""
    return _ids(connection, _LIVE_CONTENTS, {"project": project_id, "generation": generation})


def next_vector_ids(connection: psycopg.Connection, project_id: int, run_id: int) -> Ids:
    """Return the ids that the vectors of the run's generation will have, ascending."""
    return _vector_ids(connection, NEXT_CONTENTS, {"project": project_id, "run": run_id})


def live_vector_ids(connection: psycopg.Connection, project_id: int, generation: int) -> Ids:
    """Return the ids of the vectors of a published generation, ascending."""
    return _vector_ids(connection, _LIVE_CONTENTS, {"project": project_id, "generation": generation, "run": None})


def read_vectors(connection: psycopg.Connection, ids: Ids) -> Iterator[tuple[Ids, npt.NDArray[np.float32]]]:
    """Yield (ids, vectors) ascending by id, a page at a time; vectors have shape (n, dimensions)."""
    for start in range(0, len(ids), _PAGE_ROWS):
        page = ids[start : start + _PAGE_ROWS]
        cursor = connection.execute(
            """
            SELECT halfvec_send(embedding) FROM (
                SELECT id, embedding FROM vectors WHERE id = ANY(%(ids)s)
                UNION ALL
                SELECT id, embedding FROM staged_vectors WHERE id = ANY(%(ids)s)
            ) v ORDER BY id
            """,
            {"ids": page.astype(np.int64).tolist()},
        )
        # halfvec's wire form: int16 dimensions, int16 unused, then big-endian float16.
        yield page, np.stack([np.frombuffer(raw, dtype=">f2", offset=4) for (raw,) in cursor]).astype(np.float32)


def _ids(connection: psycopg.Connection, selection: str, parameters: dict[str, int]) -> list[int]:
    return [row[0] for row in connection.execute(f"SELECT * FROM ({selection}) AS n (id) ORDER BY id", parameters)]


def _vector_ids(connection: psycopg.Connection, selection: str, parameters: Mapping[str, int | None]) -> Ids:
    rows = connection.execute(
        f"""
        SELECT DISTINCT coalesce(s.id, v.id) FROM ({selection}) n
        JOIN contents t ON t.id = n.content_id
        LEFT JOIN vectors v ON v.fingerprint = t.fingerprint
        LEFT JOIN staged_vectors s ON s.run_id = %(run)s AND s.fingerprint = t.fingerprint
        WHERE v.id IS NOT NULL OR s.id IS NOT NULL ORDER BY 1
        """,
        parameters,
    ).fetchall()
    return np.array([row[0] for row in rows], dtype=np.uint64)
