"""Where the members of a wheel or sdist belong, by their names."""

from __future__ import annotations

import re
from typing import Protocol

from services.ingest.dependencies.members import Refused
from services.ingest.exclusions import file_exclusion, folder_exclusion
from services.ingest.skips import Skipped, SkipReason

_DRIVE = re.compile(r"[A-Za-z]:/")
_LIBRARIES = ("purelib", "platlib")
_MAX_SHOWN_CHARS = 200

Names = tuple[str, ...]  # the folders of a path and its file


class Layout(Protocol):
    """Says where members go."""

    def place(self, names: Names) -> Names | Skipped:
        """Return where a member goes below the root, or why it goes nowhere."""
        ...


class WheelLayout:
    """The layout of a wheel (PEP 427).

    Of ``.dist-info`` only METADATA is kept, as a file of the root, because that is where the description is.
    """

    def place(self, names: Names) -> Names | Skipped:
        top = names[0]
        if top.endswith(".dist-info"):
            if names[1:] == ("METADATA",):
                return ("METADATA",)
            return Skipped(printable((top, "")), SkipReason.EXCLUDED, "what installers need; only METADATA is kept")
        if top.endswith(".data") and len(names) > 2:
            if names[1] in _LIBRARIES:
                return names[2:]
            return Skipped(printable((*names[:2], "")), SkipReason.EXCLUDED, "installed outside of the package")
        return names


class SdistLayout:
    """The layout of an sdist: its one top folder is that of its first file, if that lies in one."""

    def __init__(self) -> None:
        self._top: str | None = None

    def place(self, names: Names) -> Names | Skipped:
        if self._top is None:
            self._top = names[0] if len(names) > 1 else ""
        if not self._top:
            return names
        if names[0] == self._top and len(names) > 1:
            return names[1:]
        outside = printable(names if len(names) == 1 else (names[0], ""))
        return Skipped(
            outside,
            SkipReason.EXCLUDED,
            f"outside of {printable((self._top[:_MAX_SHOWN_CHARS], ''))}, the folder of the sdist",
        )


def split(name: str) -> Names:
    """Split the name of a member; empty for the root itself.

    Raises ``Refused`` for a name that leads out of the archive's folder, or would where it is read in another way.
    """
    names = tuple(part for part in name.split("/") if part not in ("", "."))
    if "\0" in name or "\\" in name or name.startswith("/") or ".." in names or _DRIVE.match(name):
        raise Refused(f"the member {name[:_MAX_SHOWN_CHARS]!r} leads out of it", "ARCHIVE_UNSAFE")
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
