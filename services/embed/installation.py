"""Taking a prepared model directory in: checked against its manifest, then copied whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

from services.core.errors import Conflict, DataLoss
from services.embed.directory import partial_directory, published_directory, require_model_directory
from services.embed.manifest import MANIFEST_NAME, Manifest
from services.embed.verify import check_files, read_manifest


def install(source: Path, destination: Path) -> tuple[Manifest, bool]:
    """Copy the prepared model of ``source`` to ``destination``, check the copy, and tell whether there was none.

    A destination that holds the same model stays as it is. Raises ``NotReady`` when the source was not prepared,
    ``DataLoss`` when a file is not what the manifest says, ``Conflict`` when the destination holds something else.
    """
    require_model_directory(source)
    manifest = read_manifest(source)
    check_files(source, manifest)
    if _holds(destination, manifest):
        return manifest, False
    try:
        with published_directory(destination) as temporary:
            for name in (MANIFEST_NAME, *manifest.files):
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, temporary / name)
            check_files(temporary, manifest)
    except Conflict:
        # Another installation of the same model may have been first.
        if not _holds(destination, manifest):
            raise
        return manifest, False
    return manifest, True


def manifest_of(destination: Path) -> Manifest | None:
    """Return the manifest of a directory that may be taken; None when it has none, or none that can be read."""
    if not (destination / MANIFEST_NAME).is_file():
        return None
    try:
        return read_manifest(destination)
    except DataLoss:
        return None


def _holds(destination: Path, manifest: Manifest) -> bool:
    found = manifest_of(destination)
    if found is None or found.digest != manifest.digest:
        return False
    check_files(destination, manifest)
    return True


def remove(directory: Path) -> None:
    """Delete a model directory: out of sight first, so that nobody opens half of it. NotFound when there is none."""
    require_model_directory(directory)
    with partial_directory(directory) as trash:
        directory.rename(trash / directory.name)
