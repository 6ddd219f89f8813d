"""Which dependencies a project is to have as sources: what its folders declare and the wheel directory has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from services.core.errors import UndercroftError
from services.ingest.dependencies.manifests import declared
from services.ingest.dependencies.wheels import resolve
from services.ingest.projects import Source


@dataclass(slots=True)
class Dependencies:
    """Archives by package, and what a person should know.

    When not everything could be looked at, ``is_complete`` is false: what is not among them may be wanted all the same.
    """

    archives: dict[str, Path] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    is_complete: bool = True


def find_dependencies(own: Sequence[Source], wheels_dir: Path | None) -> Dependencies:
    """Read what folders of the project's own declare, and look for it. Nothing of it is imported or run."""
    found = Dependencies()
    if wheels_dir is None:
        found.is_complete = False
        found.warnings.append("dependencies are not indexed: the ingest service has no wheel directory")
        return found
    # A package that is a source of its own is not looked for.
    taken = {name for source in own for name in (source.name, source.package)}
    for source in own:
        try:
            wanted = declared(source.root)
            resolution = resolve(wanted, wheels_dir)
        except UndercroftError as error:
            found.is_complete = False
            found.warnings.append(f"dependencies of {source.name} are not looked for: {error.message}")
            continue
        found.warnings += [f"{source.name}: {problem.path}: {problem.detail}" for problem in wanted.problems]
        found.warnings += [
            f"{source.name}: the dependency {one.dependency.name} is not indexed: {one.reason}"
            for one in resolution.missing
            if one.dependency.name not in taken
        ]
        for one in resolution.found:
            name = one.dependency.name
            if name in taken:
                continue
            before = found.archives.setdefault(name, one.path)
            if before != one.path:
                found.warnings.append(f"{source.name}: {name} is indexed from {before.name}, not from {one.path.name}")
    return found
