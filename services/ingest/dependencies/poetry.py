"""Poetry's own dependency tables and its language of version constraints."""

from __future__ import annotations

import re
from functools import reduce
from operator import or_

from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from services.ingest.dependencies.findings import Findings, items, shown, table
from services.ingest.dependencies.markers import holds, marker, python_version
from services.ingest.dependencies.versions import bounded
from services.ingest.dependencies.versions import specifier as pep440
from services.ingest.dependencies.versions import version as parsed_version

_TERM = re.compile(r"(?P<operator>\^|~=|~|===|==|=|!=|<=|>=|<|>)?\s*(?P<version>[^\s,]+)\s*,?\s*")
_MAX_CONSTRAINT_CHARS = 1024
_MAX_ALTERNATIVES = 12
_PLATFORMS = ("linux", "")
_ELSEWHERE = {"git": "a repository", "path": "a local path", "file": "a local file", "url": "an address"}


def specifier(constraint: str) -> SpecifierSet:
    """Say a Poetry constraint (``^1.2``, ``~1.2``, ``1.2.*``, ``>=1 <3 || ^4``) in the terms of PEP 440.

    Raises ``ValueError``. Alternatives that PEP 440 cannot join are joined with what lies between them.
    """
    parts = re.split(r"\|\|?", constraint) if len(constraint) <= _MAX_CONSTRAINT_CHARS else []
    if not 0 < len(parts) <= _MAX_ALTERNATIVES:
        raise InvalidSpecifier(f"{shown(constraint)} is too long")
    alternatives = [_conjunction(part) for part in parts]
    if len(alternatives) == 1:
        return alternatives[0]
    joined = reduce(or_, (alternative.to_range() for alternative in alternatives)).to_specifier_set()
    return bounded(_hull(alternatives) if joined is None else joined)


def read_tables(poetry: dict[str, object], path: str, findings: Findings) -> None:
    """Note what ``tool.poetry`` declares: its dependencies and those of all its groups."""
    findings.claim(poetry.get("name"))
    _read_table(table(poetry.get("dependencies")), path, findings)
    _read_table(table(poetry.get("dev-dependencies")), path, findings)
    for group in table(poetry.get("group")).values():
        _read_table(table(table(group).get("dependencies")), path, findings)


def edges(dependencies: dict[str, object]) -> list[tuple[str, SpecifierSet, bool]]:
    """Return (name, versions, whether its marker holds) of the dependencies that a lock file lists for a package.

    Versions and markers that are not understood count as any and as held.
    """
    found: list[tuple[str, SpecifierSet, bool]] = []
    for name, value in dependencies.items():
        for one in items(value) if isinstance(value, list) else [value]:
            version = one if isinstance(one, str) else table(one).get("version")
            try:
                versions = specifier(version) if isinstance(version, str) else SpecifierSet()
                counts = _applies(table(one))
            except (ValueError, RecursionError):
                versions, counts = SpecifierSet(), True
            found.append((canonicalize_name(name), versions, counts))
    return found


def runs_here(python: object) -> bool:
    """Whether a Python constraint of Poetry's holds for the Python that markers are evaluated for."""
    try:
        return not isinstance(python, str) or specifier(python).contains(python_version(), prereleases=True)
    except ValueError:
        return True


def _read_table(dependencies: dict[str, object], path: str, findings: Findings) -> None:
    for name, value in dependencies.items():
        if canonicalize_name(name) == "python":
            continue
        for one in items(value) if isinstance(value, list) else [value]:
            try:
                _read_one(canonicalize_name(name, validate=True), one, path, findings)
            except (ValueError, RecursionError) as error:
                findings.problem(path, f"the dependency {shown(name)} is not understood: {shown(str(error))}")


def _read_one(name: str, value: object, path: str, findings: Findings) -> None:
    options = table(value)
    if not _applies(options):
        findings.decline(name)
        return
    for key, place in _ELSEWHERE.items():
        if key in options:
            findings.problem(path, f"{name} comes from {place}, which is not followed")
            return
    version = value if isinstance(value, str) else options.get("version", "*")
    if not isinstance(version, str):
        raise InvalidSpecifier("it has no version")
    findings.want(name, specifier(version), path)


def _applies(options: dict[str, object]) -> bool:
    """Whether a dependency is for this platform. Raises ``InvalidMarker``, a ``ValueError``."""
    markers = options.get("markers")
    platform = options.get("platform")
    return (
        (not isinstance(markers, str) or holds(marker(markers)))
        and runs_here(options.get("python"))
        and (not isinstance(platform, str) or platform in _PLATFORMS)
    )


def _hull(alternatives: list[SpecifierSet]) -> SpecifierSet:
    terms: list[Specifier] = []
    for operators, outermost in (((">=", ">"), min), (("<", "<="), max)):
        bounds = [[term for term in alternative if term.operator in operators] for alternative in alternatives]
        if all(bounds):
            terms.append(outermost((term for each in bounds for term in each), key=_bound))
    return SpecifierSet(terms)


def _bound(term: Specifier) -> Version:
    return parsed_version(term.version)


def _conjunction(text: str) -> SpecifierSet:
    specifiers: list[str] = []
    position = 0
    text = text.strip().removesuffix(",")
    while position < len(text):
        term = _TERM.match(text, position)
        if term is None:
            raise InvalidSpecifier(f"{shown(text)} is no version constraint")
        specifiers += _term(term["operator"] or "", term["version"])
        position = term.end()
    return pep440(",".join(specifiers))


def _term(operator: str, version: str) -> list[str]:
    if version == "*":
        return []
    if operator == "^":
        return _caret(version)
    if operator == "~":
        return _tilde(version)
    return [f"{'==' if operator in ('', '=') else operator}{version}"]


def _caret(version: str) -> list[str]:
    """``^1.2.3`` allows what changes no digit up to the first that is not 0."""
    release = _release(version)
    place = next((index for index, digit in enumerate(release) if digit), len(release) - 1)
    return [f">={version}", f"<{_next(version, place)}"]


def _tilde(version: str) -> list[str]:
    """``~1.2.3`` and ``~1.2`` allow 1.2.x, ``~1`` allows 1.x."""
    return [f">={version}", f"<{_next(version, min(1, len(_release(version)) - 1))}"]


def _next(version: str, place: int) -> str:
    release = _release(version)
    epoch = parsed_version(version).epoch
    number = ".".join(map(str, (*release[:place], release[place] + 1)))
    return f"{epoch}!{number}" if epoch else number


def _release(version: str) -> tuple[int, ...]:
    return parsed_version(version).release
