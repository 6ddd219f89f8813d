"""What a source holds: one walk that stats and never reads a file body.

Invariants: the order is that of the paths' bytes; every entry below the root is found, or skipped with its reason, or
lies below a folder that is skipped with its reason; no link is followed, so that nothing outside the root is ever seen
and no cycle exists. A link whose target lies inside the root is skipped as well, because the target is indexed under
its own path.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from services.core.errors import InvalidArgument, NotFound, PermissionDenied
from services.ingest.documents import is_document
from services.ingest.exclusions import file_exclusion, folder_exclusion
from services.ingest.gitignore import IgnoreRules
from services.ingest.media import is_medium, transcript_hint
from services.ingest.skips import Skipped, SkipReason

DEFAULT_MAX_FILE_BYTES = 2 * 1024 * 1024
DEFAULT_MAX_DOCUMENT_BYTES = 32 * 1024 * 1024
_MAX_DEPTH = 200
# Of one ignore file, and of all in a source: what compiling them costs is not bounded otherwise.
_MAX_RULES_BYTES = 128 * 1024
_MAX_ALL_RULES_BYTES = 1024 * 1024
_READ_ATTEMPTS = 3
# What a mount that is away for a moment, or a process short of something, answers.
_PASSING_ERRORS = frozenset(
    {
        errno.EIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOTCONN,
        errno.ECONNRESET,
        errno.EREMOTEIO,
        errno.EAGAIN,
        errno.EBUSY,
        errno.ENOMEM,
        errno.ENFILE,
        errno.EMFILE,
    }
)
_CACHEDIR_SIGNATURE = b"Signature: 8a477f597d28d172789f06886806bc55"


@dataclass(frozen=True, slots=True)
class SizeCaps:
    """Sizes beyond which files are skipped. The text of a document is a small part of its bytes."""

    file_bytes: int = DEFAULT_MAX_FILE_BYTES
    document_bytes: int = DEFAULT_MAX_DOCUMENT_BYTES

    def of(self, path: str) -> int:
        """Return the size beyond which a file of this name is skipped."""
        return self.document_bytes if is_document(path) else self.file_bytes


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    """What a project may change about discovery; the exclusion floor and the secret deny-list are not among it."""

    caps: SizeCaps = SizeCaps()
    honour_gitignore: bool = True
    ignore: tuple[str, ...] = ()  # gitignore patterns relative to the root; they win over every ignore file


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file to classify. ``path`` is relative to the root, with ``/`` between names, and valid UTF-8."""

    path: str
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Body:
    """The bytes of a file, and the size and time that they belong to."""

    data: bytes
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class _Folder:
    absolute: str
    path: str  # relative to the root, ending with "/" except for the root, which is ""
    name: str
    path_bytes: bytes
    depth: int
    rules: tuple[tuple[IgnoreRules, int], ...]  # strongest first, each with the length of its folder's path


@dataclass(frozen=True, slots=True)
class _DataDirectory:
    """The product's own state, recognised by its path and by its identity (it may be mounted at two places)."""

    absolute: str
    device: int
    inode: int

    @classmethod
    def at(cls, path: Path) -> _DataDirectory | None:
        try:
            real = path.resolve(strict=True)
            status = real.stat()
        except OSError:
            return None
        return cls(str(real), status.st_dev, status.st_ino)

    def is_path(self, path: Path) -> bool:
        status = path.stat()
        return (status.st_dev, status.st_ino) == (self.device, self.inode)

    def is_entry(self, entry: os.DirEntry[str]) -> bool:
        if entry.path == self.absolute:
            return True
        if entry.inode() != self.inode:  # free: scandir brings it
            return False
        try:
            return entry.stat(follow_symlinks=False).st_dev == self.device
        except OSError:
            return False


@dataclass(slots=True)
class _RulesRead:
    """What the ignore files of a walk have come to so far."""

    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Walk:
    root: str
    settings: DiscoverySettings
    data_dir: _DataDirectory | None
    rules: _RulesRead = field(default_factory=_RulesRead)


def discover(root: Path, settings: DiscoverySettings, *, data_dir: Path | None = None) -> Iterator[Found | Skipped]:
    """Walk a source in the byte order of its paths.

    ``data_dir`` is the product's own state, which is never entered. Ignore files above the root, and the ignore file of
    the user who runs the service, do not count: the result depends on the source alone.

    Raises ``NotFound``, ``InvalidArgument`` or ``PermissionDenied`` at once if the root itself cannot be listed.
    """
    real = _real_root(root)
    own = _DataDirectory.at(data_dir) if data_dir is not None else None
    if own is not None and own.is_path(real):
        raise InvalidArgument(
            f"{root} is the data directory of the appliance.", remedy="Name the folder of a source instead."
        )
    return _walk(_Walk(str(real), settings, own))


def read(root: Path, path: str, *, max_bytes: int = DEFAULT_MAX_FILE_BYTES) -> Body | Skipped:
    """Read a discovered file, refusing whatever has become of it since that is no plain file inside the root.

    No component of ``path`` is followed if it is a link. A file that changes while it is read is read again; the size
    and time returned are those of the bytes returned.
    """
    try:
        descriptor = _open_beneath(root, path)
    except FileNotFoundError:
        return Skipped(path, SkipReason.VANISHED, "deleted since the scan")
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            return Skipped(path, SkipReason.LINK, "replaced by a link since the scan")
        if error.errno == errno.ENXIO:
            return Skipped(path, SkipReason.SPECIAL, "not a regular file")
        return Skipped(path, _reason(error), _cause(error))
    try:
        return _read_stable(descriptor, path, max_bytes)
    except OSError as error:
        return Skipped(path, _reason(error), _cause(error))
    finally:
        os.close(descriptor)


def _real_root(root: Path) -> Path:
    try:
        real = root.resolve(strict=True)
        with os.scandir(real):
            return real
    except FileNotFoundError as error:
        raise NotFound(f"{root} does not exist.", remedy="Check the path, and the mount if there is one.") from error
    except NotADirectoryError as error:
        raise InvalidArgument(f"{root} is not a folder.", remedy="Name the folder that holds the source.") from error
    except PermissionError as error:
        raise PermissionDenied(f"{root} may not be listed.", remedy="Give the service read access to it.") from error
    except (OSError, RuntimeError) as error:
        raise InvalidArgument(f"{root} cannot be listed: {error}.", remedy="Check the path and the mount.") from error


def _walk(walk: _Walk) -> Iterator[Found | Skipped]:
    rules: tuple[tuple[IgnoreRules, int], ...] = ()
    if walk.settings.ignore:
        patterns = "\n".join(walk.settings.ignore).encode("utf-8", "surrogateescape")
        rules = ((IgnoreRules(patterns, origin="ignore pattern"), 0),)
    pending = [_list(_Folder(walk.root, "", "", b"", 0, rules), walk)]
    while pending:
        for item in pending[-1]:
            if isinstance(item, _Folder):
                pending.append(_list(item, walk))
                break
            yield item
        else:
            pending.pop()


def _list(folder: _Folder, walk: _Walk) -> Iterator[Found | Skipped | _Folder]:
    """List one folder: its files, what is skipped, and the folders to enter, in byte order."""
    try:
        with os.scandir(folder.absolute) as scan:
            entries = {entry.name: entry for entry in scan}
    except OSError as error:
        yield Skipped(_printable(folder.path), _reason(error), _cause(error))
        return
    if folder.depth:
        whole = _whole_folder_exclusion(folder, entries)
        if whole is not None:
            yield Skipped(_printable(folder.path), *whole)
            return
    if folder.depth > _MAX_DEPTH:
        yield Skipped(_printable(folder.path), SkipReason.TOO_DEEP, f"more than {_MAX_DEPTH} folders deep")
        return
    rules = folder.rules
    problems: dict[str, Skipped] = {}
    if walk.settings.honour_gitignore:
        own, problems = _own_rules(folder, entries, walk)
        # The project's own patterns stay in front; a deeper ignore file wins over a higher one.
        first = 1 if walk.settings.ignore else 0
        rules = (*rules[:first], *own, *rules[first:])

    ordered: list[tuple[bytes, os.DirEntry[str], bool]] = []
    for name, entry in entries.items():
        is_folder = entry.is_dir(follow_symlinks=False)
        name_bytes = os.fsencode(name)
        ordered.append((name_bytes + b"/" if is_folder else name_bytes, entry, is_folder))
    ordered.sort(key=lambda item: item[0])

    for key, entry, is_folder in ordered:
        name_bytes = key[:-1] if is_folder else key
        found = _classify(entry, name_bytes, folder, rules, walk, is_folder=is_folder)
        if isinstance(found, Skipped) and found.reason is SkipReason.BINARY and is_medium(entry.name):
            found = replace(found, detail=f"{found.detail}; {_printable(transcript_hint(entry.name, entries))}")
        yield found
        if entry.name in problems:
            yield problems[entry.name]


def _classify(
    entry: os.DirEntry[str],
    name_bytes: bytes,
    folder: _Folder,
    rules: tuple[tuple[IgnoreRules, int], ...],
    walk: _Walk,
    *,
    is_folder: bool,
) -> Found | Skipped | _Folder:
    name = entry.name
    path = folder.path + name + ("/" if is_folder else "")
    path_bytes = folder.path_bytes + name_bytes
    excluded = folder_exclusion(name) if is_folder else file_exclusion(name, folder.name)
    if excluded is not None:
        return Skipped(_printable(path), *excluded)
    rule = _ignoring_rule(rules, name_bytes, path_bytes, is_folder=is_folder)
    if rule is not None:
        return Skipped(_printable(path), SkipReason.IGNORED, rule)
    if not is_folder:
        return _file(entry, path, walk)
    if walk.data_dir is not None and walk.data_dir.is_entry(entry):
        return Skipped(_printable(path), SkipReason.DATA_DIRECTORY, "the appliance's own state")
    return _Folder(entry.path, path, name, path_bytes + b"/", folder.depth + 1, rules)


def _file(entry: os.DirEntry[str], path: str, walk: _Walk) -> Found | Skipped:
    if entry.is_symlink():
        return _link(entry.path, path, walk.root)
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return Skipped(_printable(path), SkipReason.VANISHED, "deleted during the scan")
    except OSError as error:
        return Skipped(_printable(path), _reason(error), _cause(error))
    if not stat.S_ISREG(status.st_mode):
        return Skipped(_printable(path), SkipReason.SPECIAL, "not a regular file")
    cap = walk.settings.caps.of(path)
    if status.st_size > cap:
        detail = f"{status.st_size:,} bytes, the cap is {cap:,}"
        return Skipped(_printable(path), SkipReason.TOO_LARGE, detail)
    if not path.isascii() and _printable(path) != path:
        return Skipped(_printable(path), SkipReason.NAME_NOT_UTF8, "the name is not valid UTF-8")
    return Found(path, status.st_size, status.st_mtime_ns)


def _link(absolute: str, path: str, root: str) -> Skipped:
    try:
        target = os.path.realpath(absolute, strict=True)
    except (OSError, RuntimeError):
        return Skipped(_printable(path), SkipReason.LINK_BROKEN, "a link to nothing, or to itself")
    if target != root and not target.startswith(root.rstrip("/") + "/"):
        return Skipped(_printable(path), SkipReason.LINK_OUTSIDE, "a link out of the source")
    return Skipped(_printable(path), SkipReason.LINK, f"a link to {_printable(os.path.relpath(target, root))}")


def _whole_folder_exclusion(folder: _Folder, entries: dict[str, os.DirEntry[str]]) -> tuple[SkipReason, str] | None:
    """Say why nothing of a folder is indexed, judged by what it holds."""
    if "pyvenv.cfg" in entries or ("conda-meta" in entries and "bin" in entries):
        return SkipReason.VIRTUAL_ENVIRONMENT, "an installed environment, not a source"
    if "CACHEDIR.TAG" in entries:
        try:
            tag = _read_rules(os.path.join(folder.absolute, "CACHEDIR.TAG"))
        except OSError:
            tag = b""
        if tag.startswith(_CACHEDIR_SIGNATURE):
            return SkipReason.CACHE_DIRECTORY, "tagged as a cache by CACHEDIR.TAG"
    if folder.name == "build" and ("lib" in entries or any(name.startswith(("bdist.", "lib.")) for name in entries)):
        siblings = os.path.dirname(folder.absolute)
        if any(os.path.lexists(os.path.join(siblings, name)) for name in ("setup.py", "setup.cfg", "pyproject.toml")):
            return SkipReason.EXCLUDED, "a Python build directory: copies of the sources beside it"
    return None


def _own_rules(
    folder: _Folder, entries: dict[str, os.DirEntry[str]], walk: _Walk
) -> tuple[list[tuple[IgnoreRules, int]], dict[str, Skipped]]:
    """Read the ignore rules that a folder brings, the stronger first; what cannot be read, by the entry's name."""
    places = []
    if ".gitignore" in entries:
        places.append(".gitignore")
    if ".git" in entries and entries[".git"].is_dir(follow_symlinks=False):
        places.append(".git/info/exclude")
    own: list[tuple[IgnoreRules, int]] = []
    problems: dict[str, Skipped] = {}
    for place in places:
        try:
            patterns = _read_rules(os.path.join(folder.absolute, place))
            if walk.rules.size_bytes + len(patterns) > _MAX_ALL_RULES_BYTES:
                raise OSError(errno.EFBIG, f"all ignore files have more than {_MAX_ALL_RULES_BYTES:,} bytes")
            walk.rules.size_bytes += len(patterns)
            rules = IgnoreRules(patterns, origin=_printable(folder.path + place))
        except FileNotFoundError:
            continue
        except OSError as error:
            problem = Skipped(_printable(folder.path + place), SkipReason.IGNORE_RULES_UNREADABLE, _cause(error))
            problems[place.partition("/")[0]] = problem
            continue
        if rules:
            own.append((rules, len(folder.path_bytes)))
    return own, problems


def _read_rules(absolute: str) -> bytes:
    descriptor = os.open(absolute, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        data = os.read(descriptor, _MAX_RULES_BYTES + 1)
        if len(data) > _MAX_RULES_BYTES:
            raise OSError(errno.EFBIG, f"more than {_MAX_RULES_BYTES:,} bytes")
        return data
    finally:
        os.close(descriptor)


def _ignoring_rule(
    rules: tuple[tuple[IgnoreRules, int], ...], name: bytes, path: bytes, *, is_folder: bool
) -> str | None:
    for level, prefix in rules:
        verdict = level.verdict(name, path[prefix:], is_folder=is_folder)
        if verdict is not None:
            ignored, source = verdict
            return source if ignored else None
    return None


def _open_beneath(root: Path, path: str) -> int:
    *folders, name = path.split("/")
    if name in ("", ".", "..") or any(folder in ("", ".", "..") for folder in folders):
        raise OSError(errno.EINVAL, "not a path below the root")
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            deeper = os.open(folder, flags, dir_fd=directory)
            os.close(directory)
            directory = deeper
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # NONBLOCK: a fifo must not hang the run
        return os.open(name, flags, dir_fd=directory)
    finally:
        os.close(directory)


def _read_stable(descriptor: int, path: str, max_bytes: int) -> Body | Skipped:
    for _ in range(_READ_ATTEMPTS):
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            return Skipped(path, SkipReason.SPECIAL, "not a regular file")
        if before.st_size > max_bytes:
            return Skipped(path, SkipReason.TOO_LARGE, f"{before.st_size:,} bytes, the cap is {max_bytes:,}")
        os.lseek(descriptor, 0, os.SEEK_SET)
        blocks: list[bytes] = []
        size = 0
        while size <= max_bytes and (block := os.read(descriptor, 1 << 20)):
            blocks.append(block)
            size += len(block)
        after = os.fstat(descriptor)
        if size == after.st_size and (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size):
            return Body(b"".join(blocks), after.st_size, after.st_mtime_ns)
    return Skipped(
        path, SkipReason.UNSTABLE, f"changed during each of {_READ_ATTEMPTS} reads; the next run tries again"
    )


def _printable(path: str) -> str:
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")


def _reason(error: OSError) -> SkipReason:
    return SkipReason.UNREACHABLE if error.errno in _PASSING_ERRORS else SkipReason.UNREADABLE


def _cause(error: OSError) -> str:
    return error.strerror or type(error).__name__
