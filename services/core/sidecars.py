"""Sidecars: immutable files on the shared volume, named by their SHA-256 (DESIGN I2).

Written tmp, fsync, rename, fsync of the directory, before any row points at them. Readers copy a file to local disk,
check its size and SHA-256, and load the copy; nothing on the volume is mapped, and nothing there is ever modified.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from services.core.errors import DataLoss, NotReady

_BLOCK_BYTES = 1 << 20
_TEMPORARY = ".tmp-"
# What only a writer is told: the local disk is at fault, and the file on the volume may be whole.
_OF_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


@dataclass(frozen=True, slots=True)
class SidecarFile:
    """A file that a generation needs: its name in the index, and the name of its bytes."""

    method: str
    logical_name: str
    sha256: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with a sidecar on the volume."""

    file: SidecarFile
    problem: str


class Volume:
    """The shared volume: one flat folder per first byte of the name."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, sha256: bytes) -> Path:
        return self._root / sha256[:1].hex() / sha256.hex()

    def publish(self, method: str, logical_name: str, made: Path) -> SidecarFile:
        """Store a finished local file; a file of the same content is left as it is.

        NotReady when the volume is full or read-only; then nothing has changed.
        """
        try:
            with made.open("rb") as source:
                digest, size = self._store(source)
        except OSError as error:
            raise NotReady(
                f"The sidecar volume can't be written: {os.strerror(error.errno or errno.EIO)}.",
                remedy="Free space or make the volume writable, then index again; nothing is lost.",
                reason="SIDECAR_VOLUME_UNWRITABLE",
            ) from error
        return SidecarFile(method, logical_name, digest, size)

    def keep(self, source: BinaryIO) -> tuple[bytes, int]:
        """Store what is no sidecar but comes from outside; return SHA-256 and size. NotReady as ``publish``."""
        try:
            return self._store(source)
        except OSError as error:
            raise NotReady(
                f"The shared volume can't be written: {os.strerror(error.errno or errno.EIO)}.",
                remedy="Free space or make the volume writable, then send it again; nothing has changed.",
                reason="SIDECAR_VOLUME_UNWRITABLE",
            ) from error

    def _store(self, source: BinaryIO) -> tuple[bytes, int]:
        """Copy a file under the name of its content, which the copy tells; return SHA-256 and size."""
        temporary = self._root / "00" / f"{_TEMPORARY}{secrets.token_hex(8)}"
        temporary.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as sink:
                digest, size = _copy(source, sink)
                target = self.path(digest)
                if target.exists() and _digest(target) == (digest, size):
                    # A file that no row names yet is young again: nobody may collect it before the publish.
                    os.utime(target)
                    return digest, size
                sink.flush()
                os.fsync(sink.fileno())
            target.parent.mkdir(exist_ok=True)
            temporary.rename(target)
            _sync_directory(target.parent)
            return digest, size
        finally:
            temporary.unlink(missing_ok=True)

    def holds(self, file: SidecarFile) -> bool:
        """Tell whether the volume has a file of the right name and size; its content is not read."""
        try:
            return self.path(file.sha256).stat().st_size == file.size_bytes
        except OSError:
            return False

    def fetch(self, file: SidecarFile, destination: Path) -> None:
        """Copy a file to local disk and check it.

        DataLoss when it is missing or not what Postgres says it is, NotReady when this process may not read it, OSError
        when the local disk takes no copy.
        """
        source = self.path(file.sha256)
        temporary = destination.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}")
        try:
            with source.open("rb") as reader, temporary.open("xb") as writer:
                digest, size = _copy(reader, writer)
            problem = _problem(file, digest, size)
            if problem:
                raise _damaged(Damage(file, problem))
            temporary.rename(destination)
        except FileNotFoundError as error:
            raise _damaged(Damage(file, "is missing")) from error
        except PermissionError as error:
            raise NotReady(
                "The volume of sidecars may not be read.",
                remedy="Give its files to the user or the group of the services; it is tried again then.",
                reason="SIDECARS_UNREADABLE",
            ) from error
        except OSError as error:
            if error.errno in _OF_WRITING:
                raise
            raise _damaged(Damage(file, f"can't be copied: {os.strerror(error.errno or errno.EIO)}")) from error
        finally:
            temporary.unlink(missing_ok=True)

    def check(self, file: SidecarFile) -> Damage | None:
        """Return what is wrong with a file, None when it is whole."""
        try:
            digest, size = _digest(self.path(file.sha256))
        except FileNotFoundError:
            return Damage(file, "is missing")
        except OSError as error:
            return Damage(file, f"can't be read: {os.strerror(error.errno or errno.EIO)}")
        problem = _problem(file, digest, size)
        return Damage(file, problem) if problem else None

    def discard(self, damaged: SidecarFile) -> None:
        """Remove a damaged file, so that its right content can be stored under the name."""
        self.path(damaged.sha256).unlink(missing_ok=True)

    def collect(self, referenced: Collection[bytes], grace_s: float) -> list[Path]:
        """Remove files that no row names and leftovers of interrupted writes, once older than ``grace_s``.

        The grace keeps files that a running publish has written and not yet pointed at.
        """
        names = {digest.hex() for digest in referenced}
        horizon = time.time() - grace_s
        removed = []
        for folder in sorted(self._root.glob("??")):
            for path in sorted(folder.iterdir()):
                try:
                    if path.name not in names and path.stat().st_mtime < horizon:
                        path.unlink()
                        removed.append(path)
                except OSError:
                    # Gone, as another replica collects too; or not ours to remove now. The next round looks again.
                    continue
        return removed


def _copy(source: BinaryIO, sink: BinaryIO) -> tuple[bytes, int]:
    """Copy what is left of a file; return SHA-256 and size of it."""
    hasher = hashlib.sha256()
    size = 0
    while block := source.read(_BLOCK_BYTES):
        hasher.update(block)
        size += len(block)
        sink.write(block)
    return hasher.digest(), size


def _digest(path: Path) -> tuple[bytes, int]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
        return digest, file.tell()


def _problem(file: SidecarFile, digest: bytes, size: int) -> str:
    if size != file.size_bytes:
        return f"has {size} bytes instead of {file.size_bytes}"
    if digest != file.sha256:
        return "has other content than its SHA-256 says"
    return ""


def _damaged(damage: Damage) -> DataLoss:
    name = damage.file.sha256.hex()
    return DataLoss(
        f"The {damage.file.method} sidecar {name[:12]} ({damage.file.logical_name}) {damage.problem}.",
        remedy="It is rebuilt from the database with `undercroft repair`.",
        reason="SIDECAR_DAMAGED",
        metadata={"method": damage.file.method, "sha256": name},
    )


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
