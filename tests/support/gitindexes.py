"""Indexes as git writes them after ``git add``, without a git program."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from dulwich.file import GitFile
from dulwich.index import IndexChecksumWriter, IndexExtension, SerializedIndexEntry, write_index

from services.ingest.gitindex import git_blob_id

VERSION = 2


def entry(root: Path, path: str, *, blob: bytes | None = None, **fields: object) -> SerializedIndexEntry:
    """Return the entry of a file as it is on disk; ``blob`` (20 bytes) and any field can be told otherwise."""
    now = os.lstat(root / path)
    seconds = 1_000_000_000
    known: dict[str, object] = {
        "name": path.encode(),
        "ctime": divmod(now.st_ctime_ns, seconds),
        "mtime": divmod(now.st_mtime_ns, seconds),
        "dev": now.st_dev & 0xFFFFFFFF,
        "ino": now.st_ino & 0xFFFFFFFF,
        "mode": now.st_mode,
        "uid": now.st_uid,
        "gid": now.st_gid,
        "size": now.st_size,
        "sha": (blob or git_blob_id((root / path).read_bytes())).hex().encode(),
        "flags": 0,
        "extended_flags": 0,
    }
    return SerializedIndexEntry(**{**known, **fields})  # type: ignore[arg-type]


def write_git_index(
    root: Path,
    entries: Iterable[SerializedIndexEntry],
    *,
    version: int = VERSION,
    extensions: Sequence[IndexExtension] = (),
    age_s: float = 0.0,
) -> Path:
    """Write ``.git/index``, last changed ``age_s`` seconds ago, and return its path."""
    path = root / ".git" / "index"
    path.parent.mkdir(exist_ok=True)
    with GitFile(os.fspath(path), "wb") as file:
        writer = IndexChecksumWriter(file)
        write_index(writer, sorted(entries, key=lambda one: one.name), version=version, extensions=extensions)
        writer.write_checksum()
    if age_s:
        written_ns = path.stat().st_mtime_ns - round(age_s * 1e9)
        os.utime(path, ns=(written_ns, written_ns))
    return path
