"""Telling new, changed, unchanged and deleted files apart.

Size and time are the hint that saves reading; where they no longer fit, git's index may vouch for the file. The hash
of the content is the truth (DESIGN I6).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from services.core.errors import NotFound
from services.ingest.clocks import is_racy
from services.ingest.discovery import Body, DiscoverySettings, Found, discover, read
from services.ingest.gitindex import GitIndex, git_blob_id
from services.ingest.keys import MAX_PATH_BYTES
from services.ingest.manifests import Manifests
from services.ingest.modules import ModuleRoots
from services.ingest.skips import Skipped, SkipReason

# Reasons that may be gone a moment later: what is indexed of such a file or folder stays, and the project is stale.
_PASSING = frozenset({SkipReason.UNREACHABLE, SkipReason.UNSTABLE})


@dataclass(frozen=True, slots=True)
class Hint:
    """Size and time of a file when its content was read. ``skip`` says why that content is not indexed.

    A time that can't be trusted is negated: the file may have changed since without another time to show for it.

    ``git_blob`` is git's id of that content; None when a release read it that did not compute it.
    """

    size_bytes: int
    mtime_ns: int
    content_hash: bytes
    skip: tuple[str, str] | None = None
    git_blob: bytes | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file whose content has to be extracted."""

    path: str
    data: bytes
    content_hash: bytes
    hint: Hint
    new: bool


@dataclass(frozen=True, slots=True)
class LiveFile:
    """What the live generation has of a file.

    ``module`` is the dotted name of a Python file, ``settings`` what the manifests of the source said of it.
    """

    content_hash: bytes
    module: str
    settings: str = ""


@dataclass(slots=True)
class Changes:
    """What comparing one source with its live files saw.

    ``to_read`` are files that may be new or changed; ``renamed`` are those of them whose module has
    another name than in the live generation, because a package around them came or went, or of which a manifest says
    something else. ``vouched`` counts the files that only git's
    index saves from being read; their hints are renewed. ``found`` has size and time of every file, ``kept`` the live
    files that can't be reached now, and ``vanished`` counts those that were gone when they were to be read.
    """

    roots: ModuleRoots
    manifests: Manifests = field(default_factory=Manifests)
    unchanged: int = 0
    deleted: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    to_read: list[Found] = field(default_factory=list)
    renamed: set[str] = field(default_factory=set)
    hints: dict[str, Hint] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    found: dict[str, tuple[int, int]] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    read: int = 0
    vouched: int = 0
    vanished: int = 0
    # Device and inode of the root.
    identity: tuple[int, int] = (0, 0)

    def is_said_otherwise(self, path: str, module: str, settings: str) -> bool:
        """Tell whether a file that was extracted has another module name now, or other settings."""
        if module and module != self.roots.module(path):
            return True
        return settings != self.manifests.settings(path).canonical()


def compare(
    root: Path,
    settings: DiscoverySettings,
    data_dir: Path | None,
    live: Mapping[str, LiveFile],
    hints: Mapping[str, Hint],
    must_read: Callable[[str], bool],
    *,
    trusting: bool = False,
) -> Changes:
    """Compare a source with its live files by names, sizes and times; no body is read but those of manifests.

    Files that ``must_read`` asks for are listed to be read although nothing else does. When ``trusting``, a time that
    can't be trusted is all the same: for those who will not read, and have seen no change.
    """
    identity = _identity(root)
    entries = [_bounded(entry) for entry in discover(root, settings, data_dir=data_dir)]
    found = [entry for entry in entries if isinstance(entry, Found)]
    changes = Changes(ModuleRoots.of((entry.path for entry in found), root.name))
    changes.identity = identity
    changes.skipped = [entry for entry in entries if isinstance(entry, Skipped)]
    changes.found = {entry.path: (entry.size_bytes, entry.mtime_ns) for entry in found}
    changes.seen = set(changes.found)
    changes.manifests = Manifests.of(root, changes.seen)
    git = GitIndex(root)
    unindexed: set[str] = set()
    for entry in found:
        hint, known = hints.get(entry.path), live.get(entry.path)
        if known is not None and changes.is_said_otherwise(entry.path, known.module, known.settings):
            changes.renamed.add(entry.path)
        if hint is None or entry.path in changes.renamed or must_read(entry.path):
            changes.to_read.append(entry)
            continue
        mtime_ns = abs(hint.mtime_ns) if trusting else hint.mtime_ns
        if (hint.size_bytes, mtime_ns) != (entry.size_bytes, entry.mtime_ns):
            if not _vouched(git, entry, hint):
                changes.to_read.append(entry)
                continue
            hint = changes.hints[entry.path] = replace(hint, mtime_ns=entry.mtime_ns)
            changes.vouched += 1
        if hint.skip is not None:
            unindexed.add(entry.path)
            changes.skipped.append(Skipped(entry.path, SkipReason(hint.skip[0]), hint.skip[1]))
        elif known is not None and known.content_hash == hint.content_hash:
            changes.unchanged += 1
        else:
            changes.to_read.append(entry)
    # By what was found, not by what is listed: names that are no text may be listed under the name of another file.
    gone = {path for path in live if path not in changes.seen or path in unindexed}
    changes.kept = _unreached(gone, changes.skipped)
    changes.deleted = sorted(gone - changes.kept)
    changes.unchanged += len(changes.kept)
    # Not among what is gone: as a text the file is indexed all the same.
    changes.skipped += changes.manifests.problems
    return changes


def _identity(root: Path) -> tuple[int, int]:
    try:
        if os.path.realpath(root) != os.fspath(root):
            raise NotFound(
                f"{root} is no longer the folder that was added: a link has taken its place.",
                remedy="Put the folder back, or delete the source and add the other folder.",
                reason="SOURCE_REPLACED",
            )
        status = os.stat(root)
    except OSError as error:
        raise NotFound(
            f"{root} is not there: {error.strerror}.",
            remedy="Check the path, and the mount if there is one. Of a folder that is gone for good, "
            "`undercroft projects remove-source` takes the source out of the project.",
        ) from error
    return status.st_dev, status.st_ino


def ensure_same(root: Path, changes: Changes) -> None:
    """Raise NotFound when another folder, or none, is where the compared one was: its files are not deleted."""
    if _identity(root) != changes.identity:
        raise NotFound(
            f"{root} was replaced by another folder while it was read.",
            remedy="Index again; until then the project stays as it is.",
            reason="SOURCE_REPLACED",
        )


def _unreached(paths: Set[str], skipped: Sequence[Skipped]) -> set[str]:
    """Return those of the paths that can't be reached now, themselves or for a folder above them."""
    passing = [one.path for one in skipped if one.reason in _PASSING]
    folders = tuple(path for path in passing if path.endswith("/") or not path)
    return {path for path in paths if path in passing or path.startswith(folders)}


def count_changed(root: Path, settings: DiscoverySettings, data_dir: Path | None, changes: Changes) -> int:
    """Count the files that have come, gone or changed since they were compared or read, by size and time.

    Raises as ``ensure_same`` and ``discover``.
    """
    ensure_same(root, changes)
    known = {**changes.found, **{path: (hint.size_bytes, abs(hint.mtime_ns)) for path, hint in changes.hints.items()}}
    now = {
        entry.path: (entry.size_bytes, entry.mtime_ns)
        for entry in discover(root, settings, data_dir=data_dir)
        if isinstance(entry, Found)
    }
    return sum(known.get(path) != now.get(path) for path in known.keys() | now.keys())


def untouched(live: Mapping[str, LiveFile], hints: Mapping[str, Hint], skipped: Sequence[Skipped]) -> Changes:
    """Return the changes of a source that is not listed, because it can't be or need not be: none."""
    changes = Changes(ModuleRoots.of(()))
    changes.unchanged = len(live)
    changes.seen = {*live, *hints}
    changes.skipped = list(skipped)
    return changes


def _vouched(git: GitIndex, found: Found, hint: Hint) -> bool:
    if hint.git_blob is None or hint.size_bytes != found.size_bytes:
        return False
    return git.vouches(found.path, hint.git_blob, hint.size_bytes, found.mtime_ns)


def _bounded(entry: Found | Skipped) -> Found | Skipped:
    """Skip a file whose path is too long to be a key."""
    # No character has more than four bytes.
    if isinstance(entry, Found) and len(entry.path) > MAX_PATH_BYTES // 4 and len(entry.path.encode()) > MAX_PATH_BYTES:
        return Skipped(entry.path, SkipReason.NAME_TOO_LONG, f"the path has more than {MAX_PATH_BYTES} bytes")
    return entry


def read_candidates(
    root: Path,
    settings: DiscoverySettings,
    changes: Changes,
    live: Mapping[str, LiveFile],
    hints: Mapping[str, Hint],
    must_extract: Callable[[str], bool],
) -> Iterator[Candidate]:
    """Read the files of ``changes.to_read`` one by one and yield those whose content has to be extracted.

    Files that turn out unchanged are counted, those that can't be read are skipped with their reason; hints are
    renewed for all of them.
    """
    for found in changes.to_read:
        changes.read += 1
        body = read(root, found.path, max_bytes=settings.caps.of(found.path))
        if isinstance(body, Skipped):
            if body.reason is SkipReason.VANISHED:
                changes.vanished += 1
            else:
                changes.skipped.append(body)
            # One that is written all the time must not stand in the way of a renewal.
            stays = body.reason is SkipReason.UNREACHABLE or not must_extract(found.path)
            if found.path in live and body.reason in _PASSING and stays:
                changes.kept.add(found.path)
                changes.unchanged += 1
            elif found.path in live:
                changes.deleted.append(found.path)
            continue
        digest = hashlib.sha256(body.data).digest()
        known = hints.get(found.path)
        same = known is not None and known.content_hash == digest
        hint = _hint(body, digest, known.skip if same and known else None)
        before = live.get(found.path)
        if not must_extract(found.path) and found.path not in changes.renamed:
            if hint.skip is not None:
                changes.hints[found.path] = hint
                changes.skipped.append(Skipped(found.path, SkipReason(hint.skip[0]), hint.skip[1]))
                continue
            if before is not None and before.content_hash == digest:
                changes.hints[found.path] = hint
                changes.unchanged += 1
                continue
        yield Candidate(found.path, body.data, digest, hint, new=before is None)


def count_edited(root: Path, hints: Mapping[str, Hint]) -> int:
    """Count the files that no longer have the size and time that they were read with."""
    edited = 0
    for path, hint in hints.items():
        try:
            stat = os.lstat(root / path)
        except OSError:
            edited += 1
            continue
        same_time = abs(hint.mtime_ns) == stat.st_mtime_ns
        edited += not (same_time and stat.st_size == hint.size_bytes)
    return edited


def _hint(body: Body, digest: bytes, skip: tuple[str, str] | None) -> Hint:
    mtime_ns = -body.mtime_ns if is_racy(body.mtime_ns, time.time_ns()) else body.mtime_ns
    return Hint(body.size_bytes, mtime_ns, digest, skip, git_blob_id(body.data))
