"""Taking a prepared model directory in: checked against its manifest, then copied whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from services.embed.directory import published_directory, require_model_directory
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
    if (destination / MANIFEST_NAME).is_file() and read_manifest(destination).digest == manifest.digest:
        check_files(destination, manifest)
        return manifest, False
    with published_directory(destination) as temporary:
        for name in (MANIFEST_NAME, *manifest.files):
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, temporary / name)
        check_files(temporary, manifest)
    return manifest, True


def remove(directory: Path) -> None:
    """Delete a model directory: out of sight first, so that nobody opens half of it. NotFound when there is none."""
    require_model_directory(directory)
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}.", dir=directory.parent) as trash:
        directory.rename(Path(trash) / directory.name)
