"""Where a source's files can be read: its folder, or a scratch folder with what its archive or commit holds.

An archive that is as it was indexed is not even unpacked: its SHA-256 is the fingerprint of its package. So is the
commit of a repository.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from services.core.errors import NotFound
from services.ingest.archives.unpacking import Archive, ArchiveLimits, sha256_of, unpack
from services.ingest.dependencies.archives import distribution_archive
from services.ingest.git.checkouts import Checkouts
from services.ingest.projects import ARCHIVE, FOLDER, GIT, Indexed, Source
from services.ingest.skips import Skipped

_VERSION = re.compile(r"[-_.]?v?\d[\w.+-]*$")


@dataclass(frozen=True, slots=True)
class Opened:
    """``root`` is None when the source is an archive as it was indexed. ``skipped`` is what unpacking left out."""

    root: Path | None
    indexed: Indexed | None = None
    skipped: Sequence[Skipped] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Opening:
    """How a run opens its sources.

    ``scratch`` is a folder of the run's own; ``renew`` asks for files although they are as they were indexed, and
    ``verify`` for a look at the content of archives whatever their size and time say.
    """

    scratch: Path
    renew: bool
    verify: bool
    # Called while something is waited for; raises to stop it.
    on_wait: Callable[[], Awaitable[None]]


class Opener:
    """Makes the files of sources readable. Raises what the readers of archives raise."""

    def __init__(self, checkouts: Checkouts, *, distributions: ArchiveLimits, uploads: ArchiveLimits) -> None:
        self._checkouts = checkouts
        self._distributions = distributions
        self._uploads = uploads

    async def open(self, source: Source, upload: Archive | None, how: Opening) -> Opened:
        """Open a source; ``upload`` is the archive of one that was sent."""
        if source.kind == FOLDER:
            return Opened(source.root)
        if source.kind == GIT:
            return await self._commit(source, how)
        if source.kind == ARCHIVE:
            assert upload is not None
            return await asyncio.to_thread(self._upload, source, upload, how)
        return await asyncio.to_thread(self._distribution, source, how)

    async def _commit(self, source: Source, how: Opening) -> Opened:
        root = await asyncio.to_thread(_emptied, source, how)
        known = source.indexed.digest.hex() if source.indexed else ""
        done = await self._checkouts.check_out(
            source.id,
            source.location,
            source.revision,
            root,
            known_commit=known,
            renew=how.renew,
            on_wait=how.on_wait,
        )
        now = Indexed(bytes.fromhex(done.commit))
        return Opened(None if done.is_known else root, now, done.skipped, done.warnings)

    def _distribution(self, source: Source, how: Opening) -> Opened:
        try:
            stat = source.root.stat()
        except OSError as error:
            raise NotFound(
                f"{source.root.name} is not in the wheel directory: {error.strerror}.",
                remedy="Put it back, or delete the source.",
                reason="ARCHIVE_NOT_FOUND",
            ) from error
        before = source.indexed
        hinted = before is not None and (before.size_bytes, before.mtime_ns) == (stat.st_size, stat.st_mtime_ns)
        if before is not None and hinted and not how.renew and not how.verify:
            return Opened(None, before)
        now = Indexed(sha256_of(source.root, source.root.name), stat.st_size, stat.st_mtime_ns)
        if before is not None and before.digest == now.digest and not how.renew:
            return Opened(None, now)
        root = _emptied(source, how)
        return Opened(root, now, unpack(distribution_archive(source.root), root, self._distributions).skipped)

    def _upload(self, source: Source, upload: Archive, how: Opening) -> Opened:
        now = Indexed(bytes.fromhex(source.location))
        if source.indexed is not None and source.indexed.digest == now.digest and not how.renew:
            return Opened(None, now)
        root = _emptied(source, how)
        skipped = unpack(upload, root, self._uploads).skipped
        return _without_top(root, skipped, now)


def _without_top(root: Path, skipped: Sequence[Skipped], now: Indexed) -> Opened:
    """Make paths relative to the one folder that holds everything, if there is one: its name may tell a version."""
    children = list(root.iterdir())
    if len(children) != 1 or not children[0].is_dir():
        return Opened(root, now, skipped)
    top = f"{children[0].name}/"
    inner = [replace(one, path=one.path.removeprefix(top)) for one in skipped if one.path != top]
    # A package at the top is not named by a version, which the next archive has another of.
    named = root.parent / f"{root.name}.top" / (_VERSION.sub("", children[0].name) or root.name)
    named.parent.mkdir()
    return Opened(children[0].rename(named), now, inner)


def _emptied(source: Source, how: Opening) -> Path:
    """Return an empty folder that is named like the source: it names a package that has no other name."""
    root = how.scratch / str(source.id) / source.name
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    return root
