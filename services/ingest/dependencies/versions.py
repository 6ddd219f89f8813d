"""Versions and ranges of versions (PEP 440) as manifests spell them, bounded before anything is done with them.

``packaging`` takes numbers without end, and only fails (``int`` does, at 4,300 digits) where it compares them.
"""

from __future__ import annotations

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

MAX_NAME_CHARS = 255
_MAX_VERSION_CHARS = 255  # no file of a wheel directory can have a longer one
_MAX_SPECIFIER_CHARS = 4096
_MAX_TERMS = 64
_MAX_WEIGHED_TERMS = 16


def version(text: str) -> Version:
    """Read a version. Raises ``InvalidVersion``, a ``ValueError``, and nothing else."""
    if len(text) > _MAX_VERSION_CHARS:
        raise InvalidVersion(f"a version of {len(text):,} characters")
    return Version(text)


def specifier(text: str) -> SpecifierSet:
    """Read a range of versions. Raises ``InvalidSpecifier``, a ``ValueError``, and nothing else."""
    if len(text) > _MAX_SPECIFIER_CHARS:
        raise InvalidSpecifier(f"a range of {len(text):,} characters")
    return bounded(SpecifierSet(text))


def requirement(text: str) -> Requirement:
    """Read a requirement (PEP 508). Raises ``ValueError``, for a deeply nested marker ``RecursionError``."""
    read = Requirement(text)
    if len(read.name) > MAX_NAME_CHARS:
        raise InvalidRequirement(f"a name of {len(read.name):,} characters")
    bounded(read.specifier)
    return read


def bounded(versions: SpecifierSet) -> SpecifierSet:
    """Return a range as it is. Raises ``InvalidSpecifier`` where comparing it may fail or take long."""
    if len(versions) > _MAX_TERMS:
        raise InvalidSpecifier(f"a range of {len(versions)} terms")
    for term in versions:
        if len(term.version) > _MAX_VERSION_CHARS:
            raise InvalidSpecifier(f"a version of {len(term.version):,} characters")
    return versions


def is_unsatisfiable(versions: SpecifierSet) -> bool:
    """Whether no version can satisfy a range. Of a long one, what is excluded (``!=``) does not count.

    Each exclusion splits a range in two, which costs the square of their number.
    """
    if len(versions) > _MAX_WEIGHED_TERMS:
        versions = SpecifierSet(term for term in versions if term.operator != "!=")
    return versions.is_unsatisfiable()
