"""The state of a project that an answer is made from: resolved once per call, named in the answer (DESIGN I3, I10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from google.protobuf import timestamp_pb2
from undercroft.common.v1 import common_pb2

from services.core.authorization import Visible, no_such_project
from services.core.db import Connection
from services.core.errors import NotReady
from services.core.names import project_name


@dataclass(frozen=True, slots=True)
class Observation:
    """The last comparison of the sources with the live generation."""

    observed_at: datetime
    stale: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Scope:
    """A project and the generation of it that a query reads. Generation 0: nothing has been published yet."""

    project_id: int
    project: str
    generation: int
    published_at: datetime | None
    observation: Observation | None


async def resolve(connection: Connection, names: Sequence[str], visible: Visible) -> list[Scope]:
    """Return the named projects, or all visible ones, by name, each with its live generation. Unknown ones fail."""
    cursor = await connection.execute(
        """
        SELECT p.id, p.name, p.generation, g.published_at, o.observed_at, o.stale, o.reason
        FROM projects p
        LEFT JOIN generations g ON g.project_id = p.id AND g.number = p.generation
        LEFT JOIN observations o ON o.project_id = p.id
        WHERE (%(visible)s::bigint[] IS NULL OR p.id = ANY(%(visible)s))
          AND (%(names)s::text[] IS NULL OR p.name = ANY(%(names)s))
        ORDER BY p.name
        """,
        {"visible": visible.sql(), "names": list(names) or None},
    )
    rows = await cursor.fetchall()
    known = {row["name"] for row in rows}
    for name in names:
        if name not in known:
            raise no_such_project(name)
    return [
        Scope(
            row["id"],
            row["name"],
            row["generation"],
            row["published_at"],
            Observation(row["observed_at"], row["stale"], row["reason"]) if row["observed_at"] else None,
        )
        for row in rows
    ]


async def at_generation(connection: Connection, scope: Scope, generation: int) -> Scope:
    """Return the scope at a generation; NotReady when that has been swept or was never published."""
    if generation == 0:
        return replace(scope, generation=0, published_at=None)
    cursor = await connection.execute(
        "SELECT published_at FROM generations WHERE project_id = %s AND number = %s", (scope.project_id, generation)
    )
    row = await cursor.fetchone()
    if row is None:
        raise NotReady(
            f"Generation {generation} of {scope.project} is no longer kept.",
            remedy="Ask again without a generation or page token.",
            reason="GENERATION_GONE",
        )
    return replace(scope, generation=generation, published_at=row["published_at"])


def snapshot_message(scope: Scope) -> common_pb2.Snapshot:
    """Return what an answer says of the state that it was made from."""
    observation = scope.observation
    return common_pb2.Snapshot(
        project=project_name(scope.project),
        generation=scope.generation,
        publish_time=_timestamp(scope.published_at),
        stale=observation.stale if observation else False,
        stale_reason=observation.reason if observation else "",
        observe_time=_timestamp(observation.observed_at) if observation else None,
    )


def _timestamp(moment: datetime | None) -> timestamp_pb2.Timestamp | None:
    if moment is None:
        return None
    stamp = timestamp_pb2.Timestamp()
    stamp.FromDatetime(moment)
    return stamp
