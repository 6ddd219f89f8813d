"""Environment markers (PEP 508), as they hold for CPython on linux x86-64 with the Python that runs this.

What a marker says of a host (its kernel) does not count, so that two replicas see the same dependencies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName, default_environment

_EXTRA = re.compile(r"""\bextra\s*[=!]=\s*["']([^"']+)["']|["']([^"']+)["']\s*[=!]=\s*extra\b""")
_MEMBER = re.compile(r"""["']([^"']+)["']\s+(?:not\s+)?in\s+(?:extras|dependency_groups)\b""")
_MAX_CHOICES = 32
_MAX_EVALUATED_CHARS = 16 * 1024  # of a marker, over all choices
_MAX_MARKER_CHARS = 16 * 1024


def marker(text: object) -> Marker | None:
    """Read a marker; None for an empty one. Raises ``InvalidMarker``, a ``ValueError``, and ``RecursionError``."""
    written = str(text) if text else ""
    if len(written) > _MAX_MARKER_CHARS:
        raise InvalidMarker(f"a marker of {len(written):,} characters")
    return Marker(written) if written else None


def holds(marker: Marker | None) -> bool:
    """Whether a marker holds for some choice of extras and dependency groups: optional ones are taken as wanted.

    A marker that cannot be evaluated counts as one that holds.
    """
    if marker is None:
        return True
    try:
        return any(marker.evaluate_prepared({**_environment(), **chosen}) for chosen in _choices(str(marker)))
    except (UndefinedComparison, UndefinedEnvironmentName, ValueError, RecursionError):
        return True


def _choices(text: str) -> Iterator[dict[str, str | frozenset[str]]]:
    """Yield all extras that a marker names, each alone, and none: conflicting extras exclude one another."""
    extras = sorted({one or other for one, other in _EXTRA.findall(text)} | set(_MEMBER.findall(text)))
    members = frozenset(extras)
    most = min(_MAX_CHOICES, _MAX_EVALUATED_CHARS // (len(text) + 1))
    for extra in (members, *map(frozenset, zip(extras[:most], strict=False))):
        yield {"extra": extra or "", "extras": members, "dependency_groups": members}
    yield {"extra": "", "extras": frozenset(), "dependency_groups": frozenset()}


@cache
def _environment() -> dict[str, str]:
    running = default_environment()
    version = running["python_full_version"].removesuffix("+")
    return {
        "implementation_name": "cpython",
        "implementation_version": version,
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": version,
        "python_version": running["python_version"],
        "sys_platform": "linux",
    }


def python_version() -> str:
    """Return the full version of the Python that markers are evaluated for."""
    return _environment()["python_full_version"]
