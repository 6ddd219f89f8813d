"""Space on local disk, which on one machine is also the database's: that must never find it full."""

from __future__ import annotations

import errno
import os
from pathlib import Path

RESERVE_BYTES = 256 << 20


def ensure_room(place: str | Path | int, size_bytes: int, reserve_bytes: int = RESERVE_BYTES) -> None:
    """Raise OSError (ENOSPC) when writing so much would leave less than the reserve on the disk of ``place``.

    ``place`` is a path or an open descriptor; OSError also when it is not there.
    """
    disk = os.statvfs(place)
    if disk.f_bavail * disk.f_frsize - size_bytes < reserve_bytes:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} ({reserve_bytes >> 20} MiB are kept free)")
