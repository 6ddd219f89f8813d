"""The members of archives, one after the other, with bounds on what reading them may cost.

What an archive says of itself is not believed, its file name neither: tables, headers and data are bounded by the bytes
that are really read and decompressed. Damage raises whatever ``zipfile``, ``tarfile`` and the decompressors raise;
``unpacking`` knows it.
"""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import BinaryIO, Final, Protocol

import zstandard

BLOCK_BYTES = 1 << 18
_MAX_TABLE_BYTES = 16 << 20  # of a zip's central directory: zipfile reads and keeps all of it
_MAX_HEADER_BYTES = 1 << 18  # of all headers of one tar member: tarfile keeps them in memory
_TAR_BLOCK_BYTES = 512
# What a zstd stream may ask for to be decompressed: as much as `zstd --long` at its default.
_MAX_WINDOW_BYTES: Final = 128 << 20
_MAGIC_BYTES = 512
_ENCRYPTED = 0x1 | 0x40 | 0x2000  # flags: encrypted, strongly encrypted, with masked headers


class Refused(Exception):
    """An archive that is not read on. The message is the cause, ``reason`` the stable code."""

    def __init__(self, cause: str, reason: str) -> None:
        super().__init__(cause)
        self.reason = reason


class Readable(Protocol):
    """What yields bytes, forward only."""

    def read(self, size: int, /) -> bytes: ...


class Kind(Enum):
    """What a member is."""

    FILE = auto()
    FOLDER = auto()
    LINK = auto()
    SPECIAL = auto()  # device, fifo, socket, sparse file
    PACKED = auto()  # a file of a zip that is compressed by another method than deflate


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an archive. ``blocks`` yields its bytes, and must be used up before the next member is asked for."""

    name: str  # as the archive spells it
    kind: Kind
    size_bytes: int  # as the archive claims it
    blocks: Callable[[], Iterator[bytes]]


def members_of(stream: BinaryIO, max_stream_bytes: int) -> Generator[Member, None, None]:
    """Yield the members of a tar, plain or compressed by gzip or zstd, or of a zip: whichever its bytes are.

    Raises ``Refused`` once more than ``max_stream_bytes`` of a tar have been decompressed, and for a zip that is
    encrypted; ``tarfile.ReadError`` where it is none of these.
    """
    head = stream.read(_MAGIC_BYTES)
    stream.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return _tar_members(gzip.GzipFile(fileobj=stream, mode="rb"), max_stream_bytes)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        return _tar_members(decompressor.stream_reader(stream, read_across_frames=True), max_stream_bytes)
    if _is_tar(head):
        return _tar_members(stream, max_stream_bytes)
    if zipfile.is_zipfile(stream):
        stream.seek(0)
        return _zip_members(stream)
    raise tarfile.ReadError("it is neither a zip nor a tar, plain or compressed by gzip or zstd")


def _is_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        # The end of an empty one.
        return head == bytes(_MAGIC_BYTES)
    return True


def _zip_members(stream: BinaryIO) -> Generator[Member, None, None]:
    """Yield the members of a zip in the order of its central directory."""
    with zipfile.ZipFile(_BoundedReads(stream)) as archive:
        members = archive.infolist()
        if any(member.flag_bits & _ENCRYPTED for member in members):
            raise Refused("it is encrypted", "ARCHIVE_ENCRYPTED")
        for member in members:
            # filename ends at the first NUL, orig_filename does not.
            yield Member(member.orig_filename, _zip_kind(member), member.file_size, _zip_blocks(archive, member))


def _tar_members(unpacked: Readable, max_stream_bytes: int) -> Generator[Member, None, None]:
    """Yield the members of a tar, and at the end check that nothing is cut off or damaged."""
    source = _BoundedStream(unpacked, max_stream_bytes)
    source.allow(_MAX_HEADER_BYTES)
    with _Forgetful(fileobj=source) as archive:
        while (member := archive.next()) is not None:
            if member.size < 0:
                raise tarfile.ReadError(f"{member.name!r} has a negative size")
            yield Member(member.name, _tar_kind(member), member.size, _tar_blocks(archive, member, source))
            archive.forget()
            source.allow(_MAX_HEADER_BYTES)
    if source.last != bytes(_TAR_BLOCK_BYTES):
        # tarfile takes a damaged header behind the first, or a missing end mark, for the end.
        raise tarfile.ReadError("it has a damaged header, or its end is cut off")
    source.drain()


class _Forgetful(tarfile.TarFile):
    """A tar that is read once, from beginning to end."""

    members: list[tarfile.TarInfo]

    def forget(self) -> None:
        """Let go of what has been read: every header, and what global headers say, would be kept for ever."""
        self.members = []
        self.pax_headers = {}


class _BoundedReads(io.BufferedIOBase):
    """A file that refuses to be read in pieces that no honest archive needs."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def read(self, size: int | None = -1, /) -> bytes:
        data = self._stream.read(_MAX_TABLE_BYTES + 1 if size is None or size < 0 else min(size, _MAX_TABLE_BYTES + 1))
        if len(data) > _MAX_TABLE_BYTES:
            raise Refused(f"its table of contents has more than {_MAX_TABLE_BYTES:,} bytes", "ARCHIVE_TOO_LARGE")
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


class _BoundedStream(io.BufferedIOBase):
    """A stream that goes forward only, reads no more than it is allowed at a time, and ends at a limit."""

    def __init__(self, source: Readable, max_bytes: int) -> None:
        self._source = source
        self._max_bytes = max_bytes
        self._position = 0
        self._allowed_bytes = 0
        self.last = b""  # what the last read returned

    def allow(self, size_bytes: int) -> None:
        """Set how much may be read until the next call; what is skipped does not count."""
        self._allowed_bytes = size_bytes

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0 or size > self._allowed_bytes:
            raise Refused(f"the headers of a member have more than {_MAX_HEADER_BYTES:,} bytes", "ARCHIVE_UNSAFE")
        self._allowed_bytes -= size
        self.last = self._forward(size)
        return self.last

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence != io.SEEK_SET or offset < self._position:
            raise tarfile.ReadError("its members overlap")
        while self._position < offset and self._forward(min(offset - self._position, BLOCK_BYTES)):
            pass
        return self._position

    def drain(self) -> None:
        """Go to the end of the stream, where compressors have their checksum."""
        while self._forward(BLOCK_BYTES):
            pass

    def tell(self) -> int:
        return self._position

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def _forward(self, size: int) -> bytes:
        data = self._source.read(size)
        self._position += len(data)
        if self._position > self._max_bytes:
            raise Refused(f"it unpacks to more than {self._max_bytes:,} bytes", "ARCHIVE_TOO_LARGE")
        return data


def _zip_kind(member: zipfile.ZipInfo) -> Kind:
    mode = stat.S_IFMT(member.external_attr >> 16)
    if mode == stat.S_IFLNK:
        return Kind.LINK
    if member.is_dir() or mode == stat.S_IFDIR:
        return Kind.FOLDER
    if mode not in (0, stat.S_IFREG):
        return Kind.SPECIAL
    return Kind.FILE if member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) else Kind.PACKED


def _zip_blocks(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Callable[[], Iterator[bytes]]:
    def blocks() -> Iterator[bytes]:
        size_bytes = 0
        with archive.open(member) as source:
            while block := source.read(BLOCK_BYTES):
                size_bytes += len(block)
                yield block
        if size_bytes != member.file_size:
            raise zipfile.BadZipFile(f"{member.filename!r} is cut off")

    return blocks


def _tar_kind(member: tarfile.TarInfo) -> Kind:
    if member.isdir():
        return Kind.FOLDER
    if member.issym() or member.islnk():
        return Kind.LINK
    return Kind.FILE if member.isreg() and not member.issparse() else Kind.SPECIAL


def _tar_blocks(
    archive: tarfile.TarFile, member: tarfile.TarInfo, source: _BoundedStream
) -> Callable[[], Iterator[bytes]]:
    def blocks() -> Iterator[bytes]:
        source.allow(member.size)
        data = archive.extractfile(member)
        if data is None:
            raise tarfile.ReadError(f"{member.name!r} holds no data")
        with data:
            while block := data.read(BLOCK_BYTES):
                yield block

    return blocks
