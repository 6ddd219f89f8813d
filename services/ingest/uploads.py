"""Archives that callers send: checked whole, kept on the shared volume under their SHA-256, removed when unused."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import structlog

from services.core.authorization import Visible
from services.core.db import Connection, Database
from services.core.errors import DataLoss, InvalidArgument, NotReady
from services.core.names import check_text
from services.core.sidecars import Volume
from services.ingest.archives.names import PlainLayout
from services.ingest.archives.unpacking import Archive, ArchiveLimits, Unpacked, check
from services.ingest.disk import ensure_room
from services.ingest.projects import ARCHIVE, Source
from services.ingest.spool import spooled
from services.ingest.store import projects, uploads
from services.ingest.store.uploads import Upload

log = structlog.get_logger(__name__)

_FOLDER = "uploads"
# Between sending an archive and naming it as the origin of a source.
_UNUSED_KEPT_S = 86_400.0
# Runs and other calls use the same threads.
_CHECKED_AT_ONCE = 2
_SEND_AGAIN = "Send the archive again, and index again."
_REMEDY = "Nothing was kept. Make the archive again (tar, tar.gz, tar.zst or zip), and send that."


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """What an upload may be: its bytes as sent, and what they may unpack to."""

    max_bytes: int
    unpacked: ArchiveLimits


@dataclass(frozen=True, slots=True)
class Received:
    """An upload, and what is in it."""

    upload: Upload
    unpacked: Unpacked


class Uploads:
    """Use cases of uploads. ``local_dir`` takes an archive while it is checked."""

    def __init__(self, database: Database, sidecar_dir: Path, local_dir: Path, limits: UploadLimits) -> None:
        self._database = database
        # Apart from the sidecars: those can be made again from Postgres, an upload can't.
        self._root = sidecar_dir
        self._volume = Volume(sidecar_dir / _FOLDER)
        self._local = local_dir / _FOLDER
        self._limits = limits
        self._checking = asyncio.Semaphore(_CHECKED_AT_ONCE)

    async def receive(self, project: str, visible: Visible, file_name: str, parts: AsyncIterator[bytes]) -> Received:
        """Take an archive in, or nothing of it.

        InvalidArgument when it can't be a source, with the reason; NotReady when a disk is full or read-only.
        """
        check_text(file_name, "file name")
        name = file_name.rpartition("/")[2] or "archive"
        async with self._database.transaction() as connection:
            owner = await projects.get_project(connection, project, visible)
        async with spooled(self._bounded(parts), self._local, "archive") as file:
            async with self._checking:
                unpacked = await asyncio.to_thread(self._check, file, name)
            # The row comes first: the file of a row is never collected.
            digest, size = await asyncio.to_thread(self._keep, file)
            upload = Upload(digest, name, size)
            async with self._database.transaction() as connection:
                await uploads.put(connection, owner.id, upload)
        log.info("archive received", project=project, sha256=digest.hex(), bytes=size, files=unpacked.files)
        return Received(upload, unpacked)

    async def _bounded(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        size = 0
        async for part in parts:
            size += len(part)
            if size > self._limits.max_bytes:
                raise InvalidArgument(
                    f"The archive has more than {self._limits.max_bytes:,} bytes.",
                    remedy="Leave out what needs no index, send it in several archives, or have"
                    " UNDERCROFT_UPLOAD_MAX_BYTES raised.",
                    reason="ARCHIVE_TOO_LARGE",
                )
            yield part

    def _keep(self, file: BinaryIO) -> tuple[bytes, int]:
        try:
            ensure_room(self._root, file.seek(0, os.SEEK_END))
        except OSError as error:
            raise NotReady(
                f"The shared volume has no room for the archive: {error.strerror}.",
                remedy="Free space there, then send it again; nothing has changed.",
                reason="SIDECAR_VOLUME_UNWRITABLE",
            ) from error
        file.seek(0)
        return self._volume.keep(file)

    def _check(self, file: BinaryIO, name: str) -> Unpacked:
        try:
            unpacked = check(file, Archive(Path(name), name, PlainLayout(), _REMEDY), self._limits.unpacked)
        except DataLoss as error:
            # What a caller sends is no data of ours.
            raise InvalidArgument(error.message, remedy=error.remedy, reason=error.reason) from error
        if unpacked.beyond:
            raise InvalidArgument(
                f"{name} is refused: it has {unpacked.beyond}.",
                remedy="Leave out what needs no index, send it in several archives, or have"
                " UNDERCROFT_UPLOAD_MAX_FILES or UNDERCROFT_UPLOAD_MAX_UNPACKED_BYTES raised.",
                reason="ARCHIVE_TOO_LARGE",
            )
        return unpacked

    async def find(self, connection: Connection, source: Source) -> Archive | None:
        """Return the archive of a source to read; None for a source of another kind."""
        if source.kind != ARCHIVE:
            return None
        upload = await uploads.get(connection, source.project_id, bytes.fromhex(source.location))
        return Archive(self._volume.path(upload.sha256), upload.file_name, PlainLayout(), _SEND_AGAIN)

    async def collect(self, grace_s: float) -> None:
        """Remove uploads that no source names, and files of the volume that no row does."""
        async with self._database.transaction() as connection:
            forgotten = await uploads.forget_unused(connection, _UNUSED_KEPT_S)
            referenced = await uploads.referenced(connection)
        removed = await asyncio.to_thread(self._volume.collect, referenced, grace_s)
        if forgotten or removed:
            log.info("uploads collected", rows=forgotten, files=len(removed))
