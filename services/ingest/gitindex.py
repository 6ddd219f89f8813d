"""What git knows of a source's files: its index can vouch for content that need not be read again.

Where git considers a file clean (size and times are those of its index entry) and the entry has the blob id of the
bytes that we read last, those bytes are still there, however old our own hint. The id that we compare with is computed
from bytes that we have read, and the size must be theirs too, so what git converts between the repository and the
folder (line ends, encodings, LFS) makes us read, never wrong; only a filter that keeps the size and was switched on
since could, and ``--verify`` finds that.

Read are ``.git/index`` files of version 2 to 4 with SHA-1 ids, in a ``.git`` that is a folder. Not read: a ``.git``
that is a link or a file (worktrees and submodules; ignored for now), split indexes, SHA-256 repositories, and an index
that git is about to replace. No git program is run, and no configuration is followed.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from services.ingest.clocks import is_racy

if TYPE_CHECKING:
    from dulwich.index import SerializedIndexEntry

log = structlog.get_logger(__name__)

_MAX_INDEX_BYTES = 128 * 1024 * 1024
_MAX_ENTRIES = 1_000_000
_MAX_PATHS_BYTES = 64 * 1024 * 1024  # of all paths: version 4 leaves out what a path shares with the one before
_COMPRESSED_VERSION = 4
_EXTENDED = 0x4000
_FIXED_FIELDS = struct.Struct(">10L20sH")  # times, device, inode, mode, owner, group, size; blob id; flags
_CHECKSUM_BYTES = 20
_EXTENSION_HEADER_BYTES = 8
_ASSUME_VALID = 0x8000
_STAGE = 0x3000
_SKIP_WORKTREE_OR_INTENT_TO_ADD = 0x6000


def git_blob_id(data: bytes) -> bytes:
    """Return the id, 20 bytes, that git gives a file of these bytes where nothing converts them."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).digest()


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the index says of a file that it holds without reservation."""

    blob: bytes
    size_bytes: int
    mtime_ns: int
    ctime_ns: int


class GitIndex:
    """The index of the repository whose root is ``root``; read when the first file is asked for that it could know."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._written_ns: int | None = None
        self._entries: dict[bytes, _Entry] | None = None

    def vouches(self, path: str, blob: bytes, size_bytes: int, mtime_ns: int) -> bool:
        """Tell whether the file at ``path``, seen with time ``mtime_ns``, still holds certain content.

        ``blob`` and ``size_bytes`` are those of the content. Never raises: an index that can't be read vouches for
        nothing, which is logged once.
        """
        if self._written_ns is None:
            self._written_ns = self._written()
        if is_racy(mtime_ns, self._written_ns):
            # Most often a file that was edited since: large indexes take longer to read than it does.
            return False
        if self._entries is None:
            self._entries = self._load()
        entry = self._entries.get(path.encode("utf-8", "surrogateescape"))
        if entry is None or (entry.blob, entry.size_bytes, entry.mtime_ns) != (blob, size_bytes, mtime_ns):
            return False
        try:
            now = os.lstat(self._root / path)
        except OSError:
            return False
        if not stat.S_ISREG(now.st_mode) or (now.st_size, now.st_mtime_ns) != (size_bytes, mtime_ns):
            return False
        # The change time tells of an edit whose modification time was restored. Some writers leave it out.
        return entry.ctime_ns in (0, now.st_ctime_ns)

    def _written(self) -> int:
        try:
            return os.stat(self._root / ".git" / "index").st_mtime_ns
        except OSError:
            return 0

    def _load(self) -> dict[bytes, _Entry]:
        try:
            with _open_git_folder(self._root) as folder:
                return {} if folder is None else dict(_clean_entries(*_read_index(folder)))
        except FileNotFoundError:
            return {}  # nothing was ever added to this repository
        except Exception as error:  # a parser's, for bytes that anyone may have written
            reason = str(error) if isinstance(error, _Unusable | OSError) else f"it is damaged ({type(error).__name__})"
            log.warning("git's index is ignored", source=os.fspath(self._root), reason=reason)
            return {}


class _Unusable(Exception):
    """An index that is whole and yet says nothing to us."""


@contextmanager
def _open_git_folder(root: Path) -> Iterator[int | None]:
    """Open ``.git``; None where there is none, or where it is no folder of its own."""
    try:
        folder = os.open(root / ".git", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        yield None
        return
    try:
        yield folder
    finally:
        os.close(folder)


def _read_index(folder: int) -> tuple[bytes, int]:
    """Return the index without its checksum, and the time when it was written."""
    try:
        os.stat("index.lock", dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        pass
    else:
        raise _Unusable("git is at work on it")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open("index", flags, dir_fd=folder), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_INDEX_BYTES:
            raise _Unusable("it is no regular file of an ordinary size")
        data = file.read(_MAX_INDEX_BYTES)
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    # index.skipHash leaves zeros.
    if checksum not in (hashlib.sha1(body, usedforsecurity=False).digest(), bytes(_CHECKSUM_BYTES)):
        raise _Unusable("its checksum is wrong, or not SHA-1")
    return body, status.st_mtime_ns


def _clean_entries(body: bytes, written_ns: int) -> Iterator[tuple[bytes, _Entry]]:
    """Yield (path, entry) of the regular files that nothing speaks against."""
    from dulwich.index import read_index_header

    stream = io.BytesIO(body)
    version, count = read_index_header(stream)
    if count > _MAX_ENTRIES:
        raise _Unusable(f"it has more than {_MAX_ENTRIES:,} entries")
    read = _compressed_entries if version == _COMPRESSED_VERSION else _plain_entries
    paths_bytes = 0
    for entry in read(stream, body, version, count):
        paths_bytes += len(entry.name)
        if paths_bytes > _MAX_PATHS_BYTES:
            raise _Unusable(f"its paths have more than {_MAX_PATHS_BYTES:,} bytes")
        if entry.flags & (_ASSUME_VALID | _STAGE) or entry.extended_flags & _SKIP_WORKTREE_OR_INTENT_TO_ADD:
            continue
        if not stat.S_ISREG(entry.mode):
            continue
        mtime_ns = _nanoseconds(entry.mtime)
        if is_racy(mtime_ns, written_ns):
            continue
        yield entry.name, _Entry(bytes.fromhex(entry.sha.decode()), entry.size, mtime_ns, _nanoseconds(entry.ctime))
    _check_extensions(body, stream.tell())


def _plain_entries(stream: io.BytesIO, body: bytes, version: int, count: int) -> Iterator[SerializedIndexEntry]:
    """Yield the entries of version 2 and 3, whose paths stand there whole."""
    from dulwich.index import read_cache_entry

    for _ in range(count):
        yield read_cache_entry(stream, version)


def _compressed_entries(stream: io.BytesIO, body: bytes, version: int, count: int) -> Iterator[SerializedIndexEntry]:
    """Yield the entries of version 4: of a path only what differs from the end of the one before.

    Not read by dulwich, which does so byte by byte and takes the number of bytes to remove for another kind of number
    than git writes; above 127 they differ.
    """
    from dulwich.index import SerializedIndexEntry

    name = b""
    for _ in range(count):
        *numbers, blob, flags = _FIXED_FIELDS.unpack(stream.read(_FIXED_FIELDS.size))
        ctime_s, ctime_ns, mtime_s, mtime_ns, device, inode, mode, owner, group, size = numbers
        extended = int.from_bytes(stream.read(2), "big") if flags & _EXTENDED else 0
        removed = _offset(stream, len(name))
        end = body.index(b"\0", stream.tell())
        if len(name) - removed + end - stream.tell() > _MAX_PATHS_BYTES:
            raise _Unusable(f"a path has more than {_MAX_PATHS_BYTES:,} bytes")
        name = name[: len(name) - removed] + stream.read(end - stream.tell())
        stream.seek(end + 1)
        times = (ctime_s, ctime_ns), (mtime_s, mtime_ns)
        yield SerializedIndexEntry(
            name, *times, device, inode, mode, owner, group, size, blob.hex().encode(), flags, extended
        )


def _offset(stream: io.BytesIO, most: int) -> int:
    """Read a number as git's packs spell offsets: seven bits a byte, the highest first, none with two spellings."""
    number = -1
    while True:
        byte = stream.read(1)[0]
        number = (number + 1) << 7 | byte & 0x7F
        if number > most:
            raise _Unusable("it removes more of a path than there is")
        if not byte & 0x80:
            return number


def _check_extensions(body: bytes, position: int) -> None:
    """Refuse an index with an extension that changes what its entries mean, as git marks them by a small letter."""
    while position < len(body):
        header = body[position : position + _EXTENSION_HEADER_BYTES]
        if not header[:1].isupper():
            raise _Unusable(f"it has an extension that must be understood, {header[:4]!r}")
        position += _EXTENSION_HEADER_BYTES + int.from_bytes(header[4:], "big")
    if position != len(body):
        raise _Unusable("it is cut")


def _nanoseconds(time: int | float | tuple[int, int]) -> int:
    seconds, nanoseconds = time if isinstance(time, tuple) else (int(time), 0)
    return seconds * 1_000_000_000 + nanoseconds
