"""One at a time in one folder: two that make images there would mix their files."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a folder for oneself; waits, and says so, while another process has it.

    The system gives the folder back when the process ends, however it ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waits for another one that makes images in {folder} (--out names another folder)", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
