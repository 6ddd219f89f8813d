"""Local disk for a file that comes in parts and is to be verified whole."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from services.core.errors import NotReady
from services.ingest.disk import RESERVE_BYTES, ensure_room


@contextlib.asynccontextmanager
async def spooled(
    parts: AsyncIterator[bytes], directory: Path, what: str, reserve_bytes: int = RESERVE_BYTES
) -> AsyncIterator[BinaryIO]:
    """Write parts to a file without a name, which goes with the block or the process, and give it to read.

    NotReady when ``directory`` can't be written or would have less than ``reserve_bytes`` left; ``what`` is what the
    parts make, for its words.
    """
    try:
        file = _open(directory)
    except OSError as error:
        raise _unwritable(error, directory, what) from error
    with file:
        try:
            async for part in parts:
                await asyncio.to_thread(_append, file, part, reserve_bytes)
        except OSError as error:
            raise _unwritable(error, directory, what) from error
        file.seek(0)
        yield io.BufferedReader(file)


def _open(directory: Path) -> io.FileIO:
    directory.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=directory, buffering=0)


def _append(file: io.FileIO, part: bytes, reserve_bytes: int) -> None:
    ensure_room(file.fileno(), len(part), reserve_bytes)
    left = memoryview(part)
    while left:
        left = left[file.write(left) :]


def _unwritable(error: OSError, directory: Path, what: str) -> NotReady:
    return NotReady(
        f"The {what} can't be kept while it is checked: {os.strerror(error.errno or errno.EIO)} in {directory}.",
        remedy="Nothing has changed. Free space there for the whole file, then send it again.",
        reason="LOCAL_DISK_UNWRITABLE",
    )
