"""Model directories: what may be opened as one, and how one is written.

Nothing is ever written into a directory that exists: it may be a read-only mount, and others may be reading it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from services.core.errors import Conflict, InvalidArgument, NotFound

Document = Mapping[str, object]


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
        document: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}.", remedy="Copy the model directory again.") from error
    return document


@contextlib.contextmanager
def published_directory(destination: Path) -> Iterator[Path]:
    """Yield a fresh directory that becomes ``destination`` when the block ends well, and vanishes otherwise.

    Every file is flushed to disk before the rename and the parent directory after it, so ``destination`` is complete
    or absent, whatever happens. Raises ``Conflict`` when ``destination`` already holds something.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise _taken(destination)
    temporary = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", suffix=".partial", dir=destination.parent))
    try:
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
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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
