"""What people name to be indexed, and the sources that it becomes."""

from __future__ import annotations

import os
import re
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from undercroft.client import Client
from undercroft.ingest.v1 import index_service_pb2, project_pb2, project_service_pb2

from services.core.errors import InvalidArgument

_PART_BYTES = 1 << 20
_URL = re.compile(r"[a-z][a-z+.-]*://", re.IGNORECASE)
_BUNDLE_MARKS = (b"# v2 git bundle", b"# v3 git bundle")
_COMPRESSED_MARKS = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")  # gzip, zstd
# Of a release that an archive is named by; the next one is the same source.
_VERSION = re.compile(r"(?<=.)[-_]v?\d+(?:\.\d+)+[\w.+-]*$", re.IGNORECASE)
_ENDINGS = re.compile(r"(\.(tar|tgz|gz|zst|tzst|zip|bundle|git|whl))+$", re.IGNORECASE)


class PlaceKind(StrEnum):
    FOLDER = "folder"
    ARCHIVE = "archive"
    GIT = "git"


@dataclass(frozen=True, slots=True)
class Place:
    """Something to index: an absolute path or a URL, and the id of the source that it is to be."""

    kind: PlaceKind
    address: str
    source_id: str
    # None: that which the source has, or the default branch of a new one.
    revision: str | None = None
    # Whether the id was given, and not made of the address.
    is_named: bool = False

    def is_of(self, source: project_pb2.Source) -> bool:
        """Tell whether a source has this place, whatever was sent or is checked out of it."""
        if self.kind is PlaceKind.FOLDER:
            # A repository that was named with a revision stays one when it is named without.
            return source.folder.path == self.address or (source.git.url == self.address and not self.is_named)
        has_id = source.name.rpartition("/")[2] == self.source_id
        if self.kind is PlaceKind.GIT:
            return source.git.url == self.address and (has_id or not self.is_named)
        return source.HasField("archive") and has_id


def places_of(named: Sequence[str], revision: str | None, source_id: str) -> list[Place]:
    """Tell what was named. InvalidArgument for what is none, and for an id for several of them."""
    if source_id and len(named) != 1:
        raise InvalidArgument("--source names one source.", remedy="Name one folder, archive or repository with it.")
    places = [_place(one, revision, source_id) for one in named]
    if revision is not None and not any(one.kind is PlaceKind.GIT for one in places):
        raise InvalidArgument("--revision is for git repositories.", remedy="Name one with it.")
    return places


def origin_of(source: project_pb2.Source) -> str:
    """Say where a source comes from, in a line."""
    match source.WhichOneof("origin"):
        case "git":
            at = f" at {source.git.commit[:12]}" if source.git.commit else ""
            return f"{source.git.url} {source.git.revision or 'default branch'}{at}"
        case "archive":
            return f"{source.archive.file_name} (sent)"
        case "wheel":
            return source.wheel.file + (" (dependency)" if source.managed else "")
        case _:
            return source.folder.path


def ensure_sources(client: Client, project: str, places: Sequence[Place], listed: Sequence[project_pb2.Source]) -> None:
    """Create the sources that are missing; send archives, and point sources at what is asked for now."""
    taken = {source.name.rpartition("/")[2] for source in listed}
    for place in places:
        there = next((source for source in listed if place.is_of(source)), None)
        if there is not None and place.kind is PlaceKind.FOLDER:
            continue
        if there is not None and place.kind is PlaceKind.GIT and place.revision in (None, there.git.revision):
            continue
        source = _source(client, project, place)
        if there is not None:
            source.name = there.name
            client.projects.UpdateSource(project_service_pb2.UpdateSourceRequest(source=source))
            continue
        source_id = next(one for one in _ids(place.source_id) if one not in taken)
        taken.add(source_id)
        client.projects.CreateSource(
            project_service_pb2.CreateSourceRequest(parent=f"projects/{project}", source_id=source_id, source=source)
        )


def _place(named: str, revision: str | None, source_id: str) -> Place:
    if _URL.match(named):
        slug = _slug(named.rstrip("/").rpartition("/")[2])
        return Place(PlaceKind.GIT, named, source_id or slug, revision, bool(source_id))
    path = Path(named)
    if not path.exists():
        raise InvalidArgument(f"{named} does not exist.", remedy="Check the path.")
    path = path.resolve()
    is_named = bool(source_id)
    source_id = source_id or _slug(path.name)
    if path.is_dir():
        is_bare = (path / "HEAD").is_file() and (path / "objects").is_dir() and not (path / ".git").exists()
        if is_bare or (revision is not None and (path / ".git").exists()):
            return Place(PlaceKind.GIT, str(path), source_id, revision, is_named)
        return Place(PlaceKind.FOLDER, str(path), source_id, is_named=is_named)
    with path.open("rb") as file:
        if file.read(len(_BUNDLE_MARKS[0])) in _BUNDLE_MARKS:
            return Place(PlaceKind.GIT, str(path), source_id, revision, is_named)
    if not _ENDINGS.search(path.name) and not _is_archive(path):
        raise InvalidArgument(
            f"{named} is no archive, and single files are not indexed.", remedy=f"Name its folder: {path.parent}"
        )
    slug = _slug(_VERSION.sub("", _ENDINGS.sub("", path.name)))
    return Place(PlaceKind.ARCHIVE, str(path), source_id if is_named else slug)


def _is_archive(path: Path) -> bool:
    with path.open("rb") as file:
        if file.read(4).startswith(_COMPRESSED_MARKS):
            return True
    return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)


def _source(client: Client, project: str, place: Place) -> project_pb2.Source:
    if place.kind is PlaceKind.FOLDER:
        return project_pb2.Source(folder=project_pb2.FolderOrigin(path=place.address))
    if place.kind is PlaceKind.GIT:
        return project_pb2.Source(git=project_pb2.GitOrigin(url=place.address, revision=place.revision or ""))
    sent = client.index.UploadArchive(_parts(project, Path(place.address)))
    return project_pb2.Source(archive=project_pb2.ArchiveOrigin(upload=sent.upload))


def _parts(project: str, path: Path) -> Iterator[index_service_pb2.UploadArchiveRequest]:
    yield index_service_pb2.UploadArchiveRequest(parent=f"projects/{project}", file_name=os.path.basename(path))
    with path.open("rb") as file:
        while block := file.read(_PART_BYTES):
            yield index_service_pb2.UploadArchiveRequest(data=block)


def _slug(name: str) -> str:
    """Make a resource id of the name of a folder, archive or repository."""
    slug = re.sub(r"[^a-z0-9._-]+", "-", _ENDINGS.sub("", name).lower()).strip("-._")[:63]
    return slug or "root"


def _ids(slug: str) -> Iterator[str]:
    yield slug
    for number in range(2, 1000):
        yield f"{slug[:58]}-{number}"
