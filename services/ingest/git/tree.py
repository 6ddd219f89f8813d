"""The files of a commit: listed by ``ls-tree``, read by ``cat-file --batch``, so as they were committed.

No filter runs: line ends, ``ident`` and LFS are as the blobs have them. A member is written or skipped with its reason.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from services.core.errors import InvalidArgument
from services.ingest.archives.names import Names, exclusion, printable
from services.ingest.archives.unpacking import FolderSink, name_obstacle
from services.ingest.discovery import SizeCaps
from services.ingest.git.program import Git, GitFailed
from services.ingest.skips import Skipped, SkipReason

_BLOCK_BYTES = 1 << 18
_MAX_SKIPPED = 10_000
_MAX_ENTRIES = 1_000_000
_MAX_RECORD_BYTES = 1 << 20
_LINK, _SUBMODULE = "120000", "160000"
_LFS_MARK: Final = b"version https://git-lfs.github.com/spec/"
# A pointer is smaller than this.
_LFS_MAX_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What the files of a commit may come to. A file over the first is skipped; beyond the others the rest is."""

    caps: SizeCaps
    max_total_bytes: int
    max_files: int


@dataclass(frozen=True, slots=True)
class _Entry:
    mode: str
    blob: str
    size_bytes: int  # 0 for what is no blob
    names: Names


class TreeExport:
    """Writes the files of one commit below a folder. ``files`` and ``skipped`` tell what became of them."""

    def __init__(self, git: Git, into: Path, limits: Limits) -> None:
        self._git = git
        self._sink = FolderSink(into)
        self._limits = limits
        self.files = 0
        self.size_bytes = 0
        self._skipped: dict[Skipped, None] = {}  # a folder once, whatever lies in it
        self._unlisted = 0

    def write(self, commit: str) -> None:
        """Write the files; GitFailed when the repository does not have all of them."""
        wanted: list[_Entry] = []
        for entry in self._entries(commit):
            if len(wanted) == self._limits.max_files and len(self._skipped) == _MAX_SKIPPED:
                self._unlisted += 1
                continue
            skipped = self._obstacle(entry) or exclusion(entry.names)
            if skipped is not None:
                self._skip(skipped)
            elif len(wanted) == self._limits.max_files:
                detail = f"more than {self._limits.max_files:,} files: this one is left out"
                self._skip(Skipped(printable(entry.names), SkipReason.TOO_LARGE, detail))
            else:
                wanted.append(entry)
                self.size_bytes += entry.size_bytes
        if wanted:
            self._copy(wanted)

    def _entries(self, commit: str) -> Iterator[_Entry]:
        process = self._git.start("ls-tree", "-r", "-z", "-l", "--full-tree", commit)
        try:
            for count, line in enumerate(_records(cast("BinaryIO", process.stdout))):
                if count == _MAX_ENTRIES:
                    # A few trees that hold each other many times over list more names than anybody has memory for.
                    raise InvalidArgument(
                        f"The commit lists more than {_MAX_ENTRIES:,} files.",
                        remedy="Name a repository or revision with fewer.",
                        reason="GIT_TOO_LARGE",
                    )
                head, _, path = line.partition(b"\t")
                mode, _, blob, size = head.decode("ascii").split()
                if size != "-" and not size.isdigit():
                    raise GitFailed(f"object {blob} of {path.decode('utf-8', 'replace')[:200]} is missing or damaged")
                yield _Entry(mode, blob, 0 if size == "-" else int(size), _names(path))
            if process.wait():
                raise GitFailed(f"ls-tree of {commit} ended with status {process.returncode}")
        finally:
            _end(process)

    def _obstacle(self, entry: _Entry) -> Skipped | None:
        why = self._why(entry)
        return None if why is None else Skipped(printable(entry.names), *why)

    def _why(self, entry: _Entry) -> tuple[SkipReason, str] | None:
        limits = self._limits
        if entry.mode == _SUBMODULE:
            return SkipReason.SUBMODULE, f"a submodule at {entry.blob[:12]}: add its repository as a source of its own"
        if entry.mode == _LINK:
            return SkipReason.LINK, "a link; links of repositories are not made"
        if why := name_obstacle(entry.names):
            return why
        if entry.size_bytes > (cap := limits.caps.of("/".join(entry.names))):
            return SkipReason.TOO_LARGE, f"{entry.size_bytes:,} bytes, the cap is {cap:,}"
        if self.size_bytes + entry.size_bytes > limits.max_total_bytes:
            return SkipReason.TOO_LARGE, f"all files together are capped at {limits.max_total_bytes:,} bytes"
        return None

    def _skip(self, skipped: Skipped) -> None:
        """Keep what is skipped, by name up to a number, and count the rest."""
        if len(self._skipped) < _MAX_SKIPPED:
            self._skipped[skipped] = None
        elif skipped not in self._skipped:
            self._unlisted += 1

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """What is skipped; one more stands for all that is not kept by name."""
        if not self._unlisted:
            return tuple(self._skipped)
        rest = f"{self._unlisted:,} more entries that are left out"
        return (*self._skipped, Skipped("…", SkipReason.TOO_LARGE, rest))

    def _copy(self, wanted: list[_Entry]) -> None:
        process = self._git.start("cat-file", "--batch")
        assert process.stdin is not None
        stream = cast("BinaryIO", process.stdout)
        try:
            for entry in wanted:
                process.stdin.write(f"{entry.blob}\n".encode())
                process.stdin.flush()
                self._take(entry, stream)
        except BrokenPipeError as error:
            raise GitFailed("cat-file ended early") from error
        finally:
            _end(process)

    def _take(self, entry: _Entry, stream: BinaryIO) -> None:
        header = stream.readline().split()
        if len(header) != 3 or header[1] != b"blob" or int(header[2]) != entry.size_bytes:
            raise GitFailed(f"object {entry.blob} of {printable(entry.names)} is missing or damaged")
        first = stream.read(min(entry.size_bytes, _LFS_MAX_BYTES))
        is_pointer = entry.size_bytes <= _LFS_MAX_BYTES and first.startswith(_LFS_MARK)
        blocks = _blocks(stream, first, entry.size_bytes)
        if is_pointer:
            detail = "a pointer of Git LFS; the file itself is not in the repository"
            self._skip(Skipped(printable(entry.names), SkipReason.LFS_POINTER, detail))
        else:
            self._write(entry, blocks)
        for _ in blocks:
            pass
        stream.read(1)

    def _write(self, entry: _Entry, blocks: Iterator[bytes]) -> None:
        try:
            self._sink.write("/".join(entry.names), blocks)
        except (FileExistsError, NotADirectoryError):
            # Names that differ in a git tree may be one on a file system that folds case.
            detail = "another file has this name here"
            self._skip(Skipped(printable(entry.names), SkipReason.EXCLUDED, detail))
        else:
            self.files += 1


def _records(stream: BinaryIO) -> Iterator[bytes]:
    """Yield what a NUL ends."""
    rest = b""
    while block := stream.read(_BLOCK_BYTES):
        *whole, rest = (rest + block).split(b"\0")
        yield from whole
        if len(rest) > _MAX_RECORD_BYTES:
            raise GitFailed("the commit has a name that is too long to be read")


def _names(path: bytes) -> Names:
    return tuple(path.decode("utf-8", "surrogateescape").split("/"))


def _blocks(stream: BinaryIO, first: bytes, size_bytes: int) -> Iterator[bytes]:
    yield first
    left = size_bytes - len(first)
    while left:
        block = stream.read(min(left, _BLOCK_BYTES))
        if not block:
            raise GitFailed("cat-file ended early")
        left -= len(block)
        yield block


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.kill()
    process.stdout.close()
    process.wait()
