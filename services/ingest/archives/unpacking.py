"""What an archive holds, written below a folder as files to read, and nowhere else.

Invariants: every file written is a new regular file below ``into`` with mode 0644 and one fixed time; no link, no
device, nothing executable. A member is written or skipped with its reason. An archive whose names lead out of it is
refused as a whole: no tool that packs a folder writes such names.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Protocol

import zstandard

from services.core.errors import Conflict, DataLoss, InvalidArgument, NotFound, NotReady, PermissionDenied
from services.ingest.archives.members import Kind, Member, Refused, members_of
from services.ingest.archives.names import Layout, Names, exclusion, printable, split
from services.ingest.dependencies.findings import shown
from services.ingest.discovery import SizeCaps
from services.ingest.disk import ensure_room
from services.ingest.keys import MAX_PATH_BYTES, fitted
from services.ingest.skips import Skipped, SkipReason

MTIME_NS = 946_684_800 * 10**9  # 2000-01-01: an archive always unpacks to the same files
_FILE_MODE = 0o644
_MAX_NAME_BYTES = 255
_MAX_CAUSE_CHARS = 200
_MAX_MEMBER_CHARS = 2 * MAX_PATH_BYTES  # with the folders that a layout takes away; what is longer is not looked into
_LONG_NAME = f"more than {_MAX_NAME_BYTES} bytes, or {MAX_PATH_BYTES:,} with its folders"
_REST = "…"
# All that zipfile, tarfile and the decompressors raise for bytes that are none of theirs.
_DAMAGE = (
    ArithmeticError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    zstandard.ZstdError,
)
_NOT_WRITTEN = {
    Kind.LINK: (SkipReason.LINK, "a link; links of archives are not made"),
    Kind.SPECIAL: (SkipReason.SPECIAL, "not a regular file"),
    Kind.PACKED: (SkipReason.UNREADABLE, "compressed by another method than deflate"),
}


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What unpacking may cost. What is beyond the first three is skipped; beyond the last the archive is refused."""

    caps: SizeCaps = SizeCaps()  # noqa: RUF009  (frozen)
    max_total_bytes: int = 512 << 20  # written
    max_members: int = 50_000
    max_skipped: int = 10_000  # kept with their names; what is more is only counted
    max_stream_bytes: int = 2 << 30  # decompressed from a tar, written or not: its members can only be read through


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What became of an archive: the files and bytes written, and what was left out, in the order of the archive.

    ``beyond`` says which limit of the whole archive left something out, or nothing.
    """

    files: int
    size_bytes: int
    skipped: tuple[Skipped, ...]
    beyond: str = ""


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive to read. ``name`` is what people call it; ``remedy`` says what to do about one that is no good."""

    path: Path
    name: str
    layout: Layout
    remedy: str


def unpack(archive: Archive, into: Path, limits: ArchiveLimits) -> Unpacked:
    """Write what can be text of an archive below ``into``: what discovery excludes by its name is not written.

    ``into`` is made if need be, and must be empty. After an error it may hold a part, which the caller removes. Raises
    ``NotFound`` without an archive, ``InvalidArgument`` if it is refused (``ARCHIVE_UNSAFE``, ``ARCHIVE_ENCRYPTED``,
    ``ARCHIVE_TOO_LARGE``), ``DataLoss`` if it is damaged (``ARCHIVE_DAMAGED``), ``Conflict`` if ``into`` is in use,
    ``NotReady`` if it cannot be written to.
    """
    with opened(archive.path, archive.name) as stream:
        return _read(stream, archive, FolderSink(_emptied(into), replaces=True), limits)


def check(stream: BinaryIO, archive: Archive, limits: ArchiveLimits) -> Unpacked:
    """Read an archive as ``unpack`` does, from its first byte to its last, and write nothing."""
    return _read(stream, archive, _Nowhere(), limits)


def _read(stream: BinaryIO, archive: Archive, sink: Sink, limits: ArchiveLimits) -> Unpacked:
    unpacking = _Unpacking(sink, limits, archive.layout)
    try:
        with closing(members_of(stream, limits.max_stream_bytes)) as members:
            unpacking.run(members)
    except Refused as refusal:
        raise InvalidArgument(
            f"{archive.name} is refused: {refusal}.", remedy=archive.remedy, reason=refusal.reason
        ) from refusal
    except _DAMAGE as error:
        raise DataLoss(
            f"{archive.name} is damaged: {shown(str(error) or type(error).__name__, _MAX_CAUSE_CHARS)}.",
            remedy=archive.remedy,
            reason="ARCHIVE_DAMAGED",
        ) from error
    return Unpacked(len(unpacking.written), unpacking.size_bytes, unpacking.all_skipped(), unpacking.beyond)


def sha256_of(path: Path, name: str) -> bytes:
    """Return the SHA-256 of a file. Raises ``NotFound`` without one, ``NotReady`` if it cannot be read."""
    with opened(path, name) as stream:
        try:
            return hashlib.file_digest(stream, "sha256").digest()
        except OSError as error:
            raise _unreadable(name, error) from error


def opened(path: Path, name: str) -> io.BufferedReader:
    """Open a regular file to read, and nothing else that may have its name."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # NONBLOCK: a fifo must not hang the run
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(
            f"There is no file {name} any more.",
            remedy="Put it back, or delete the source.",
            reason="ARCHIVE_NOT_FOUND",
        ) from error
    except PermissionError as error:
        raise PermissionDenied(f"{name} may not be read.", remedy="Give the service read access.") from error
    except OSError as error:
        raise _unreadable(name, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidArgument(f"{name} is no regular file.", remedy="Name an archive.")
    return os.fdopen(descriptor, "rb")


def _unreadable(name: str, error: OSError) -> NotReady:
    return NotReady(f"{name} cannot be read: {error.strerror}.", remedy="Check the mount that it lies on.")


def _emptied(into: Path) -> Path:
    try:
        into.mkdir(parents=True, exist_ok=True)
        in_use = into.is_symlink() or any(into.iterdir())
    except OSError as error:
        raise _unwritable(into, error) from error
    if in_use:
        raise Conflict(f"{into} is not an empty folder.", remedy="Name a new one.")
    return into


def _unwritable(into: Path, error: OSError) -> NotReady:
    return NotReady(
        f"{into} cannot be written to: {error.strerror}.",
        remedy="Make room on the local disk, and give the service write access to it.",
        reason="UNPACKING_FAILED",
    )


class Sink(Protocol):
    """Where the files of an archive go."""

    def write(self, path: str, blocks: Iterator[bytes]) -> None:
        """Write a new file; ``FileExistsError`` or ``NotADirectoryError`` where another one is in its place."""
        ...


class _Nowhere:
    """Reads members and keeps nothing."""

    def write(self, path: str, blocks: Iterator[bytes]) -> None:
        for _ in blocks:
            pass


class FolderSink:
    """Writes members below a folder that is its own. ``replaces`` lets the last of several with one name win."""

    def __init__(self, root: Path, *, replaces: bool = False) -> None:
        self._root = root
        self._replaces = replaces
        self._made: set[str] = set()
        self._written: set[str] = set()

    def write(self, path: str, blocks: Iterator[bytes]) -> None:
        try:
            descriptor = self._create(path)
        except (FileExistsError, NotADirectoryError):
            raise
        except OSError as error:
            raise _unwritable(self._root, error) from error
        try:
            for block in blocks:
                self._append(descriptor, block)
            self._finish(descriptor)
        finally:
            os.close(descriptor)

    def _create(self, path: str) -> int:
        if not is_inside(path.split("/")):
            # Whoever asks has checked this; what is beneath must not depend on it.
            raise OSError(errno.EINVAL, "not a path below the folder")
        folder = path.rpartition("/")[0]
        if folder not in self._made:
            (self._root / folder).mkdir(parents=True, exist_ok=True)
            self._made.add(folder)
        if self._replaces and path in self._written:
            (self._root / path).unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._root / path, flags, _FILE_MODE)
        self._written.add(path)
        return descriptor

    def _append(self, descriptor: int, block: bytes) -> None:
        rest = memoryview(block)
        try:
            ensure_room(descriptor, len(block))
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError as error:
            raise _unwritable(self._root, error) from error

    def _finish(self, descriptor: int) -> None:
        try:
            os.fchmod(descriptor, _FILE_MODE)  # whatever the umask is
            os.utime(descriptor, ns=(MTIME_NS, MTIME_NS))
        except OSError as error:
            raise _unwritable(self._root, error) from error


def is_inside(names: Sequence[str]) -> bool:
    """Tell whether names are folders and a file below the root, read in whatever way."""
    return bool(names) and not any(name in ("", ".", "..") or "/" in name or "\0" in name for name in names)


def name_obstacle(names: Names) -> tuple[SkipReason, str] | None:
    """Say why a file of this name can't be stored, or None."""
    if not is_inside(names):
        return SkipReason.EXCLUDED, "the name leads out of the source"
    path = "/".join(names)
    if printable(names) != path:
        return SkipReason.NAME_NOT_UTF8, "the name is not valid UTF-8"
    if len(path.encode()) > MAX_PATH_BYTES or any(len(name.encode()) > _MAX_NAME_BYTES for name in names):
        return SkipReason.NAME_TOO_LONG, _LONG_NAME
    return None


@dataclass(slots=True)
class _Unpacking:
    """Decides member by member what is written."""

    sink: Sink
    limits: ArchiveLimits
    layout: Layout
    written: dict[str, int] = field(default_factory=dict)  # sizes by path
    size_bytes: int = 0
    beyond: str = ""
    skipped: dict[Skipped, None] = field(default_factory=dict)  # a folder once, whatever lies in it
    unlisted: int = 0  # skipped as well, and not among them

    def run(self, members: Iterator[Member]) -> None:
        for count, member in enumerate(members, start=1):
            names = split(member.name)
            if count > self.limits.max_members:
                self.beyond = f"more than {self.limits.max_members:,} members"
                detail = f"{self.beyond}: this one and the rest are left out"
                self.skip(Skipped(printable(names), SkipReason.TOO_LARGE, detail), always=True)
                return
            if names and member.kind is not Kind.FOLDER:
                if len(member.name) > _MAX_MEMBER_CHARS:
                    self.skip(Skipped(printable(names), SkipReason.NAME_TOO_LONG, _LONG_NAME))
                    continue
                place = self.layout.place(names)
                skipped = place if isinstance(place, Skipped) else exclusion(place) or self.take(place, member)
                if skipped is not None:
                    self.skip(skipped)

    def skip(self, skipped: Skipped, *, always: bool = False) -> None:
        """Keep what is skipped: with a name that is cut to what can be stored, and only so many."""
        folder = "/" if skipped.path.endswith("/") else ""
        path = fitted(skipped.path.removesuffix("/"), MAX_PATH_BYTES - len(folder)) + folder
        if path != skipped.path:
            skipped = replace(skipped, path=path)
        if always or len(self.skipped) < self.limits.max_skipped:
            self.skipped[skipped] = None
        elif skipped not in self.skipped:
            self.unlisted += 1

    def all_skipped(self) -> tuple[Skipped, ...]:
        """Return what is skipped; one more stands for all that is not kept."""
        if not self.unlisted:
            return tuple(self.skipped)
        rest = f"{self.unlisted:,} more members that are left out"
        return (*self.skipped, Skipped(_REST, SkipReason.TOO_LARGE, rest))

    def take(self, names: Names, member: Member) -> Skipped | None:
        """Write a member, or say why it is not written."""
        why = self.obstacle(names, member) or self.write("/".join(names), member)
        return None if why is None else Skipped(printable(names), *why)

    def obstacle(self, names: Names, member: Member) -> tuple[SkipReason, str] | None:
        if why := name_obstacle(names):
            return why
        if member.kind in _NOT_WRITTEN:
            return _NOT_WRITTEN[member.kind]
        if member.size_bytes > (cap := self.limits.caps.of("/".join(names))):
            detail = f"{member.size_bytes:,} bytes, the cap is {cap:,}"
            return SkipReason.TOO_LARGE, detail
        if self.size_bytes + member.size_bytes > self.limits.max_total_bytes:
            self.beyond = f"files of more than {self.limits.max_total_bytes:,} bytes together"
            return SkipReason.TOO_LARGE, f"all files together are capped at {self.limits.max_total_bytes:,} bytes"
        return None

    def write(self, path: str, member: Member) -> tuple[SkipReason, str] | None:
        before = self.size_bytes
        try:
            self.sink.write(path, self.counted(member.blocks()))
        except (FileExistsError, NotADirectoryError):
            return SkipReason.EXCLUDED, "another member has this name"
        size_bytes = self.size_bytes - before
        # The last of several with one name takes the place of the others.
        self.size_bytes -= self.written.get(path, 0)
        self.written[path] = size_bytes
        return None

    def counted(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for block in blocks:
            self.size_bytes += len(block)
            yield block
