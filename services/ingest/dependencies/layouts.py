"""Where the members of a wheel or sdist belong, by their names."""

from __future__ import annotations

from services.ingest.archives.names import MAX_SHOWN_CHARS, Names, printable
from services.ingest.skips import Skipped, SkipReason

_LIBRARIES = ("purelib", "platlib")


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
            f"outside of {printable((self._top[:MAX_SHOWN_CHARS], ''))}, the folder of the sdist",
        )
