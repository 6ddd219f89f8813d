"""Long-running operations, and the claim of a project by one run at a time (DESIGN I4).

The claim is an advisory lock of a session that the run keeps open, so a dead holder frees the project at once. The
fencing number guards against a holder that lost its session and does not know it: every write of a run first takes the
project's row and compares (``hold``).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb

from services.core.authorization import Visible
from services.core.db import Connection
from services.core.errors import Conflict, NotFound
from services.core.notifications import OPERATIONS
from services.ingest.store import projects, staging

INDEX = "index"
CLEAR = "clear"
OPEN_STATES = ("queued", "running")

_COLUMNS = """
o.id, o.project_id, p.name AS project, o.kind, o.options, o.state, o.report, o.error, o.cancel_requested, o.holder,
o.attempts, o.created_at, o.started_at, o.ended_at
"""
# Namespace of the advisory locks on projects.
_LOCK_CLASS = 0x756E6463
# Namespace of those on repairs of projects.
_REPAIR_CLASS = 0x756E6472
_FEW_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Operation:
    """A row of operations. ``report`` is a ``reports.RunReport`` as JSON, ``error`` what ``reports.failure`` gives."""

    id: int
    project_id: int
    project: str
    kind: str
    options: Mapping[str, bool]
    state: str
    report: Mapping[str, Any]
    error: Mapping[str, str] | None
    cancel_requested: bool
    holder: str | None
    attempts: int
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @property
    def done(self) -> bool:
        return self.state not in OPEN_STATES


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write to a project, until the session ends or a later claim raises the fence."""

    operation: Operation
    fence: int


async def enqueue(
    connection: Connection, project_id: int, options: Mapping[str, bool], request_id: str = "", kind: str = INDEX
) -> Operation:
    """Add a run, or return the one that was asked for before: the same request id, or the same options still queued."""
    await connection.execute("SELECT FROM projects WHERE id = %s FOR UPDATE", (project_id,))
    cursor = await connection.execute(
        """
        SELECT id FROM operations o
        WHERE project_id = %(project)s
          AND (request_id = %(request)s OR (
              %(request)s IS NULL AND state = 'queued' AND kind = %(kind)s AND options = %(options)s
              -- A run that is queued behind one of another kind is not the run that was asked for.
              AND NOT EXISTS (
                  SELECT FROM operations l WHERE l.project_id = o.project_id AND l.state = 'queued' AND l.id > o.id
              )
          ))
        ORDER BY id LIMIT 1
        """,
        {"project": project_id, "request": request_id or None, "options": Jsonb(dict(options)), "kind": kind},
    )
    row = await cursor.fetchone()
    if row is None:
        cursor = await connection.execute(
            "INSERT INTO operations (project_id, kind, options, request_id) VALUES (%s, %s, %s, %s) RETURNING id",
            (project_id, kind, Jsonb(dict(options)), request_id or None),
        )
        row = await cursor.fetchone()
        await connection.execute(f"NOTIFY {OPERATIONS}")
    assert row is not None
    return await get(connection, row["id"])


async def forget(connection: Connection, kept: int) -> int:
    """Remove the oldest finished runs of projects that have more than ``kept``; return how many went."""
    cursor = await connection.execute(
        """
        DELETE FROM operations o USING (
            SELECT id, row_number() OVER (PARTITION BY project_id ORDER BY id DESC) AS place
            FROM operations WHERE ended_at IS NOT NULL
        ) n WHERE n.id = o.id AND n.place > %s
          AND NOT EXISTS (SELECT FROM generations g WHERE g.run_id = o.id)
        """,
        (kept,),
    )
    return cursor.rowcount


async def get(connection: Connection, operation_id: int) -> Operation:
    cursor = await connection.execute(
        f"SELECT {_COLUMNS} FROM operations o JOIN projects p ON p.id = o.project_id WHERE o.id = %s", (operation_id,)
    )
    row = await cursor.fetchone()
    if row is None:
        raise NotFound("There is no such operation.", remedy="List the operations of the project.")
    return Operation(**row)


async def list_operations(
    connection: Connection, project_id: int | None, visible: Visible, before: int | None, limit: int
) -> list[Operation]:
    """List operations, newest first."""
    cursor = await connection.execute(
        f"""
        SELECT {_COLUMNS} FROM operations o JOIN projects p ON p.id = o.project_id
        WHERE (%(project)s::bigint IS NULL OR o.project_id = %(project)s)
          AND (%(before)s::bigint IS NULL OR o.id < %(before)s)
          AND (%(visible)s::bigint[] IS NULL OR o.project_id = ANY(%(visible)s))
        ORDER BY o.id DESC LIMIT %(limit)s
        """,
        {"project": project_id, "before": before, "visible": visible.sql(), "limit": limit},
    )
    return [Operation(**row) for row in await cursor.fetchall()]


async def latest(connection: Connection, project_id: int) -> tuple[int | None, int | None]:
    """Return the ids of the project's running operation and of its last ended one."""
    cursor = await connection.execute(
        """
        SELECT max(id) FILTER (WHERE state = 'running') AS running,
               max(id) FILTER (WHERE state NOT IN ('queued', 'running')) AS ended
        FROM operations WHERE project_id = %s
        """,
        (project_id,),
    )
    row = await cursor.fetchone()
    return (row["running"], row["ended"]) if row else (None, None)


async def request_cancel(connection: Connection, operation_id: int) -> None:
    """Cancel a queued operation at once, and ask a running one to stop."""
    await connection.execute(
        """
        UPDATE operations
        SET cancel_requested = true,
            state = CASE WHEN state = 'queued' THEN 'cancelled' ELSE state END,
            ended_at = CASE WHEN state = 'queued' THEN now() ELSE ended_at END
        WHERE id = %s AND state IN ('queued', 'running')
        """,
        (operation_id,),
    )
    await connection.execute(f"NOTIFY {OPERATIONS}")


async def any_open(connection: Connection) -> bool:
    """Tell whether a run waits or is under way: whether looking for one to claim is worth a session."""
    cursor = await connection.execute(
        "SELECT EXISTS (SELECT FROM operations WHERE state IN ('queued', 'running')) AS any"
    )
    row = await cursor.fetchone()
    return bool(row and row["any"])


class Claims:
    """A worker's session, on which it claims one run after the other. One that was lost is opened anew."""

    def __init__(self, url: str, holder: str) -> None:
        self._url = url
        self._holder = holder
        self._session: Connection | None = None

    async def close(self) -> None:
        """End the session, and with it a claim that is held."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @contextlib.asynccontextmanager
    async def next(self) -> AsyncIterator[Claim | None]:
        """Claim the next run whose project nobody holds, for as long as the block runs; None when there is none.

        Runs that were under way when their holder died come first, then queued ones in order.
        """
        try:
            if self._session is None:
                self._session = await psycopg.AsyncConnection.connect(
                    self._url,
                    autocommit=True,
                    row_factory=dict_row,
                    application_name="undercroft-claim",
                    keepalives_idle=10,
                )
            claim = await _claim_next(self._session, self._holder)
            yield claim
            if claim is not None:
                await self._session.execute("SELECT pg_advisory_unlock_all()")
        except BaseException:
            # The claim ends with the session, whatever state that is in.
            await self.close()
            raise


async def _claim_next(session: Connection, holder: str) -> Claim | None:
    cursor = await session.execute(
        """
        SELECT DISTINCT ON (project_id) id, project_id, state, attempts FROM operations
        WHERE state IN ('queued', 'running') ORDER BY project_id, state DESC, id
        """
    )
    for row in sorted(await cursor.fetchall(), key=_turn):
        lock = (_LOCK_CLASS, row["project_id"] & 0x7FFFFFFF)
        locked = await (await session.execute("SELECT pg_try_advisory_lock(%s, %s) AS got", lock)).fetchone()
        if not (locked and locked["got"]):
            continue
        claimed = await _take(session, row["id"], row["project_id"], holder)
        if claimed:
            return claimed
        await session.execute("SELECT pg_advisory_unlock(%s, %s)", lock)
    return None


def _turn(row: DictRow) -> tuple[bool, bool, int]:
    """Order claims: what was under way first, in order; but what keeps coming back waits for all others."""
    return row["attempts"] > _FEW_ATTEMPTS, row["state"] != "running", row["id"]


async def _take(session: Connection, operation_id: int, project_id: int, holder: str) -> Claim | None:
    async with session.transaction():
        cursor = await session.execute(
            "UPDATE projects SET fence = fence + 1 WHERE id = %s RETURNING fence", (project_id,)
        )
        project = await cursor.fetchone()
        if project is None:
            return None
        # The state is read again under the lock: the run may have ended since it was listed.
        cursor = await session.execute(
            """
            UPDATE operations
            SET state = 'running', holder = %(holder)s, fence = %(fence)s, attempts = attempts + 1,
                started_at = coalesce(started_at, now())
            WHERE id = %(id)s AND state IN ('queued', 'running')
              AND NOT EXISTS (
                  SELECT FROM operations o WHERE o.project_id = %(project)s AND o.state = 'running' AND o.id <> %(id)s
              )
            RETURNING id
            """,
            {"holder": holder, "fence": project["fence"], "id": operation_id, "project": project_id},
        )
        if await cursor.fetchone() is None:
            return None
        return Claim(await get(session, operation_id), project["fence"])


@contextlib.asynccontextmanager
async def repair_lock(url: str, project_id: int) -> AsyncIterator[None]:
    """Be the only repair of a project while the block runs, over all replicas; wait for another one."""
    async with await psycopg.AsyncConnection.connect(
        url, autocommit=True, application_name="undercroft-repair"
    ) as session:
        await session.execute("SELECT pg_advisory_lock(%s, %s)", (_REPAIR_CLASS, project_id & 0x7FFFFFFF))
        yield


async def hold(connection: Connection, claim: Claim) -> None:
    """Take the project's row for the rest of the transaction; Conflict when the claim is no longer the latest."""
    cursor = await connection.execute(
        "SELECT fence FROM projects WHERE id = %s FOR UPDATE", (claim.operation.project_id,)
    )
    row = await cursor.fetchone()
    if row is None or row["fence"] != claim.fence:
        raise Conflict("Another worker has taken this project over.", remedy="Follow its run.", reason="RUN_FENCED_OFF")


async def report(connection: Connection, claim: Claim, report_json: Mapping[str, Any]) -> bool:
    """Store the run's report; return whether somebody asked to cancel it."""
    cursor = await connection.execute(
        "UPDATE operations SET report = %s WHERE id = %s AND fence = %s RETURNING cancel_requested",
        (Jsonb(dict(report_json)), claim.operation.id, claim.fence),
    )
    row = await cursor.fetchone()
    if row is None:
        raise Conflict("Another worker has taken this run over.", reason="RUN_FENCED_OFF")
    await connection.execute(f"NOTIFY {OPERATIONS}")
    return bool(row["cancel_requested"])


async def end(
    connection: Connection, claim: Claim, state: str, report_json: Mapping[str, Any], error: Mapping[str, str] | None
) -> None:
    """End a run and drop what it staged; Conflict when another worker has taken it over, whose that is now."""
    cursor = await connection.execute(
        """
        UPDATE operations SET state = %s, report = %s, error = %s, ended_at = now() WHERE id = %s AND fence = %s
        """,
        (state, Jsonb(dict(report_json)), Jsonb(dict(error)) if error else None, claim.operation.id, claim.fence),
    )
    if not cursor.rowcount:
        raise Conflict("Another worker has taken this run over.", reason="RUN_FENCED_OFF")
    # What was published is staged no more.
    await staging.abandon(connection, claim.operation.project_id, claim.operation.id)
    if error is not None:
        await projects.outdate(connection, claim.operation.project_id, f"the last run failed: {error['message']}")
    await connection.execute(f"NOTIFY {OPERATIONS}")
