"""What is in an image, read from its OCI layout alone: packages, distributions, models, and sizes."""

from __future__ import annotations

import email.parser
import fnmatch
import hashlib
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

_STATUS = "var/lib/dpkg/status.d/"
_RELEASE = "usr/lib/os-release"
_CLASSIFIER = "License :: "


@dataclass(frozen=True, slots=True)
class OsPackage:
    """A Debian package, as its stanza says."""

    name: str
    version: str
    architecture: str
    source: str
    homepage: str
    maintainer: str


@dataclass(frozen=True, slots=True)
class Distribution:
    """A Python distribution; ``bundled`` are native libraries that its wheel carries, SHA-256 by path."""

    name: str
    version: str
    licence: str
    homepage: str
    bundled: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Model:
    """A prepared model; ``digest`` is the SHA-256 of its manifest."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class Contents:
    """One image. Sizes in bytes: of the files, and of the layers as they are sent."""

    digest: str
    config: Mapping[str, object]
    os_release: Mapping[str, str]
    os_packages: tuple[OsPackage, ...]
    distributions: tuple[Distribution, ...]
    models: tuple[Model, ...]
    paths: frozenset[str]
    size_bytes: int
    compressed_bytes: int


def read_contents(layout: Path) -> Contents:
    """Read an image from a folder in the OCI image layout that holds one image. Every blob's digest is checked."""
    index = json.loads((layout / "index.json").read_text("utf-8"))
    digest = index["manifests"][0]["digest"]
    manifest = json.loads(_blob(layout, digest))
    config = json.loads(_blob(layout, manifest["config"]["digest"]))
    kept: dict[str, bytes] = {}
    native: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for layer in manifest["layers"]:
        _check_blob(layout, layer["digest"])
        with tarfile.open(_blob_path(layout, layer["digest"])) as tar:
            for member in tar:
                _read_member(tar, member, kept, native, sizes)
    return Contents(
        digest=digest,
        config=config,
        os_release=_release(kept.get(_RELEASE, b"")),
        os_packages=tuple(_os_package(kept[path]) for path in sorted(kept) if path.startswith(_STATUS)),
        distributions=tuple(
            _distribution(kept, path, native) for path in sorted(kept) if path.endswith(".dist-info/METADATA")
        ),
        models=tuple(
            Model(PurePosixPath(path).parent.name, hashlib.sha256(kept[path]).hexdigest())
            for path in sorted(kept)
            if path.endswith("/manifest.json")
        ),
        paths=frozenset(sizes),
        size_bytes=sum(sizes.values()),
        compressed_bytes=sum(layer["size"] for layer in manifest["layers"]),
    )


def _read_member(
    tar: tarfile.TarFile,
    member: tarfile.TarInfo,
    kept: dict[str, bytes],
    native: dict[str, str],
    sizes: dict[str, int],
) -> None:
    path = member.name.removeprefix("./")
    if PurePosixPath(path).name.startswith(".wh."):
        raise ValueError(f"{path}: a layer deletes a file of another one, which still is in the image")
    if member.isdir():
        return
    sizes[path] = member.size
    is_wanted = path.startswith(_STATUS) or path == _RELEASE
    if is_wanted or path.endswith((".dist-info/METADATA", ".dist-info/RECORD", "/manifest.json")):
        file = tar.extractfile(member)
        kept[path] = file.read() if file else b""
    elif fnmatch.fnmatchcase(path, "*.libs/*.so*") and member.isreg():
        file = tar.extractfile(member)
        native[path] = hashlib.sha256(file.read() if file else b"").hexdigest()


def _blob_path(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def _blob(layout: Path, digest: str) -> bytes:
    _check_blob(layout, digest)
    return _blob_path(layout, digest).read_bytes()


def _check_blob(layout: Path, digest: str) -> None:
    with _blob_path(layout, digest).open("rb") as file:
        if f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" != digest:
            raise ValueError(f"{_blob_path(layout, digest)} is damaged")


def _release(content: bytes) -> dict[str, str]:
    lines = (line.partition("=") for line in content.decode().splitlines() if "=" in line)
    return {name: value.strip('"') for name, _, value in lines}


def _os_package(stanza: bytes) -> OsPackage:
    fields = email.parser.BytesHeaderParser().parsebytes(stanza)
    name = str(fields["Package"])
    return OsPackage(
        name=name,
        version=str(fields["Version"]),
        architecture=str(fields["Architecture"]),
        source=str(fields.get("Source", name)).split(" ")[0],
        homepage=str(fields.get("Homepage", "")),
        maintainer=str(fields.get("Maintainer", "")),
    )


def _distribution(kept: Mapping[str, bytes], path: str, native: Mapping[str, str]) -> Distribution:
    fields = email.parser.BytesHeaderParser().parsebytes(kept[path])
    classifiers = [str(one) for one in fields.get_all("Classifier", ()) if str(one).startswith(_CLASSIFIER)]
    stated = str(fields.get("License-Expression") or fields.get("License") or "").strip()
    # Some put a whole licence text where its name belongs.
    if not stated or "\n" in stated or len(stated) > 100:
        stated = "; ".join(one.rpartition(" :: ")[2] for one in classifiers)
    record = kept.get(path.replace("METADATA", "RECORD"), b"").decode()
    site = path.rpartition("/")[0].rpartition("/")[0]
    own = {row.partition(",")[0] for row in record.splitlines()}
    return Distribution(
        name=str(fields["Name"]),
        version=str(fields["Version"]),
        licence=stated,
        homepage=str(fields.get("Home-page") or ""),
        bundled={name: native[f"{site}/{name}"] for name in sorted(own) if f"{site}/{name}" in native},
    )
