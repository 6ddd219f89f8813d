"""The files of a mirror by what they hold."""

from __future__ import annotations

import hashlib
import zipfile
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

from services.core.errors import DataLoss


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def metadata_of(wheel: Path) -> bytes:
    """Return the METADATA of a wheel as it is; raises ``DataLoss`` for what is no whole wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [
                name for name in archive.namelist() if name.count("/") == 1 and name.endswith(".dist-info/METADATA")
            ]
            if len(names) == 1:
                return archive.read(names[0])
    except zipfile.BadZipFile:
        pass
    raise DataLoss(f"{wheel.name} is no whole wheel.", remedy="Run `make wheels` again where an index is.")


def read_metadata(wheel: Path) -> Message:
    """Return the METADATA of a wheel as headers."""
    return BytesParser().parsebytes(metadata_of(wheel), headersonly=True)
