"""Log files of child processes: their last lines, and a bound on their size."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_TAIL_BYTES = 16_384


def tail(path: Path, lines: int = 15, *, since_byte: int = 0) -> str:
    """Return the last lines of a log, only those written after ``since_byte``; empty when there are none."""
    try:
        with path.open("rb") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(since_byte if since_byte <= size_bytes else 0, size_bytes - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def described_tail(path: Path, *, since_byte: int = 0) -> str:
    """Return the last lines as the end of an error message."""
    text = tail(path, since_byte=since_byte)
    return f" The last lines of {path}:\n{text}\n" if text else f" The log {path} is empty."


def size(path: Path) -> int:
    """Return the size of a log in bytes, 0 when it does not exist."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def rotate(path: Path, *, max_bytes: int, keep: int) -> bool:
    """Move a log that outgrew ``max_bytes`` to ``path.1`` and keep ``keep`` older ones; True when it did.

    The file is copied and then cut, because its writer holds it open: writers open it with O_APPEND and go on at the
    new end. What is written between the copy and the cut is lost; a writer that blocks on us would be worse.
    """
    if size(path) <= max_bytes:
        return False
    for number in range(keep - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    newest = path.with_name(f"{path.name}.1")
    shutil.copyfile(path, newest)
    newest.chmod(0o600)
    os.truncate(path, 0)
    return True
