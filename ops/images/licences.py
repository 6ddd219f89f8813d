"""Licences as SPDX expressions, where what is stated is one; what is not stays as it is stated."""

from __future__ import annotations

import re

from spdx_tools.common.spdx_licensing import spdx_licensing  # type: ignore[import-untyped]

_FORMAT = re.compile(r"\AFormat(?:-Specification)?:.*copyright", re.IGNORECASE)
_FIELD = re.compile(r"^License:[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)
_VERSIONED = re.compile(r"(GPL|LGPL|AGPL|GFDL)-(\d+)(\.\d+)?(\+?)", re.IGNORECASE)
# Short names that Debian's format defines, and SPDX's for the same text. Those that SPDX has are not here.
_DEBIAN_NAMES = {"expat": "MIT", "artistic": "Artistic-1.0", "apache-2": "Apache-2.0"}


def spdx_expression(stated: str) -> str:
    """Return a valid SPDX expression in SPDX's own spelling; empty where what is stated is none."""
    try:
        return str(spdx_licensing.parse(stated, validate=True, strict=True)) if stated.strip() else ""
    except Exception:
        # The parser has no one error for what is no expression: `()` fails by an index, `(AND` by an assertion.
        return ""


def debian_licences(copyright_text: str) -> tuple[str, ...]:
    """Return the short names of a copyright file in Debian's machine-readable format; none of any other file.

    They are those of all files of the source package, whichever of them are in a binary one.
    """
    if not _FORMAT.match(copyright_text.lstrip("\ufeff\n ")):
        return ()
    return tuple(sorted(set(_FIELD.findall(copyright_text))))


def debian_expression(names: tuple[str, ...]) -> str:
    """Return one SPDX expression for all short names of a package; empty where SPDX has no name for one of them."""
    found = sorted({_of_debian(name) for name in names})
    if not found or not found[0]:
        return ""
    return spdx_expression(" AND ".join(f"({one})" if len(found) > 1 and " " in one else one for one in found))


def _of_debian(name: str) -> str:
    words = re.split(r"\s+(and|or)\s+", name)
    if any(" " in word for word in words):
        return ""
    return spdx_expression(" ".join(word.upper() if word in {"and", "or"} else _short_name(word) for word in words))


def _short_name(word: str) -> str:
    if match := _VERSIONED.fullmatch(word):
        family, major, minor, later = match.groups()
        return f"{family.upper()}-{major}{minor or '.0'}-{'or-later' if later else 'only'}"
    return _DEBIAN_NAMES.get(word.lower(), word)
