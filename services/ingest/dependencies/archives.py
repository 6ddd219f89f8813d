"""Wheels and sdists as archives."""

from __future__ import annotations

from pathlib import Path

from services.core.errors import InvalidArgument
from services.ingest.archives.unpacking import Archive
from services.ingest.dependencies.distributions import SDIST_SUFFIXES, WHEEL_SUFFIX
from services.ingest.dependencies.layouts import SdistLayout, WheelLayout

_REMEDY = "Check where the file comes from, and put an undamaged copy into the wheel directory or remove it from there."


def distribution_archive(path: Path) -> Archive:
    """Return a wheel (``.whl``) or sdist (``.tar.gz``, ``.zip``) as an archive; InvalidArgument for another name.

    Paths of an sdist are relative to its one top folder. Of a wheel's ``.dist-info`` only ``METADATA`` is kept, as a
    file of the root; ``purelib`` and ``platlib`` of its ``.data`` folder go where an installer puts them.
    """
    is_wheel = path.name.endswith(WHEEL_SUFFIX)
    if not is_wheel and not path.name.endswith(SDIST_SUFFIXES):
        raise InvalidArgument(f"{path.name} is no wheel and no sdist.", remedy="Name a .whl, .tar.gz or .zip file.")
    return Archive(path, path.name, WheelLayout() if is_wheel else SdistLayout(), _REMEDY)
