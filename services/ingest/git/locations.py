"""Where a repository is: a URL of a host that the service may reach, or a path that it can read."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from services.core.errors import InvalidArgument, NotFound, PermissionDenied

SCHEMES = ("https", "http", "ssh", "git")
_MAX_CHARS = 2000
_BUNDLE_MARKS = (b"# v2 git bundle\n", b"# v3 git bundle\n")
# What git itself takes as the name of a ref, and no option.
_REVISION = re.compile(r"[^\s~^:?*\[\\\x00-\x20\x7f-]" r"[^\s~^:?*\[\\\x00-\x20\x7f]{0,254}")


class LocationKind(StrEnum):
    URL = "url"
    REPOSITORY = "repository"  # a folder: a work tree with its .git, or a bare repository
    BUNDLE = "bundle"  # a file


@dataclass(frozen=True, slots=True)
class Location:
    """``url`` is what git is given: a URL, or a resolved absolute path."""

    kind: LocationKind
    url: str


def locate(url: str, hosts: Collection[str]) -> Location:
    """Tell what a URL or path is.

    Raises ``InvalidArgument`` for what is neither, ``PermissionDenied`` for a URL of a host that is not among
    ``hosts``, and ``NotFound`` for a path where there is no repository or bundle.
    """
    if not url or len(url) > _MAX_CHARS or not url.isprintable():
        raise _no_location(url)
    if url.startswith("/"):
        return _local(Path(url))
    parts = _split(url)
    if parts is None or parts[0] not in SCHEMES:
        raise _no_location(url)
    host = parts[1]
    if host not in {one.lower() for one in hosts}:
        raise PermissionDenied(
            f"The ingest service is not configured to reach {host}.",
            remedy="Have the host added to UNDERCROFT_GIT_HOSTS, or mount the repository or a bundle of it.",
            reason="GIT_HOST_NOT_CONFIGURED",
            metadata={"host": host},
        )
    return Location(LocationKind.URL, url)


def check_revision(revision: str) -> str:
    """Return the name of a branch, tag or commit if it can be one; empty for the default branch."""
    bad = ".." in revision or "@{" in revision or revision.endswith((".", "/", ".lock"))
    if revision and (bad or not _REVISION.fullmatch(revision)):
        raise InvalidArgument(
            f"{revision[:80]!r} is no name of a branch, tag or commit.",
            remedy="Name a branch, a tag or a full commit id; nothing for the default branch.",
            reason="GIT_REVISION_INVALID",
        )
    return revision


def _split(url: str) -> tuple[str, str] | None:
    """Return scheme and host of a URL; None for what is none, ``ext::`` and ``user@host:path`` among it."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        _ = parts.port
    except ValueError:
        return None
    if not host or host.startswith("-") or parts.password is not None:
        return None
    return parts.scheme.lower(), host


def _local(path: Path) -> Location:
    try:
        real = path.resolve(strict=True)
        if real.is_dir():
            if (real / ".git").exists() or ((real / "HEAD").is_file() and (real / "objects").is_dir()):
                return Location(LocationKind.REPOSITORY, str(real))
        elif real.is_file():
            with real.open("rb") as file:
                if file.read(len(_BUNDLE_MARKS[0])) in _BUNDLE_MARKS:
                    return Location(LocationKind.BUNDLE, str(real))
    except PermissionError as error:
        raise PermissionDenied(f"{path} may not be read.", remedy="Give the ingest service read access.") from error
    except (OSError, RuntimeError) as error:
        raise NotFound(
            f"The ingest service sees nothing at {path}.", remedy="Check the path and what is mounted."
        ) from error
    raise NotFound(
        f"{path} is neither a git repository nor a bundle.",
        remedy="Name a folder with a .git, a bare repository, or a file made by `git bundle create`.",
        reason="GIT_REPOSITORY_NOT_FOUND",
    )


def _no_location(url: str) -> InvalidArgument:
    return InvalidArgument(
        f"{url[:80]!r} is neither an absolute path nor a URL of {', '.join(SCHEMES)} without a password.",
        remedy="Give a URL like https://git.example/team/repo.git (credentials belong into the service's git"
        " configuration), or the path of a repository or bundle.",
        reason="GIT_URL_INVALID",
    )
