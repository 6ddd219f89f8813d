"""The dependencies that a project declares in the root folder of its source."""

from __future__ import annotations

import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from services.ingest.dependencies.findings import Findings, Manifest, Problem, shown
from services.ingest.dependencies.locks import read_pdm, read_pipfile, read_poetry, read_pylock, read_uv
from services.ingest.dependencies.pyproject import PYPROJECT, SETUP_CFG, read_pyproject, read_setup_cfg
from services.ingest.dependencies.requirements import read_requirements
from services.ingest.dependencies.versions import is_unsatisfiable
from services.ingest.dependencies.versions import version as parsed_version

log = structlog.get_logger(__name__)

_REQUIREMENTS = re.compile(r"requirements.*\.(txt|in)|.+[-_]requirements\.(txt|in)")
_REQUIREMENTS_FOLDER = "requirements"
_PYLOCK = re.compile(r"pylock(\.[^.]+)?\.toml")
_SETUP_PY = "setup.py"
_LOCKS = {"Pipfile.lock": read_pipfile, "pdm.lock": read_pdm, "poetry.lock": read_poetry, "uv.lock": read_uv}
_MAX_RANGES = 256  # of one package
_NAMES = {PYPROJECT, SETUP_CFG, _SETUP_PY, *_LOCKS}


@dataclass(frozen=True, slots=True)
class Dependency:
    """A package that a project needs, itself or through another one."""

    name: str  # canonical (PEP 503)
    specifier: SpecifierSet  # all that manifests and constraints ask for; == version where a lock fixes one
    version: Version | None  # what a lock fixes
    declared_in: tuple[str, ...]  # paths relative to the root, sorted


@dataclass(frozen=True, slots=True)
class Declared:
    """What the manifests of a root declare, and what in them does not count."""

    dependencies: tuple[Dependency, ...]  # sorted by name
    problems: tuple[Problem, ...]  # sorted by path
    files: tuple[Manifest, ...]  # every file that was looked at, sorted by path
    is_complete: bool = True  # False: a whole file could not be read or parsed, so that more may be declared


def declared(root: Path) -> Declared:
    """Read the manifests and lock files in the root folder of a source.

    The version of a lock wins over every range; of several locks the highest version counts. Ranges add up. The
    project's own name, and those of its workspace, are never among its dependencies. What cannot be read or understood
    becomes a problem; nothing is raised for it. An unreadable root has no manifests and one problem.
    """
    findings = Findings(root)
    present = _present(root, findings)
    files: list[str] = []
    for path, read in ((PYPROJECT, read_pyproject), (SETUP_CFG, read_setup_cfg)):
        if path in present:
            with _contained(path, findings):
                files += read(findings)
    read_requirements([*filter(_is_requirements, present), *files], findings, _contained)
    for path in present:
        if path in _LOCKS or _PYLOCK.fullmatch(path):
            with _contained(path, findings):
                _LOCKS.get(path, read_pylock)(path, findings)
    dependencies = tuple(_merged(findings))
    if _SETUP_PY in present:
        findings.files[_SETUP_PY] = Manifest.at(root, _SETUP_PY)
        if not dependencies:
            findings.problem(_SETUP_PY, "what it declares is known only by running it, which is not done")
    return Declared(
        dependencies,
        tuple(sorted(findings.problems, key=lambda problem: (problem.path, problem.detail))),
        tuple(findings.files[path] for path in sorted(findings.files)),
        findings.is_complete,
    )


def is_current(root: Path, files: Iterable[Manifest]) -> bool:
    """Whether the files that ``declared`` looked at are still all, and as they were, by size and time alone."""
    known = {file.path: file for file in files}
    return known.keys() >= set(_present(root, Findings(root))) and all(
        Manifest.at(root, path) == file for path, file in known.items()
    )


@contextmanager
def _contained(path: str, findings: Findings) -> Iterator[None]:
    """Make a fault that no reader expects a problem of the one file that it is met in."""
    try:
        yield
    except Exception as error:
        log.warning("a manifest cannot be read", path=shown(path), error=shown(repr(error)))
        findings.give_up(path, f"cannot be understood ({type(error).__name__})")


def _present(root: Path, findings: Findings) -> list[str]:
    """List the manifests and locks of a root, sorted, by their names."""
    names = _names(root, findings, "")
    if _REQUIREMENTS_FOLDER in names:
        folder = root / _REQUIREMENTS_FOLDER
        if stat.S_ISDIR(_mode(folder)):
            inner = _names(folder, findings, _REQUIREMENTS_FOLDER)
            names += [f"{_REQUIREMENTS_FOLDER}/{name}" for name in inner if name.endswith((".txt", ".in"))]
        elif stat.S_ISLNK(_mode(folder)):
            findings.problem(_REQUIREMENTS_FOLDER, "is a link, and links are not followed")
    return sorted(name for name in names if name in _NAMES or _PYLOCK.fullmatch(name) or _is_requirements(name))


def _is_requirements(path: str) -> bool:
    return "/" in path or _REQUIREMENTS.fullmatch(path) is not None


def _names(folder: Path, findings: Findings, path: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError as error:
        findings.give_up(path, f"cannot be listed: {error.strerror or type(error).__name__}")
        return []


def _mode(path: Path) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def _merged(findings: Findings) -> list[Dependency]:
    paths: defaultdict[str, set[str]] = defaultdict(set)
    locked: defaultdict[str, dict[Version, str]] = defaultdict(dict)
    ranges: defaultdict[str, list[SpecifierSet]] = defaultdict(list)
    for lock in findings.locked:
        paths[lock.name].add(lock.path)
        locked[lock.name].setdefault(lock.version, lock.path)
    for wanted in findings.wanted:
        paths[wanted.name].add(wanted.path)
        ranges[wanted.name].append(wanted.specifier)
    for constraint in findings.constraints:
        ranges[constraint.name].append(constraint.specifier)
    merged: list[Dependency] = []
    for name in sorted(paths.keys() - findings.own):
        declared_in = sorted(paths[name])
        with _contained(declared_in[0], findings):
            version = _fixed(name, locked[name], findings)
            specifier = _combined(name, ranges[name], declared_in, findings)
            if version is not None:
                specifier = SpecifierSet(f"=={version}")
            merged.append(Dependency(name, specifier, version, tuple(declared_in)))
    return merged


def _fixed(name: str, locked: dict[Version, str], findings: Findings) -> Version | None:
    highest = max(locked, default=None)
    for version, path in locked.items():
        if version != highest and highest is not None:
            findings.problem(path, f"{name} is {version} here and {highest} in {locked[highest]}, which counts")
    return highest


def _combined(name: str, ranges: list[SpecifierSet], paths: list[str], findings: Findings) -> SpecifierSet:
    """Join ranges; where nothing satisfies them all, the highest version that one of them names exactly counts."""
    distinct = list(dict.fromkeys(filter(None, map(str, ranges))))
    if len(distinct) > _MAX_RANGES:
        findings.problem(paths[0], f"{name} is wanted in {len(distinct):,} ranges: the first {_MAX_RANGES} count")
    joined = SpecifierSet(",".join(distinct[:_MAX_RANGES]))
    if not is_unsatisfiable(joined):
        return joined
    exact = [parsed_version(one.version) for one in joined if one.operator == "==" and not one.version.endswith(".*")]
    chosen = SpecifierSet(f"=={max(exact)}") if exact else joined
    counts = f"{chosen} counts" if exact else "so no file can be found"
    findings.problem(paths[0], f"{name} is wanted as {joined} ({', '.join(paths)}): nothing satisfies that, {counts}")
    return chosen
