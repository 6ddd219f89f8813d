"""Names of members, and where they go: below one folder and nowhere else."""

from __future__ import annotations

import re
from typing import Protocol

from services.ingest.archives.members import Refused
from services.ingest.exclusions import file_exclusion, folder_exclusion
from services.ingest.skips import Skipped

MAX_SHOWN_CHARS = 200
_DRIVE = re.compile(r"[A-Za-z]:/")

Names = tuple[str, ...]  # the folders of a path and its file


class Layout(Protocol):
    """Says where members go."""

    def place(self, names: Names) -> Names | Skipped:
        """Return where a member goes below the root, or why it goes nowhere."""
        ...


class PlainLayout:
    """Every member goes where the archive has it."""

    def place(self, names: Names) -> Names | Skipped:
        return names


def split(name: str) -> Names:
    """Split the name of a member; empty for the root itself.

    Raises ``Refused`` for a name that leads out of the archive's folder, or would where it is read in another way.
    """
    names = tuple(part for part in name.split("/") if part not in ("", "."))
    if "\0" in name or "\\" in name or name.startswith("/") or ".." in names or _DRIVE.match(name):
        raise Refused(f"the member {name[:MAX_SHOWN_CHARS]!r} leads out of it", "ARCHIVE_UNSAFE")
    return names


def exclusion(names: Names) -> Skipped | None:
    """Say why discovery would never read a file of this name; of a folder that it never enters, once for all."""
    for depth, folder in enumerate(names[:-1], start=1):
        excluded = folder_exclusion(folder)
        if excluded is not None:
            return Skipped(printable((*names[:depth], "")), *excluded)
    excluded = file_exclusion(names[-1], names[-2] if len(names) > 1 else "")
    return None if excluded is None else Skipped(printable(names), *excluded)


def printable(names: Names) -> str:
    """Join names as they can be stored and shown; bytes that are no UTF-8 appear as ``\\xNN``."""
    path = "/".join(names)
    return path if path.isascii() else path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
