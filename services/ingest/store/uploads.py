"""Rows of the archives that callers sent."""

from __future__ import annotations

from dataclasses import dataclass

from services.core.db import Connection
from services.core.errors import NotFound
from services.ingest.projects import ARCHIVE


@dataclass(frozen=True, slots=True)
class Upload:
    """An archive on the shared volume, under its SHA-256."""

    sha256: bytes
    file_name: str
    size_bytes: int


async def put(connection: Connection, project_id: int, upload: Upload) -> None:
    """Remember an upload; one that was sent before is as new again, by the name that it has now."""
    await connection.execute(
        """
        INSERT INTO uploads (project_id, sha256, file_name, size_bytes) VALUES (%s, %s, %s, %s)
        ON CONFLICT (project_id, sha256) DO UPDATE SET sent_at = now(), file_name = excluded.file_name
        """,
        (project_id, upload.sha256, upload.file_name, upload.size_bytes),
    )


async def hold(connection: Connection, project_id: int, sha256: bytes) -> Upload:
    """Return an upload that stays, as one just sent, until the transaction has named it or well beyond.

    An update, not a lock: who forgets unused ones at the same time then looks at the row again.
    """
    await connection.execute(
        "UPDATE uploads SET sent_at = now() WHERE project_id = %s AND sha256 = %s", (project_id, sha256)
    )
    return await get(connection, project_id, sha256)


async def get(connection: Connection, project_id: int, sha256: bytes) -> Upload:
    cursor = await connection.execute(
        "SELECT sha256, file_name, size_bytes FROM uploads WHERE project_id = %s AND sha256 = %s", (project_id, sha256)
    )
    row = await cursor.fetchone()
    if row is None:
        raise NotFound(
            f"The project has no upload {sha256.hex()[:12]}.",
            remedy="Send the archive with UploadArchive, and name the upload that it returns.",
            reason="UPLOAD_NOT_FOUND",
        )
    return Upload(bytes(row["sha256"]), row["file_name"], row["size_bytes"])


async def names(connection: Connection, project_id: int) -> dict[str, str]:
    """Return the file names of a project's uploads by the locations of the sources that have them."""
    cursor = await connection.execute("SELECT sha256, file_name FROM uploads WHERE project_id = %s", (project_id,))
    return {bytes(row["sha256"]).hex(): row["file_name"] for row in await cursor.fetchall()}


async def forget_unused(connection: Connection, grace_s: float) -> int:
    """Remove the rows of uploads that no source names, once they were sent ``grace_s`` ago; return how many."""
    cursor = await connection.execute(
        """
        DELETE FROM uploads u WHERE u.sent_at < now() - make_interval(secs => %s) AND NOT EXISTS (
            SELECT FROM sources s
            WHERE s.project_id = u.project_id AND s.origin_kind = %s AND s.origin_location = encode(u.sha256, 'hex')
        )
        """,
        (grace_s, ARCHIVE),
    )
    return cursor.rowcount


async def referenced(connection: Connection) -> set[bytes]:
    """Return the SHA-256 of every upload that a row names."""
    cursor = await connection.execute("SELECT DISTINCT sha256 FROM uploads")
    return {bytes(row["sha256"]) for row in await cursor.fetchall()}
