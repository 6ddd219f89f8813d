"""Taking a prepared model directory in: checked against its manifest, then copied whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

from services.embed.directory import published_directory
from services.embed.manifest import MANIFEST_NAME, Manifest
from services.embed.verify import check_files, read_manifest


def install(source: Path, destination: Path) -> Manifest:
    """Copy the prepared model of ``source`` to ``destination``, and check the copy too.

    A destination that holds the same model stays as it is. Raises ``NotReady`` when the source was not prepared,
    ``DataLoss`` when a file is not what the manifest says, ``Conflict`` when the destination holds something else.
    """
    manifest = read_manifest(source)
    check_files(source, manifest)
    if (destination / MANIFEST_NAME).is_file() and read_manifest(destination).digest == manifest.digest:
        check_files(destination, manifest)
        return manifest
    with published_directory(destination) as temporary:
        for name in (MANIFEST_NAME, *manifest.files):
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, temporary / name)
        check_files(temporary, manifest)
    return manifest
