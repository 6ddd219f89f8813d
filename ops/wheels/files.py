"""The files of a mirror by what they hold, read as what they are before anything is proven: somebody else's."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from itertools import product
from pathlib import Path

from services.core.errors import DataLoss

# Seven times the largest METADATA of some 200 wheels; the size that an archive says is a claim.
_LIMIT_BYTES = 1 << 20
_LONGEST_TAG = 255  # as long as a file name may be
# The two that pip unpacks, and whose output zipfile bounds.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# What zipfile and zlib raise for archives that are cut, overwritten, encrypted or made to mislead.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, RuntimeError, ValueError)


@dataclass(frozen=True, slots=True)
class WheelContents:
    """What a wheel says of itself inside, whatever its file is called."""

    stem: str  # name and version as its publisher spells them
    build: str
    tags: frozenset[str]  # each of one Python, ABI and platform
    metadata: bytes

    def file_name(self) -> str:
        """Return the name that a file with this content has (PEP 427)."""
        columns = zip(*(tag.split("-") for tag in sorted(self.tags)), strict=True)
        tags = [".".join(dict.fromkeys(column)) for column in columns]
        return "-".join([self.stem, *([self.build] if self.build else []), *tags]) + ".whl"

    def is_named(self, file: str) -> bool:
        """Say whether a file name says the same; tags may be in any order."""
        parts = file.removesuffix(".whl").split("-")
        return "-".join(parts[:2]) == self.stem and "-".join(parts[2:-3]) == self.build and self.has_tags(file)

    def has_tags(self, file: str) -> bool:
        return expanded("-".join(file.removesuffix(".whl").split("-")[-3:])) == self.tags


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_wheel(path: Path) -> WheelContents:
    """Read what a wheel says of itself; raises ``DataLoss`` for what is no whole wheel, or says too much."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.count("/") == 1]
            metadata = _read(archive, [name for name in names if name.endswith(".dist-info/METADATA")])
            headers = _headers(_read(archive, found := [name for name in names if name.endswith(".dist-info/WHEEL")]))
        lines = [str(line).strip() for line in headers.get_all("Tag", [])]
        if not lines or any(line.count("-") != 2 or len(line) > _LONGEST_TAG for line in lines):
            raise ValueError(f"{found[0]} names no tags")
    except _DAMAGE as error:
        raise DataLoss(
            f"{path.name} is no whole wheel: {error}.", remedy="Delete it, and run `make wheels` where an index is."
        ) from None
    tags = frozenset[str]().union(*(expanded(tag) for tag in lines))
    return WheelContents(found[0].partition(".dist-info/")[0], str(headers.get("Build", "")).strip(), tags, metadata)


def metadata_of(wheel: Path) -> bytes:
    """Return the METADATA of a wheel as it is; raises ``DataLoss`` for what is no whole wheel."""
    return read_wheel(wheel).metadata


def read_metadata(wheel: Path) -> Message:
    """Return the METADATA of a wheel as headers."""
    return _headers(metadata_of(wheel))


def expanded(tags: str) -> frozenset[str]:
    """Return the single tags that a compressed one stands for (PEP 425)."""
    return frozenset("-".join(parts) for parts in product(*(part.split(".") for part in tags.split("-"))))


def printable(text: str) -> str:
    """Return text that stays on its line and moves no terminal; names of files are anybody's."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _read(archive: zipfile.ZipFile, names: list[str]) -> bytes:
    if len(names) != 1:
        raise ValueError(f"it has {len(names)} METADATA or WHEEL")
    if archive.getinfo(names[0]).compress_type not in _METHODS:
        raise ValueError(f"{names[0]} is compressed as no wheel is")
    with archive.open(names[0]) as file:
        content = file.read(_LIMIT_BYTES + 1)
    if len(content) > _LIMIT_BYTES:
        raise ValueError(f"{names[0]} is larger than {_LIMIT_BYTES >> 20} MiB")
    return content


def _headers(content: bytes) -> Message:
    return BytesParser().parsebytes(content, headersonly=True)
