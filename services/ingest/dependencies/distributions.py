"""Wheels and sdists by their file names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from math import prod
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag, sys_tags
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

WHEEL_SUFFIX = ".whl"
SDIST_SUFFIXES = (".tar.gz", ".zip")
_PURE = Tag("py3", "none", "any")
_MAX_NAME_CHARS = 255  # what a file system takes
_MAX_TAGS = 64


class Fit(IntEnum):
    """How well a file is suited for being read; the lower, the better."""

    PURE = 0  # a wheel for any Python 3 on any platform
    PLATFORM = 1  # a wheel for the interpreter that runs this
    FOREIGN = 2  # a wheel for another one: only read, so of use as well
    SDIST = 3


@dataclass(frozen=True, slots=True)
class Distribution:
    """What the name of a wheel (PEP 427) or sdist (PEP 625) says. ``name`` is canonical (PEP 503)."""

    file_name: str
    name: str
    version: Version
    fit: Fit
    build: tuple[int, str] = (-1, "")  # of a wheel; (-1, "") where its name has none


def parse(file_name: str) -> Distribution | None:
    """Read the name of a wheel or sdist; None where it is the name of neither."""
    if len(file_name) > _MAX_NAME_CHARS:
        return None
    try:
        if file_name.endswith(WHEEL_SUFFIX):
            if _tags(file_name) > _MAX_TAGS:
                return None
            name, version, build, tags = parse_wheel_filename(file_name)
            return Distribution(file_name, _valid(name), version, _fit(tags), build or (-1, ""))
        if file_name.endswith(SDIST_SUFFIXES):
            name, version = parse_sdist_filename(file_name)
            return Distribution(file_name, _valid(name), version, Fit.SDIST)
    except ValueError:  # all that the parsers raise, and what int() says of a number without end
        return None
    return None


def parse_address(address: str) -> Distribution | None:
    """Read the file name that a URL or a path ends with; None where it names no wheel or sdist."""
    try:
        path = urlsplit(address).path
    except ValueError:
        return None
    return parse(unquote(path).rpartition("/")[2])


def project_part(file_name: str) -> str:
    """Return the canonical project name that a file name begins with, at a hundredth of the price of ``parse``.

    Empty where the name cannot be that of a wheel or sdist; a name returned is no promise that it can.
    """
    if file_name.endswith(WHEEL_SUFFIX):
        return canonicalize_name(file_name.partition("-")[0])
    if file_name.endswith(SDIST_SUFFIXES):
        return canonicalize_name(file_name.rpartition("-")[0])
    return ""


def _tags(file_name: str) -> int:
    """Count the tags of a wheel: all that its last three parts, each a choice, can be combined to."""
    parts = file_name.removesuffix(WHEEL_SUFFIX).split("-")[-3:]
    return prod(part.count(".") + 1 for part in parts)


def _valid(name: str) -> str:
    return canonicalize_name(name, validate=True)


def _fit(tags: frozenset[Tag]) -> Fit:
    if _PURE in tags:
        return Fit.PURE
    return Fit.FOREIGN if tags.isdisjoint(_running()) else Fit.PLATFORM


@cache
def _running() -> frozenset[Tag]:
    return frozenset(sys_tags())
