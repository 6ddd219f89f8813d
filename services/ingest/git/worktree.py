"""What a mounted checkout lacks of its repository, by looking at files alone: no git is run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from services.ingest.skips import Skipped, SkipReason

_MAX_BYTES = 1 << 20
_MAX_POINTER_BYTES = 8192


def missing_submodules(root: Path) -> list[Skipped]:
    """Return the submodules that ``.gitmodules`` names and nobody has checked out: their folders are empty."""
    modules = root / ".gitmodules"
    try:
        if modules.is_symlink() or not modules.is_file() or modules.stat().st_size > _MAX_BYTES:
            return []
        text = modules.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    detail = "a submodule that is not checked out: `git submodule update --init`, or add it as a source of its own"
    return [Skipped(f"{path}/", SkipReason.SUBMODULE, detail) for path in _paths(text) if _is_empty(root, path)]


def _paths(text: str) -> Iterator[str]:
    """Yield the values of ``path``: by lines, since the file is not ours and an expression could take for ever."""
    for line in text.split("\n"):
        key, _, value = line.partition("=")
        if key.strip().lower() == "path" and (path := value.strip().strip('"')):
            yield path


def is_shallow(root: Path) -> bool:
    """Tell whether the checkout is of a clone without its whole history."""
    return (_git_directory(root) / "shallow").is_file()


def _git_directory(root: Path) -> Path:
    """Return what holds a checkout's history: in a linked worktree or a submodule, ``.git`` is a file that names it."""
    own = _named(root / ".git", "gitdir: ")
    directory = root / ".git" if own is None else root / own
    shared = _named(directory / "commondir", "")
    return directory if shared is None else directory / shared


def _named(pointer: Path, mark: str) -> str | None:
    """Return the path in a file that says where something is; None when there is no such file."""
    try:
        if not pointer.is_file() or pointer.stat().st_size > _MAX_POINTER_BYTES:
            return None
        text = os.fsdecode(pointer.read_bytes()).rstrip("\n")
    except OSError:
        return None
    return text.removeprefix(mark) if text.startswith(mark) and "\0" not in text else None


def _is_empty(root: Path, path: str) -> bool:
    names = path.split("/")
    if any(name in ("", ".", "..") for name in names):
        return False
    try:
        with os.scandir(root / path) as entries:
            return next(entries, None) is None
    except OSError:
        return False
