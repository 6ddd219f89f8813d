"""Where a source's files can be read: its folder, or a scratch folder with what its archive holds.

An archive that is as it was indexed is not even unpacked: its SHA-256 is the fingerprint of its package.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from services.core.errors import NotFound
from services.ingest.archives.unpacking import ArchiveLimits, sha256_of, unpack
from services.ingest.dependencies.archives import distribution_archive
from services.ingest.projects import WHEEL, ArchiveState, Source
from services.ingest.skips import Skipped


@dataclass(frozen=True, slots=True)
class Opened:
    """``root`` is None when the source is an archive as it was indexed. ``skipped`` is what unpacking left out."""

    root: Path | None
    archive: ArchiveState | None = None
    skipped: Sequence[Skipped] = ()


def open_source(source: Source, scratch: Path, limits: ArchiveLimits, *, renew: bool, verify: bool) -> Opened:
    """Make the files of a source readable. NotFound and others as the archive's reader raises them."""
    if source.kind != WHEEL:
        return Opened(source.root)
    try:
        stat = source.root.stat()
    except OSError as error:
        raise NotFound(
            f"{source.root.name} is not in the wheel directory: {error.strerror}.",
            remedy="Put it back, or delete the source.",
            reason="ARCHIVE_NOT_FOUND",
        ) from error
    before = source.archive
    hinted = before is not None and (before.size_bytes, before.mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    if before is not None and hinted and not renew and not verify:
        return Opened(None, before)
    archive = ArchiveState(sha256_of(source.root, source.root.name), stat.st_size, stat.st_mtime_ns)
    if before is not None and before.sha256 == archive.sha256 and not renew:
        return Opened(None, archive)
    root = scratch / str(source.id)
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    return Opened(root, archive, unpack(distribution_archive(source.root), root, limits).skipped)
