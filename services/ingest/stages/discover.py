"""Looking at the sources: which files are new, changed, unchanged, deleted or skipped. No body is read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from services.core.errors import DataLoss, InvalidArgument, NotFound, NotReady, PermissionDenied, Unavailable
from services.ingest import changes
from services.ingest.git.worktree import is_shallow, missing_submodules
from services.ingest.opening import Opening
from services.ingest.projects import FOLDER, GIT, WHEEL, Source
from services.ingest.reports import RunReport, Stage
from services.ingest.skips import Skipped, SkipReason
from services.ingest.stages.context import RunContext
from services.ingest.stages.scope import Scope, SourceState
from services.ingest.store import hints, projects

# Stands for a source as a whole.
_ROOT = "./"


class DiscoverStage:
    """Compares the sources of a run with what is known of them."""

    def __init__(self, run: RunContext) -> None:
        self._run = run

    async def look_at(self, scope: Scope, source: Source) -> SourceState:
        """Return how a source differs from the live generation; one that can't be read stays as it is."""
        with self._run.report.timed(Stage.DISCOVER) as stage:
            await self._run.progress()
            state = await self._compared(scope, source)
            stage.items += state.changes.unchanged + len(state.changes.to_read) + len(state.changes.skipped)
        return state

    def refuse_nothing(self, scope: Scope) -> None:
        """Raise what is wrong when no source could be read."""
        if self._run.unlisted and len(self._run.unlisted) == len(scope.sources):
            raise next(iter(self._run.unlisted.values()))

    async def _compared(self, scope: Scope, source: Source) -> SourceState:
        async with self._run.shop.database.transaction() as connection:
            live = await hints.live_files(connection, source.id)
            known = await hints.read_hints(connection, source.id)
            skipped_before = await projects.skipped_of(connection, source.id)
        root, indexed = source.root, source.indexed
        # What is true of the source as it is indexed; that it could not be read is true of that run alone.
        before = [Skipped(path, SkipReason(why), told) for path, why, told in skipped_before if path != _ROOT]
        try:
            how = Opening(
                self._run.scratch,
                renew=scope.renews(source),
                verify=scope.options.verify,
                on_wait=self._run.progress,
            )
            async with self._run.shop.database.transaction() as connection:
                upload = await self._run.shop.uploads.find(connection, source)
            opened = await self._run.shop.opener.open(source, upload, how)
            self._run.report.warnings += opened.warnings
            indexed = opened.indexed
            if opened.root is None:
                compared = changes.untouched(live, known, before)
            else:
                root = opened.root
                discovery = self._run.shop.pipeline.discovery
                if source.kind in (WHEEL, GIT):
                    # What a package ships or a commit has is its content, whatever its .gitignore says of a checkout.
                    discovery = replace(discovery, honour_gitignore=False)
                compared = await asyncio.to_thread(
                    changes.compare,
                    root,
                    discovery,
                    self._run.shop.data_dir,
                    live,
                    known,
                    lambda path: scope.options.verify or scope.must_extract(source, path),
                )
                compared.skipped += opened.skipped
                if source.kind == FOLDER:
                    self._run.report.warnings += await asyncio.to_thread(_incomplete, source, compared)
        except (NotFound, NotReady, Unavailable, InvalidArgument, PermissionDenied, DataLoss) as error:
            # An unmounted folder must not empty the project, nor keep its other sources from being indexed.
            self._run.unlisted[source.name] = error
            self._run.report.warnings.append(
                f"source {source.name} can't be read, what is indexed of it stays: {error.message} {error.remedy}"
            )
            compared = changes.untouched(live, known, [*before, Skipped(_ROOT, SkipReason.UNREADABLE, error.message)])
        return SourceState(source, root, scope.project.tier(source), indexed, live, known, skipped_before, compared)


def _incomplete(source: Source, compared: changes.Changes) -> list[str]:
    """List what a checkout lacks of its repository, and return what else is to know of it."""
    compared.skipped += missing_submodules(source.root)
    if is_shallow(source.root):
        return [f"{source.name} is a shallow clone: its history is incomplete"]
    return []


def count_files(report: RunReport, states: Iterable[SourceState]) -> None:
    """Write what has been seen of the sources so far into the report."""
    states = list(states)
    report.files_unchanged = sum(state.changes.unchanged for state in states)
    report.files_deleted = sum(len(set(state.changes.deleted)) for state in states)
    report.files_skipped = sum(len(state.changes.skipped) for state in states)
    report.files_read = sum(state.changes.read for state in states)
