"""What is in an image, read from its OCI layout alone: packages, distributions, models, and sizes."""

from __future__ import annotations

import csv
import email.parser
import hashlib
import json
import re
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ops.images.archives import sha256_of
from ops.images.components import Component, read_components
from ops.images.elf import MAGIC
from ops.images.licences import debian_licences
from services.core.errors import DataLoss

_STATUS = "var/lib/dpkg/status.d/"
_RELEASE = "usr/lib/os-release"
_DOCS = "usr/share/doc"
_SITE = re.compile(r"(?:.*/)?(?:site|dist)-packages/")
_MODEL = re.compile(r"(?P<folder>(?:.*/)?(?P<name>[^/]+))/manifest\.json")
# The head of a model card (a README with YAML before its text), and what it says of the licence.
_CARD_LICENCE = re.compile(r"\A---\n(?:(?!---$).*\n)*?license:[ \t]*['\"]?(?P<licence>[\w.+-]+)", re.MULTILINE)
_CLASSIFIER = "License :: "
_AGAIN = "Build it again: `make images`."


@dataclass(frozen=True, slots=True)
class OsPackage:
    """A Debian package, as its stanza says; ``licences`` are the short names of its machine-readable copyright file."""

    name: str
    version: str
    architecture: str
    source: str
    licences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A Python distribution.

    ``bundled`` are the native libraries that its wheel carries, SHA-256 by path; ``components`` are what its own bills
    of materials name.
    """

    name: str
    version: str
    licence: str
    bundled: Mapping[str, str] = field(default_factory=dict)
    components: tuple[Component, ...] = ()


@dataclass(frozen=True, slots=True)
class Model:
    """A prepared model; ``digest`` is its identity as users see it, ``licence`` what its model card says."""

    name: str
    digest: str
    manifest_sha256: str
    licence: str


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


@dataclass
class _Found:
    """What is of interest in the layers: files, links and native libraries by path, and sizes of all files."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    native: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)


def read_contents(layout: Path) -> Contents:
    """Read an image from a folder in the OCI image layout that holds one image. Every blob's digest is checked.

    Raises ``DataLoss`` for a layout that is not whole.
    """
    try:
        return _read(layout)
    except (OSError, ValueError, LookupError, TypeError, tarfile.TarError) as error:
        raise DataLoss(f"{layout} is not one whole image: {error}.", remedy=_AGAIN, reason="IMAGE_DAMAGED") from error


def _read(layout: Path) -> Contents:
    index = json.loads((layout / "index.json").read_text("utf-8"))
    digest = index["manifests"][0]["digest"]
    manifest = json.loads(_blob(layout, digest))
    config = json.loads(_blob(layout, manifest["config"]["digest"]))
    found = _Found()
    for layer in manifest["layers"]:
        _check_blob(layout, layer["digest"])
        with tarfile.open(_blob_path(layout, layer["digest"])) as tar:
            for member in tar:
                _read_member(tar, member, found)
    files = found.files
    distributions = [_distribution(found, path) for path in sorted(files) if path.endswith(".dist-info/METADATA")]
    _check_owned(found, distributions)
    return Contents(
        digest=digest,
        config=config,
        os_release=_release(files.get(_RELEASE, b"")),
        os_packages=tuple(_os_package(found, path) for path in sorted(files) if path.startswith(_STATUS)),
        distributions=tuple(one for _, one in distributions),
        models=tuple(_model(files, match) for match in map(_MODEL.fullmatch, sorted(files)) if match),
        paths=frozenset(found.sizes),
        size_bytes=sum(found.sizes.values()),
        compressed_bytes=sum(layer["size"] for layer in manifest["layers"]),
    )


def _read_member(tar: tarfile.TarFile, member: tarfile.TarInfo, found: _Found) -> None:
    path = member.name.removeprefix("./")
    if PurePosixPath(path).name.startswith(".wh."):
        raise ValueError(f"{path}: a layer deletes a file of another one, which still is in the image")
    if member.isdir():
        return
    found.sizes[path] = member.size
    if member.issym():
        found.links[path] = member.linkname
    file = tar.extractfile(member) if member.isreg() else None
    if file is None:
        return
    if _is_read(path):
        found.files[path] = file.read()
    elif _SITE.match(path) and (head := file.read(len(MAGIC))) == MAGIC:
        found.native[path] = hashlib.sha256(head + file.read()).hexdigest()


def _is_read(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return (
        path.startswith(_STATUS)
        or path == _RELEASE
        or (path.startswith(f"{_DOCS}/") and name == "copyright")
        or (folder.endswith(".dist-info") and name in {"METADATA", "RECORD"})
        or (folder.endswith(".dist-info/sboms") and name.endswith(".json"))
        or (not _SITE.match(path) and name in {"manifest.json", "README.md"})
    )


def _check_owned(found: _Found, distributions: Iterable[tuple[str, Distribution]]) -> None:
    owned = {f"{site}{name}" for site, one in distributions for name in one.bundled}
    if strangers := sorted(found.native.keys() - owned):
        raise ValueError(f"no distribution has {', '.join(strangers[:3])}")


def _blob_path(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def _blob(layout: Path, digest: str) -> bytes:
    _check_blob(layout, digest)
    return _blob_path(layout, digest).read_bytes()


def _check_blob(layout: Path, digest: str) -> None:
    if f"sha256:{sha256_of(_blob_path(layout, digest))}" != digest:
        raise ValueError(f"{_blob_path(layout, digest).name} in its blobs is damaged")


def _release(content: bytes) -> dict[str, str]:
    lines = (line.partition("=") for line in content.decode().splitlines() if "=" in line)
    return {name: value.strip('"') for name, _, value in lines}


def _os_package(found: _Found, path: str) -> OsPackage:
    fields = email.parser.BytesHeaderParser().parsebytes(found.files[path])
    name = str(fields["Package"])
    return OsPackage(
        name=name,
        version=str(fields["Version"]),
        architecture=str(fields["Architecture"]),
        source=str(fields.get("Source", name)).split(" ")[0],
        licences=debian_licences(_copyright(found, name).decode(errors="replace")),
    )


def _copyright(found: _Found, package: str) -> bytes:
    """Return the copyright file of a package, which may be that of another one that it links to."""
    folder = found.links.get(f"{_DOCS}/{package}", package).rstrip("/").rpartition("/")[2]
    path = f"{_DOCS}/{folder}/copyright"
    if target := found.links.get(path):
        path = f"{_DOCS}/{PurePosixPath(target).parent.name}/copyright"
    return found.files.get(path, b"")


def _distribution(found: _Found, path: str) -> tuple[str, Distribution]:
    """Return where a distribution is installed, and what it is."""
    fields = email.parser.BytesHeaderParser().parsebytes(found.files[path])
    classifiers = [str(one) for one in fields.get_all("Classifier", ()) if str(one).startswith(_CLASSIFIER)]
    stated = str(fields.get("License-Expression") or fields.get("License") or "").strip()
    # Some put a whole licence text where its name belongs.
    if not stated or "\n" in stated or len(stated) > 100:
        stated = "; ".join(one.rpartition(" :: ")[2] for one in classifiers)
    folder = path.rpartition("/")[0]
    site = folder[: folder.rindex("/") + 1]
    record = found.files.get(f"{folder}/RECORD", b"").decode()
    own = {row[0] for row in csv.reader(record.splitlines()) if row}
    name = str(fields["Name"])
    bills = [bill for bill in sorted(found.files) if bill.startswith(f"{folder}/sboms/")]
    components = [one for bill in bills for one in read_components(bill, found.files[bill], name)]
    return site, Distribution(
        name=name,
        version=str(fields["Version"]),
        licence=stated,
        bundled={one: found.native[f"{site}{one}"] for one in sorted(own) if f"{site}{one}" in found.native},
        components=tuple(sorted(set(components), key=lambda one: (one.name, one.version, one.purl, one.licence))),
    )


def _model(files: Mapping[str, bytes], match: re.Match[str]) -> Model:
    content = files[match[0]]
    card = _CARD_LICENCE.match(files.get(f"{match['folder']}/README.md", b"").decode(errors="replace"))
    return Model(
        name=match["name"],
        digest=str(json.loads(content)["digest"]),
        manifest_sha256=hashlib.sha256(content).hexdigest(),
        licence=card["licence"] if card else "",
    )
