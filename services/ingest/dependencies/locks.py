"""Lock files: pylock.toml (PEP 751), uv.lock, poetry.lock, pdm.lock and Pipfile.lock.

A lock holds the packages of every platform. What only other platforms or Pythons need is left out: by the markers of
packages, and where these stand on the way to a package instead, by walking that way.
"""

from __future__ import annotations

import json
import posixpath
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from packaging.pylock import Pylock, PylockUnsupportedVersionError, PylockValidationError
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from services.ingest.dependencies import poetry
from services.ingest.dependencies.distributions import parse
from services.ingest.dependencies.findings import MAX_LOCK_BYTES, Findings, items, shown, table
from services.ingest.dependencies.markers import holds, marker
from services.ingest.dependencies.versions import requirement, specifier, version

_MAX_VERSIONS = 32  # of one package: every dependency on it is compared with each


@dataclass(frozen=True, slots=True)
class _Edge:
    """A dependency of a locked package: which versions of what, and whether it counts here."""

    name: str
    versions: SpecifierSet
    counts: bool


@dataclass(frozen=True, slots=True)
class _Package:
    """An entry of a lock file."""

    name: str
    version: str
    counts: bool  # its own markers hold here
    edges: tuple[_Edge, ...]
    suits: bool = True  # made for this Python; decides between several versions only
    local: bool = False  # a folder: the project itself, or another one of its workspace


_Entry = Callable[[dict[str, object], str, Findings, str], _Package]


def read_pylock(path: str, findings: Findings) -> None:
    """Note the packages of a lock file of PEP 751."""
    document = findings.toml(path, max_bytes=MAX_LOCK_BYTES)
    if document is None:
        return
    try:
        lock = Pylock.from_dict(document)
    except (PylockValidationError, PylockUnsupportedVersionError, ValueError, RecursionError) as error:
        findings.give_up(path, f"is no lock file of PEP 751: {shown(str(error))}")
        return
    packages: list[_Package] = []
    for package in lock.packages:
        if package.directory is not None:
            _note_folder(package.name, package.directory.path, path, findings)
        elif package.version is None:
            findings.problem(path, f"{package.name} has no version")
        else:
            packages.append(_Package(package.name, str(package.version), holds(package.marker), ()))
    _note(packages, path, findings)


def read_uv(path: str, findings: Findings) -> None:
    """Note the packages of a lock file of uv."""
    _read_graph(path, _uv_package, findings)


def read_poetry(path: str, findings: Findings) -> None:
    """Note the packages of a lock file of Poetry, of the first release and of the second."""
    _read_graph(path, _poetry_package, findings)


def read_pdm(path: str, findings: Findings) -> None:
    """Note the packages of a lock file of PDM."""
    _read_graph(path, _pdm_package, findings)


def read_pipfile(path: str, findings: Findings) -> None:
    """Note the packages of a lock file of Pipenv."""
    text = findings.text(path, max_bytes=MAX_LOCK_BYTES)
    if text is None:
        return
    try:
        document = table(json.loads(text))
    except (ValueError, RecursionError) as error:
        findings.give_up(path, f"is no JSON: {shown(str(error))}")
        return
    for category, packages in document.items():
        for name, value in {} if category.startswith("_") else table(packages).items():
            try:
                _read_pipfile_package(name, table(value), path, findings)
            except ValueError as error:
                findings.problem(path, f"{shown(name)} is not understood: {shown(str(error))}")


def _read_pipfile_package(name: str, package: dict[str, object], path: str, findings: Findings) -> None:
    fixed = package.get("version")
    if not holds(marker(package.get("markers"))):
        return
    if isinstance(fixed, str):
        findings.lock(name, fixed.removeprefix("=="), path)
    else:
        findings.problem(path, f"{shown(name)} comes from an address or a local path, which is not followed")


def _uv_package(package: dict[str, object], name: str, findings: Findings, path: str) -> _Package:
    source = table(package.get("source"))
    folder = next((source[kind] for kind in ("editable", "virtual", "directory") if kind in source), None)
    if folder is not None:
        _note_folder(name, str(folder), path, findings)
    forks = [marker(one) for one in items(package.get("resolution-markers"))]
    edges = tuple(map(_uv_edge, _uv_dependencies(package)))
    counts = not forks or any(map(holds, forks))
    return _Package(name, str(package.get("version", "")), counts, edges, local=folder is not None)


def _uv_dependencies(package: dict[str, object]) -> Iterator[dict[str, object]]:
    """Yield what a package needs, its extras and groups included: uv locks those alone that something asks for."""
    yield from map(table, items(package.get("dependencies")))
    for kind in ("optional-dependencies", "dev-dependencies"):
        for dependencies in table(package.get(kind)).values():
            yield from map(table, items(dependencies))


def _uv_edge(dependency: dict[str, object]) -> _Edge:
    fixed = dependency.get("version")
    return _Edge(
        canonicalize_name(str(dependency.get("name", ""))),
        specifier(f"=={fixed}") if fixed else SpecifierSet(),
        holds(marker(dependency.get("marker"))),
    )


def _poetry_package(package: dict[str, object], name: str, findings: Findings, path: str) -> _Package:
    source, markers = table(package.get("source")), package.get("markers")
    is_folder = source.get("type") == "directory"
    if is_folder:
        _note_folder(name, str(source.get("url", "")), path, findings)
    each = list(table(markers).values()) if isinstance(markers, dict) else [markers]  # one, or one for each group
    return _Package(
        name,
        str(package.get("version", "")),
        any(holds(marker(one)) for one in each),
        tuple(_Edge(*edge) for edge in poetry.edges(table(package.get("dependencies")))),
        suits=poetry.runs_here(package.get("python-versions")),
        local=is_folder,
    )


def _pdm_package(package: dict[str, object], name: str, findings: Findings, path: str) -> _Package:
    folder = package.get("path")
    is_folder = isinstance(folder, str) and parse(posixpath.basename(folder)) is None
    if is_folder:
        _note_folder(name, str(folder), path, findings)
    return _Package(
        name,
        str(package.get("version", "")),
        holds(marker(package.get("marker"))),
        tuple(_pdm_edges(package)),
        suits=poetry.runs_here(package.get("requires_python")),
        local=is_folder,
    )


def _pdm_edges(package: dict[str, object]) -> Iterator[_Edge]:
    for line in items(package.get("dependencies")):
        try:
            needed = requirement(str(line))
        except (ValueError, RecursionError):
            continue  # its package has an entry of its own, and is kept where nothing is known to lead to it
        yield _Edge(canonicalize_name(needed.name), needed.specifier, holds(needed.marker))


def _note_folder(name: str, folder: str, path: str, findings: Findings) -> None:
    inside = posixpath.normpath(posixpath.join(posixpath.dirname(path), folder))
    if posixpath.isabs(folder) or inside.split("/")[0] == "..":
        findings.problem(path, f"{shown(name)} is a folder outside of the source and is not read")
    else:
        findings.claim(name)


def _read_graph(path: str, entry: _Entry, findings: Findings) -> None:
    document = findings.toml(path, max_bytes=MAX_LOCK_BYTES)
    if document is None:
        return
    listed = document.get("package", [])
    if not isinstance(listed, list):
        findings.give_up(path, "has no list of packages")
    packages: list[_Package] = []
    for one in map(table, items(listed)):
        name = one.get("name")
        try:
            packages.append(entry(one, canonicalize_name(str(name), validate=True), findings, path))
        except (ValueError, RecursionError) as error:  # names, markers, versions, requirements
            findings.problem(path, f"the package {shown(str(name))} is not understood: {shown(str(error))}")
    declined = findings.declined - {wanted.name for wanted in findings.wanted}
    if max(Counter(package.name for package in packages).values(), default=0) > _MAX_VERSIONS:
        findings.give_up(path, f"has more than {_MAX_VERSIONS} versions of one package")
        return
    _note([package for package in _needed(packages, declined) if not package.local], path, findings)


def _needed(packages: list[_Package], declined: set[str]) -> list[_Package]:
    """Return the packages that something leads to by markers that hold, beginning with those that nothing needs.

    Those that only need each other are kept: nothing says that they are for another platform.
    """
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, package in enumerate(packages):
        places[package.name].append(place)

    def fitting(edge: _Edge) -> list[int]:
        named = places.get(edge.name, [])
        if len(named) == 1:
            return named
        return [target for target in named if _in(edge.versions, packages[target].version)] or named

    leads = [[(fitting(edge), edge.counts) for edge in package.edges] for package in packages]

    def targets(place: int, *, every: bool) -> Iterator[int]:
        for named, counts in leads[place]:
            if every or counts:
                yield from named

    def walk(starts: Iterable[int], *, every: bool) -> set[int]:
        reached: set[int] = set()
        pending = list(starts)
        while pending:
            place = pending.pop()
            if place not in reached and (every or packages[place].counts):
                reached.add(place)
                pending += targets(place, every=every)
        return reached

    led_to = {target for place in range(len(packages)) for target in targets(place, every=True) if target != place}
    starts = {place for place, package in enumerate(packages) if package.local or place not in led_to}
    known = walk(starts, every=True)
    needed = walk({place for place in starts if packages[place].name not in declined}, every=False)
    for place in range(len(packages)):
        if place not in known:
            known |= walk([place], every=True)
            needed |= walk([place], every=False)
    return [packages[place] for place in sorted(needed)]


def _in(versions: SpecifierSet, fixed: str) -> bool:
    try:
        return versions.contains(version(fixed), prereleases=True)
    except InvalidVersion:
        return not len(versions)


def _note(packages: Iterable[_Package], path: str, findings: Findings) -> None:
    """Note one version of each name: the highest that is made for this Python, the highest of all if none is."""
    by_name: defaultdict[str, list[_Package]] = defaultdict(list)
    for package in packages:
        if package.counts:
            by_name[package.name].append(package)
    for name, versions in by_name.items():
        suiting = [package.version for package in versions if package.suits]
        findings.lock(name, _highest(suiting or [package.version for package in versions]), path)


def _highest(versions: list[str]) -> str:
    try:
        return max(versions, key=version)
    except InvalidVersion:
        return versions[0]
