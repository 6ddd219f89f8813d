"""Reading an exported cache. A file is verified whole before anything of it is used."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from services.core.errors import InvalidArgument
from services.ingest.cache.format import (
    BLOCK_HEAD,
    BLOCK_TAG,
    CHECKSUM,
    FINGERPRINT_BYTES,
    FORMAT_VERSION,
    MAGIC,
    MOST_HEADER_BYTES,
    PREAMBLE,
    SHA256_BYTES,
    TRAILER_BYTES,
    TRAILER_HEAD,
    TRAILER_TAG,
    Header,
    VectorBlock,
    block_body_bytes,
    block_rows,
    decode_header,
    fingerprints_ascend,
)

_READ_BYTES = 1 << 20
# Bits of a float16 that are all set in infinities and NaNs.
_EXPONENT = np.uint16(0x7C00)


class _Problem(Exception):
    """Why the bytes are no export."""


def verify(file: BinaryIO, embedding_format: str) -> Header:
    """Check every byte of a file, and return what it holds.

    InvalidArgument with the reason CACHE_DAMAGED when it is not exactly what an export wrote, and CACHE_INCOMPATIBLE
    when it is of another version of the format, or its fingerprints are made otherwise than ``embedding_format`` says.
    """
    size = file.seek(0, 2)
    file.seek(0)
    if not size:
        raise damaged("it is empty")
    if file.read(len(MAGIC)) != MAGIC[:size]:
        raise damaged("it does not begin as an export of the embedding cache")
    intact = _is_intact(file, size)
    version = _version(file, size)
    if version != FORMAT_VERSION:
        if not intact:
            raise damaged("its content does not have the SHA-256 at its end")
        raise incompatible(
            f"it has format {version}, and this release reads format {FORMAT_VERSION}",
            "Export it again with this release, or import it into one that is as new as the exporting one.",
        )
    try:
        header = _read_head(file)
        for _ in _read_blocks(file, header):
            pass
        _read_trailer(file, size, header)
    except _Problem as problem:
        raise damaged(str(problem)) from None
    if not intact:
        raise damaged("its content does not have the SHA-256 at its end")
    if header.embedding_format != embedding_format:
        raise incompatible(
            f"its vectors are kept by {header.embedding_format}, those here by {embedding_format}: none would be found",
            "Index without it, which embeds the texts anew; then export from here.",
        )
    return header


def read_blocks(file: BinaryIO) -> Iterator[VectorBlock]:
    """Yield the vectors of a verified file, ascending by (model, fingerprint)."""
    try:
        yield from _read_blocks(file, _read_head(file))
    except _Problem as problem:
        raise damaged(str(problem)) from None


def damaged(cause: str) -> InvalidArgument:
    return InvalidArgument(
        f"The export can't be imported: {cause}.",
        remedy="Nothing has changed. Copy the file again and compare its SHA-256 (`sha256sum`) with what the export"
        " printed, or export again.",
        reason="CACHE_DAMAGED",
    )


def incompatible(cause: str, next_step: str) -> InvalidArgument:
    return InvalidArgument(
        f"The export can't be imported: {cause}.",
        remedy=f"Nothing has changed. {next_step}",
        reason="CACHE_INCOMPATIBLE",
    )


def _is_intact(file: BinaryIO, size: int) -> bool:
    """Tell whether the file ends with the SHA-256 of all before it."""
    file.seek(0)
    hasher = hashlib.sha256()
    left = size - SHA256_BYTES
    while left > 0:
        part = file.read(min(left, _READ_BYTES))
        if not part:
            return False
        hasher.update(part)
        left -= len(part)
    return file.read() == hasher.digest()


def _version(file: BinaryIO, size: int) -> int:
    file.seek(0)
    if size < PREAMBLE.size:
        raise damaged(f"it ends after {size} bytes, within its head")
    version: int = PREAMBLE.unpack(file.read(PREAMBLE.size))[1]
    return version


def _read_head(file: BinaryIO) -> Header:
    file.seek(0)
    preamble = _exactly(file, PREAMBLE.size, "its head")
    length = PREAMBLE.unpack(preamble)[2]
    if length > MOST_HEADER_BYTES:
        raise _Problem("its head is damaged: the length of the header is out of range")
    encoded = _exactly(file, length, "its head")
    _check(file, preamble + encoded, "its head")
    try:
        return decode_header(encoded)
    except ValueError as error:
        raise _Problem(f"its head is damaged: {error}") from error


def _read_blocks(file: BinaryIO, header: Header) -> Iterator[VectorBlock]:
    number = 0
    for index, model in enumerate(header.models):
        left, last = model.vectors, b""
        while left:
            number += 1
            where = f"block {number}"
            head = _exactly(file, BLOCK_HEAD.size, where)
            tag, of_model, rows = BLOCK_HEAD.unpack(head)
            if tag != BLOCK_TAG or of_model != index or not 0 < rows <= min(left, block_rows(model.dimensions)):
                raise _Problem(f"{where} is damaged or not the one that belongs there")
            body = _exactly(file, block_body_bytes(rows, model.dimensions), where)
            _check(file, head + body, where)
            fingerprints = body[: rows * FINGERPRINT_BYTES]
            if not fingerprints_ascend(fingerprints, last):
                raise _Problem(f"{where} is not the one that belongs there: its fingerprints are out of order")
            bits = np.frombuffer(body, dtype="<u2", offset=len(fingerprints)).reshape(rows, model.dimensions)
            if ((bits & _EXPONENT) == _EXPONENT).any():
                raise _Problem(f"{where} has a value that is not finite")
            block = VectorBlock(index, fingerprints, bits.view("<f2"))
            left, last = left - rows, block.last
            yield block


def _read_trailer(file: BinaryIO, size: int, header: Header) -> None:
    trailer = _exactly(file, TRAILER_BYTES, "its trailer")
    tag, vectors = TRAILER_HEAD.unpack(trailer[: TRAILER_HEAD.size])
    if tag != TRAILER_TAG or vectors != header.vectors:
        raise _Problem("its trailer is damaged")
    if extra := size - file.tell():
        raise _Problem(f"{extra} bytes follow its end")


def _check(file: BinaryIO, part: bytes, where: str) -> None:
    if CHECKSUM.unpack(_exactly(file, CHECKSUM.size, where))[0] != zlib.crc32(part):
        end = file.tell()
        start = end - CHECKSUM.size - len(part)
        raise _Problem(f"{where} is damaged (bytes {start} to {end - 1})")


def _exactly(file: BinaryIO, size_bytes: int, where: str) -> bytes:
    part = file.read(size_bytes)
    if len(part) < size_bytes:
        raise _Problem(f"it ends after {file.tell()} bytes, within {where}")
    return part
