"""The wheel directory: which of its files a declared dependency is.

Wheels and sdists lie in the directory itself or one folder below it. A link counts where its target lies in the
directory as well; folders that are links, and all other files, are left alone. So are names that are no UTF-8: they
could not be stored.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from services.core.errors import InvalidArgument, NotFound, NotReady
from services.ingest.dependencies.distributions import Distribution, Fit, parse, project_part
from services.ingest.dependencies.findings import shown
from services.ingest.dependencies.manifests import Declared, Dependency

_MAX_LISTED_VERSIONS = 5
_NOT_INSIDE = "is no file of the wheel directory, but a link out of it or something else"
_NOT_UTF8 = "has a path that is not valid UTF-8"


@dataclass(frozen=True, slots=True)
class Resolved:
    """A dependency and its file."""

    dependency: Dependency
    version: Version
    path: Path  # absolute; its folder has no links, and it is none itself or one that stays in the directory
    is_wheel: bool


@dataclass(frozen=True, slots=True)
class Missing:
    """A dependency without a file. ``reason`` is in words and says what is there instead."""

    dependency: Dependency
    reason: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a wheel directory has of what a project declares; each sorted by name."""

    found: tuple[Resolved, ...]
    missing: tuple[Missing, ...]
    unread: tuple[str, ...] = ()  # folders of the directory that cannot be listed, each with its cause


@dataclass(frozen=True, slots=True)
class _File:
    path: str  # relative to the directory, with "/" between names
    distribution: Distribution


def resolve(declared: Declared, directory: Path) -> Resolution:
    """Pick the best file for each declared dependency.

    The highest version that satisfies the specifier; pre-releases only where it asks for them or nothing else fits.
    Of one version: wheels before sdists; of wheels first those for any platform, then those for the running one, then
    any; then the higher build number, then the first by name.

    Raises ``NotReady`` if the directory cannot be listed.
    """
    real = _real(directory)
    names = {dependency.name for dependency in declared.dependencies}
    files, unread = _by_name(real, lambda file_name: project_part(file_name) in names)
    found: list[Resolved] = []
    missing: list[Missing] = []
    for dependency in declared.dependencies:
        chosen = _best(dependency, files.get(dependency.name, []), real)
        if isinstance(chosen, Resolved):
            found.append(chosen)
        else:
            missing.append(Missing(dependency, chosen))
    return Resolution(tuple(found), tuple(missing), tuple(unread))


def find(directory: Path, file_name: str) -> Path:
    """Return the absolute path of a wheel or sdist of the directory, as ``Resolved.path``.

    Raises ``InvalidArgument`` for what is no plain file name of a wheel or sdist, and for a link out of the directory;
    ``NotFound`` if it is not there; ``NotReady`` if the directory cannot be listed.
    """
    is_plain = file_name.isprintable() and not any(separator in file_name for separator in "/\\")
    distribution = parse(file_name) if is_plain else None
    if distribution is None:
        raise InvalidArgument(
            f"{shown(file_name)} is not the file name of a wheel or sdist.",
            remedy="Name a .whl, .tar.gz or .zip file of the wheel directory, without its folder.",
        )
    real = _real(directory)
    by_name, _ = _by_name(real, lambda name: project_part(name) == distribution.name)
    files = by_name.get(distribution.name, [])
    named = sorted((file for file in files if file.distribution.file_name == file_name), key=_preference)
    if not named:
        raise NotFound(
            f"The wheel directory has no {file_name}, but {_inventory(distribution.name, files)}.",
            remedy="Put the file into the wheel directory, or name one that it has.",
        )
    refused = ""
    for file in named:
        path = _inside(real, file)
        if isinstance(path, Path):
            return path
        refused = path
    raise InvalidArgument(f"{file_name} {refused}.", remedy="Copy the file into the wheel directory.")


def _real(directory: Path) -> Path:
    try:
        real = directory.resolve(strict=True)
        with os.scandir(real):
            return real
    except (OSError, RuntimeError) as error:
        cause = error.strerror if isinstance(error, OSError) else None
        raise NotReady(
            f"The wheel directory {directory} cannot be listed: {cause or error}.",
            remedy="Check its path, its mount and that the service may read it.",
            reason="WHEEL_DIRECTORY_UNREADABLE",
        ) from error


def _by_name(real: Path, is_wanted: Callable[[str], bool]) -> tuple[dict[str, list[_File]], list[str]]:
    """Group the files by canonical name, parsing those alone whose names are wanted; and say what cannot be listed."""
    found: defaultdict[str, list[_File]] = defaultdict(list)
    unread: list[str] = []
    folders = [""]
    for folder in folders:  # grows by the folders of the directory itself
        try:
            with os.scandir(real / folder) as scan:
                for entry in scan:
                    if entry.is_dir(follow_symlinks=False):
                        folders += [] if folder else [f"{entry.name}/"]
                    elif is_wanted(entry.name) and (distribution := parse(entry.name)) is not None:
                        found[distribution.name].append(_File(f"{folder}{entry.name}", distribution))
        except OSError as error:
            unread.append(f"{shown(folder)} cannot be listed: {error.strerror}")
    return found, sorted(unread)


def _best(dependency: Dependency, files: Collection[_File], real: Path) -> Resolved | str:
    """Return the file of a dependency, or why there is none."""
    fitting = set(dependency.specifier.filter({file.distribution.version for file in files}))
    refused = ""
    for file in sorted(sorted(files, key=_preference), key=_version, reverse=True):
        if file.distribution.version in fitting:
            path = _inside(real, file)
            if isinstance(path, Path):
                return Resolved(dependency, file.distribution.version, path, file.distribution.fit is not Fit.SDIST)
            refused = f"{shown(file.path)} {path}"
    if refused:
        return refused
    wanted = (
        f"the project wants {dependency.specifier}" if len(dependency.specifier) else "the project wants any version"
    )
    return f"the wheel directory has {_inventory(dependency.name, files)}, {wanted}"


def _preference(file: _File) -> tuple[Fit, int, str, str]:
    number, suffix = file.distribution.build
    return file.distribution.fit, -number, suffix, file.path


def _version(file: _File) -> Version:
    return file.distribution.version


def _inside(real: Path, file: _File) -> Path | str:
    """Return the path of a file; in words what is wrong with it where it is no regular file of the directory.

    A link keeps its own name: what it points at may well be named by a digest.
    """
    path = real / file.path
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        return _NOT_UTF8
    try:
        target = path.resolve(strict=True)
        is_file = stat.S_ISREG(target.stat().st_mode)
    except (OSError, RuntimeError):
        return _NOT_INSIDE
    return path if is_file and target.is_relative_to(real) else _NOT_INSIDE


def _inventory(name: str, files: Iterable[_File]) -> str:
    """Say which versions there are."""
    versions = sorted({file.distribution.version for file in files}, reverse=True)
    if not versions:
        return f"no file of {name}"
    more = f" and {len(versions) - _MAX_LISTED_VERSIONS} more" if len(versions) > _MAX_LISTED_VERSIONS else ""
    return f"{name} {', '.join(map(str, versions[:_MAX_LISTED_VERSIONS]))}{more}"
