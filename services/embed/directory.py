"""Model directories: what may be opened as one, and how one is written.

Nothing is ever written into a directory that exists: it may be a read-only mount, and others may be reading it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from pathlib import Path
from typing import BinaryIO

from services.core.errors import Conflict, InvalidArgument, NotFound, NotReady, UndercroftError
from services.embed.documents import decode_json

Document = Mapping[str, object]

# The longest tokenizer.json of the models that were tried has 33 MB.
MOST_DOCUMENT_BYTES = 256 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PARTIAL = re.compile(r"\..+\.[a-z0-9_]{8}\.partial")


def require_model_directory(directory: Path) -> Path:
    """Return ``directory`` when it is an absolute path of an existing directory.

    Anything else, a hub id above all, is refused before any library sees it: libraries would look it up.
    """
    if not directory.is_absolute():
        raise InvalidArgument(
            f"{str(directory)!r} is no absolute path of a model directory, and models are never fetched by their id.",
            remedy="Copy the model onto this machine and name its directory by an absolute path.",
            reason="MODEL_NOT_A_DIRECTORY",
        )
    if not directory.is_dir():
        raise NotFound(
            f"{directory} is not a directory.",
            remedy="Check the path; models are read from local directories only.",
            reason="MODEL_NOT_FOUND",
        )
    return directory


def refuse_foreign_code(directory: Path) -> None:
    """Refuse a directory that would make a library run its code or fetch another model."""
    if next(directory.rglob("adapter_config.json"), None) is not None:
        raise InvalidArgument(
            f"{directory} is an adapter: its adapter_config.json names a base model to fetch.",
            remedy="Merge the adapter into its base model first, and prepare the merged directory.",
            reason="MODEL_IS_ADAPTER",
        )
    scripts = sorted(path.name for path in directory.rglob("*.py"))
    if scripts:
        raise InvalidArgument(
            f"{directory} brings code of its own ({', '.join(scripts[:3])}), which is never run.",
            remedy="Choose a model that needs no remote code.",
            reason="MODEL_NEEDS_REMOTE_CODE",
        )
    for path in sorted([*directory.rglob("config.json"), *directory.rglob("tokenizer_config.json")]):
        if "auto_map" in read_document(path):
            raise InvalidArgument(
                f"{path} asks for remote code (auto_map), which is never run.",
                remedy="Choose a model that needs no remote code.",
                reason="MODEL_NEEDS_REMOTE_CODE",
            )


def read_document(path: Path) -> Document:
    """Read a JSON object; raise ``InvalidArgument`` when the file is anything else."""
    document = read_json(path)
    if not isinstance(document, dict):
        raise InvalidArgument(f"{path} is not a JSON object.", remedy="Copy the model directory again.")
    return document


def read_json(path: Path) -> object:
    """Read any JSON; raise ``InvalidArgument`` when the file is not readable as such."""
    try:
        return decode_json(read_text(path))
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}.", remedy="Copy the model directory again.") from error


def read_text(path: Path) -> str:
    """Read a document in UTF-8. Raises ``OSError`` unless it is a regular file of an ordinary size, ``ValueError``."""
    return read_bytes(path, most_bytes=MOST_DOCUMENT_BYTES).decode("utf-8")


def read_bytes(path: Path, *, most_bytes: int | None = None) -> bytes:
    """Read a file. Raises ``OSError`` unless it is a regular one, of ``most_bytes`` or fewer."""
    with open_regular(path) as stream:
        size_bytes = os.fstat(stream.fileno()).st_size
        if most_bytes is not None and size_bytes > most_bytes:
            raise OSError(errno.EFBIG, f"It has {size_bytes} bytes, more than {most_bytes}", str(path))
        return stream.read(size_bytes)


@contextlib.contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading; ``OSError`` for a FIFO or a device, which would be waited for without end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "It is no regular file", str(path))
        yield stream


@contextlib.contextmanager
def published_directory(destination: Path) -> Iterator[Path]:
    """Yield a fresh directory that becomes ``destination`` when the block ends well, and vanishes otherwise.

    Every file is flushed to disk before the rename and the parent directory after it, so ``destination`` is complete
    or absent, whatever happens. Raises ``Conflict`` when ``destination`` already holds something, ``NotReady`` when a
    file cannot be read or written.
    """
    temporary: Path | None = None
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        if destination.is_symlink() or (
            destination.exists() and (not destination.is_dir() or any(destination.iterdir()))
        ):
            raise _taken(destination)
        remove_abandoned(destination.parent)
        with partial_directory(destination) as temporary:
            yield temporary
            # mkdtemp is private to its owner; the service may run as another user.
            temporary.chmod(0o755)
            for directory, _, names in os.walk(temporary):
                for name in names:
                    _flush(Path(directory) / name)
                _flush(Path(directory))
            try:
                temporary.rename(destination)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise _taken(destination) from error
                raise
            _flush(destination.parent)
    except OSError as error:
        cause = str(error) if temporary else error.strerror or str(error)
        raise NotReady(
            f"{destination} cannot be made: {_without(temporary, destination, cause)}.",
            remedy="Make room on the volume, and check that the folders and files can be read and written.",
            reason="MODEL_NOT_WRITTEN",
        ) from error
    except UndercroftError as error:
        error.message = _without(temporary, destination, error.message)
        raise


def _without(temporary: Path | None, destination: Path, message: str) -> str:
    """Name the destination instead of a directory that is gone when the message is read."""
    return message if temporary is None else message.replace(str(temporary), str(destination))


@contextlib.contextmanager
def partial_directory(place: Path) -> Iterator[Path]:
    """Yield a fresh hidden directory beside ``place``, which is deleted at the end unless it was renamed.

    It is locked for as long as its owner lives, and ``remove_abandoned`` takes those that nobody holds.
    """
    while True:
        temporary = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".partial", dir=place.parent))
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(temporary, _DIRECTORY)
            # Another process may have taken it for an abandoned one before it was locked.
            if _lock(handle) is not _Lock.HELD and temporary.exists():
                break
            os.close(handle)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(handle)


def remove_abandoned(folder: Path) -> None:
    """Delete the partial directories of ``folder`` whose owners ended without doing so, by SIGKILL for one."""
    for path in folder.iterdir():
        if not _PARTIAL.fullmatch(path.name):
            continue
        try:
            handle = os.open(path, _DIRECTORY)
        except OSError:
            continue
        try:
            if _lock(handle) is _Lock.TAKEN:
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(handle)


class _Lock(Enum):
    """What came of locking; some network volumes have no locks."""

    TAKEN = auto()
    HELD = auto()
    IMPOSSIBLE = auto()


def _lock(handle: int) -> _Lock:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _Lock.HELD
    except OSError:
        return _Lock.IMPOSSIBLE
    return _Lock.TAKEN


def _taken(destination: Path) -> Conflict:
    return Conflict(
        f"{destination} already holds something, and nothing is overwritten.",
        remedy="Choose another destination, or move that directory away first.",
        reason="ALREADY_EXISTS",
    )


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
