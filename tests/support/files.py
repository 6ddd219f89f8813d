"""Folders of text files for tests."""

from __future__ import annotations

from pathlib import Path


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write files by their paths below a folder, and return the folder."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return folder
