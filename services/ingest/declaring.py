"""Which dependencies a project is to have as sources: what its folders declare and the wheel directory has."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from services.core.errors import UndercroftError
from services.ingest.clocks import is_racy
from services.ingest.dependencies.manifests import Declared, declared, is_current
from services.ingest.dependencies.wheels import resolve
from services.ingest.projects import FOLDER, WHEEL, Source

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Dependencies:
    """Archives by package, and what a person should know.

    When not everything could be looked at, ``is_complete`` is false: what is not among them may be wanted all the same.
    """

    archives: dict[str, Path] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    is_complete: bool = True


class Declarations:
    """Looks for what sources declare. Files that are as they were are not read again (G5)."""

    def __init__(self, wheels_dir: Path | None) -> None:
        self._wheels_dir = wheels_dir
        self._read: dict[int, Declared] = {}

    def find(self, own: Sequence[Source]) -> Dependencies:
        """Return what those of the project's own sources declare that are folders. Nothing of it is imported or run.

        ``own`` are all sources that are not managed. What is one of them already, by its package, its name or as the
        same archive, is not among the result.
        """
        found = Dependencies()
        if self._wheels_dir is None:
            found.is_complete = False
            found.warnings.append("dependencies are not indexed: the ingest service has no wheel directory")
            return found
        # A package that is a source of its own is not looked for.
        taken = {name for source in own for name in (source.name, source.package)}
        added = {path for source in own if source.kind == WHEEL for path in _spellings(source.root)}
        for source in own:
            if source.kind != FOLDER:
                continue
            try:
                wanted = self._declared(source)
                resolution = resolve(wanted, self._wheels_dir)
            except Exception as error:  # of this source alone, whatever it is
                if not isinstance(error, UndercroftError):
                    log.exception("dependencies cannot be looked for", source=source.name)
                cause = error.message if isinstance(error, UndercroftError) else f"{type(error).__name__}."
                found.is_complete = False
                found.warnings.append(f"dependencies of {source.name} are not looked for: {cause}")
                continue
            found.is_complete &= wanted.is_complete and not resolution.unread
            found.warnings += [f"{source.name}: {problem.path}: {problem.detail}" for problem in wanted.problems]
            found.warnings += [f"the wheel directory: {one}" for one in resolution.unread]
            found.warnings += [
                f"{source.name}: the dependency {one.dependency.name} ({', '.join(one.dependency.declared_in)}) is not"
                f" indexed: {one.reason} ({self._wheels_dir})"
                for one in resolution.missing
                if one.dependency.name not in taken
            ]
            for one in resolution.found:
                name = one.dependency.name
                if name in taken or not added.isdisjoint(_spellings(one.path)):
                    continue
                first = found.archives.setdefault(name, one.path)
                if first != one.path:
                    found.warnings.append(
                        f"{source.name}: {name} is indexed from {first.name}, not from {one.path.name}"
                    )
        return found

    def _declared(self, source: Source) -> Declared:
        known = self._read.get(source.id)
        if known is None or not is_current(source.root, known.files):
            read_ns = time.time_ns()
            known = declared(source.root)
            # A file that was written a moment ago may change again and show the same time.
            if any(is_racy(file.mtime_ns, read_ns) for file in known.files):
                self._read.pop(source.id, None)
            else:
                self._read[source.id] = known
        return known


def _spellings(archive: Path) -> set[Path]:
    """Return the path of an archive, and that of the file itself where a link leads to it."""
    try:
        return {archive, archive.resolve()}
    except (OSError, RuntimeError):
        return {archive}
