"""Generations: what they were made of, their sidecars, and the leases that keep them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from services.core.db import Connection
from services.core.sidecars import SidecarFile
from services.search.store.filters import LIVES


async def generation_row(connection: Connection, project_id: int, generation: int) -> dict[str, Any] | None:
    """Return model, degradations and processors of a generation; None when it is not kept.

    ``processors`` are those that made vectors of the model: their probe cosines by fingerprint; None for none.
    """
    cursor = await connection.execute(
        """
        SELECT g.number, g.model_name, g.model_digest, g.model_dimensions, g.degraded,
               (SELECT jsonb_object_agg(p.probe_fingerprint, p.probe_cosine) FROM embedding_processors p
                WHERE p.model_digest = g.model_digest
                  AND EXISTS (SELECT FROM vectors v WHERE v.processor_id = p.id)) AS processors
        FROM generations g WHERE g.project_id = %s AND g.number = %s
        """,
        (project_id, generation),
    )
    return await cursor.fetchone()


async def live_generations(connection: Connection) -> list[tuple[int, int]]:
    """Return (project id, live generation) of every project that has published."""
    cursor = await connection.execute("SELECT id, generation FROM projects WHERE generation > 0 ORDER BY id")
    return [(row["id"], row["generation"]) for row in await cursor.fetchall()]


async def sidecars(connection: Connection, project_id: int, generation: int) -> list[SidecarFile]:
    """Return the sidecars of a generation by method and name."""
    cursor = await connection.execute(
        f"""
        SELECT s.method, s.logical_name, s.sha256, s.size_bytes FROM sidecars s WHERE {LIVES.format("s")}
        ORDER BY s.method, s.logical_name, s.id
        """,
        {"project": project_id, "generation": generation},
    )
    return [
        SidecarFile(row["method"], row["logical_name"], bytes(row["sha256"]), row["size_bytes"])
        for row in await cursor.fetchall()
    ]


async def renew_leases(connection: Connection, holder: str, held: Sequence[tuple[int, int]], seconds: float) -> None:
    """Keep generations, as (project id, number), for this reader."""
    await connection.execute(
        """
        INSERT INTO leases (project_id, generation, holder, expires_at)
        SELECT h.project_id, h.generation, %(holder)s, now() + make_interval(secs => %(seconds)s)
        FROM unnest(%(projects)s::bigint[], %(generations)s::bigint[]) AS h (project_id, generation)
        JOIN projects p ON p.id = h.project_id
        ORDER BY 1, 2
        ON CONFLICT (project_id, generation, holder) DO UPDATE SET expires_at = excluded.expires_at
        """,
        {
            "holder": holder,
            "seconds": seconds,
            "projects": [one[0] for one in held],
            "generations": [one[1] for one in held],
        },
    )
