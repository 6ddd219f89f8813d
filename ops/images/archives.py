"""The archives of the root file systems, and the record that tells that they are those that were made.

They are carried by hand into places where nothing can be made anew, so one that was cut, emptied or changed on the way
must be seen: buildah builds an image from half an archive without a word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from services.core.errors import DataLoss, NotReady

SUMS = "bases.sha256"


def archive_path(folder: Path, name: str) -> Path:
    """Return where the archive of a root file system is."""
    return folder / f"{name}.tar"


def sha256_of(path: Path) -> str:
    """Return the hex SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def record_archives(folder: Path, digests: Mapping[str, str]) -> None:
    """Record the SHA-256 of archives by name, as ``sha256sum --check`` reads it; those of others stay."""
    recorded = {**_read(folder), **{archive_path(folder, name).name: digest for name, digest in digests.items()}}
    partial = folder / f"{SUMS}.partial"
    partial.write_text("".join(f"{recorded[name]}  {name}\n" for name in sorted(recorded)), "utf-8")
    partial.replace(folder / SUMS)


def check_archives(folder: Path, names: Iterable[str]) -> None:
    """Prove that archives are those that were made.

    Raises ``NotReady`` where one or its record is not there, ``DataLoss`` where one differs from its record.
    """
    recorded = _read(folder)
    again = f"Run `make bases`, or carry its archives and {SUMS} into {folder}."
    for name in names:
        path = archive_path(folder, name)
        if not path.is_file():
            raise NotReady(f"The root file system {name} is not there.", remedy=again, reason="BASE_MISSING")
        if path.name not in recorded:
            raise NotReady(
                f"{folder / SUMS} has no SHA-256 of {path.name}.",
                remedy=f"{again} Nothing else tells whether an archive arrived whole.",
                reason="BASE_UNRECORDED",
            )
        if (found := sha256_of(path)) != recorded[path.name]:
            raise DataLoss(
                f"{path.name} has the SHA-256 {found}, and {SUMS} says {recorded[path.name]}: it is not the archive "
                "that was made.",
                remedy=f"Carry it in again: `sha256sum --check {SUMS}` in its folder tells which ones are whole.",
                reason="BASE_DAMAGED",
            )


def _read(folder: Path) -> dict[str, str]:
    path = folder / SUMS
    if not path.is_file():
        return {}
    rows = (line.split(maxsplit=1) for line in path.read_text("utf-8", errors="replace").splitlines())
    # An asterisk before a name says that the file was read as bytes.
    return {row[1].removeprefix("*"): row[0] for row in rows if len(row) == 2}
