"""Making the sidecars of the next generation, from those of the live one or from Postgres alone.

Both ways give the same answers. The local copy of the live generation is checked by SHA-256 before it is built upon; a
missing or damaged one costs a cold build, never an embed call.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg
import structlog

from services.core import lexical, text, vectors
from services.core.errors import DataLoss, InvalidArgument, NotReady
from services.core.lexical import LexicalDocument
from services.core.sidecars import SidecarFile, Volume
from services.ingest.projects import DENSE, LEXICAL
from services.ingest.store import sidecars as rows

log = structlog.get_logger(__name__)

DENSE_FILE = "dense.tq"


class SidecarBuilder:
    """Builds sidecars in a local folder and publishes them to the volume. Blocking: call it in a thread."""

    def __init__(self, url: str, volume: Volume, local_dir: Path) -> None:
        self._url = url
        self._volume = volume
        self._local = local_dir

    def clean(self) -> None:
        """Remove what a killed process was building; for the start of a service, before anything is built."""
        for folder in self._local.glob("*/*"):
            if not folder.name.isdigit():
                shutil.rmtree(folder, ignore_errors=True)

    def build_next(
        self, project_id: int, run_id: int, generation: int, live: Sequence[SidecarFile], dimensions: int
    ) -> list[SidecarFile]:
        """Make and publish the sidecars of the generation that the run will make live. Changes nothing that is live."""
        with psycopg.connect(self._url, application_name="undercroft-sidecars") as connection:
            changes = rows.content_changes(connection, project_id, run_id)
            made = self._fresh(project_id, f"run-{run_id}")
            base = self._base(project_id, generation, live)
            incremental = (base, changes) if base is not None else None
            dense_base = None
            if base is not None and (base / DENSE / DENSE_FILE).exists():
                before = rows.live_vector_ids(connection, project_id, generation)
                dense_base = _DenseBase(base / DENSE / DENSE_FILE, before)
            ids = rows.next_vector_ids(connection, project_id, run_id)

            def everything() -> Iterator[rows.Content]:
                return rows.next_contents(connection, project_id, run_id)

            return [
                *self._lexical(connection, made, incremental, everything),
                *self._dense(connection, made, dense_base, ids, dimensions),
            ]

    def rebuild_live(self, project_id: int, generation: int, dimensions: int) -> list[SidecarFile]:
        """Make and publish the sidecars of the live generation anew, from Postgres alone."""
        with psycopg.connect(self._url, application_name="undercroft-sidecars") as connection:
            name = f"rebuilt-{generation}-{secrets.token_hex(4)}"
            made = self._fresh(project_id, name)
            ids = rows.live_vector_ids(connection, project_id, generation)
            files = [
                *self._lexical(connection, made, None, lambda: rows.live_contents(connection, project_id, generation)),
                *self._dense(connection, made, None, ids, dimensions),
            ]
        self.keep(project_id, name, generation)
        return files

    def keep(self, project_id: int, made: str, generation: int) -> None:
        """Keep what was built as the base of the next build, and drop older bases."""
        folder = self._local / str(project_id)
        target = folder / str(generation)
        shutil.rmtree(target, ignore_errors=True)
        (folder / made).rename(target)
        for other in folder.iterdir():
            # Only bases: a run or a repair may be at work beside this one.
            if other != target and other.name.isdigit():
                shutil.rmtree(other, ignore_errors=True)

    def _fresh(self, project_id: int, name: str) -> Path:
        folder = self._local / str(project_id) / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def _base(self, project_id: int, generation: int, live: Sequence[SidecarFile]) -> Path | None:
        """Return a local folder with exactly the live sidecars; None when there are none or one is damaged."""
        if not live:
            return None
        folder = self._local / str(project_id) / str(generation)
        for file in live:
            path = folder / file.method / file.logical_name
            if _is_whole(path, file):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._volume.fetch(file, path)
            except DataLoss as error:
                log.warning("building cold", project=project_id, reason=error.message)
                return None
        return folder

    def _lexical(
        self,
        connection: psycopg.Connection,
        made: Path,
        incremental: tuple[Path, rows.ContentChanges] | None,
        everything: Callable[[], Iterable[rows.Content]],
    ) -> Iterator[SidecarFile]:
        folder = made / LEXICAL
        files = None
        if incremental is not None:
            base, changes = incremental
            try:
                added = _documents(rows.contents(connection, changes.added))
                files = lexical.update(base / LEXICAL, folder, added, changes.removed)
            except (DataLoss, InvalidArgument, NotReady) as error:
                # A base that does not fit what Postgres says, or is of another release.
                log.warning("building the lexical index cold", reason=error.message)
                shutil.rmtree(folder, ignore_errors=True)
        if files is None:
            files = lexical.build(folder, _documents(everything()))
        for file in files:
            yield self._volume.publish(LEXICAL, file.name, folder / file.name)

    def _dense(
        self, connection: psycopg.Connection, made: Path, base: _DenseBase | None, ids: rows.Ids, dimensions: int
    ) -> Iterator[SidecarFile]:
        if not len(ids) or not dimensions:
            return
        path = made / DENSE / DENSE_FILE
        path.parent.mkdir()
        if base is None or not _update_dense(connection, base, path, ids, dimensions):
            vectors.build(path, dimensions, *rows.read_vectors(connection, ids))
        yield self._volume.publish(DENSE, DENSE_FILE, path)


@dataclass(frozen=True, slots=True)
class _DenseBase:
    """The dense file of the live generation, and the ids that Postgres says it may have."""

    path: Path
    ids: rows.Ids


def _update_dense(connection: psycopg.Connection, base: _DenseBase, path: Path, ids: rows.Ids, dimensions: int) -> bool:
    """Write the file of ``ids`` from ``base``; False when base does not fit what Postgres says."""
    try:
        index = vectors.VectorIndex.open(base.path, dimensions)
        added = np.array([i for i in ids.tolist() if i not in index], dtype=np.uint64)
        removed = [i for i in np.setdiff1d(base.ids, ids).tolist() if i in index]
        if len(index) - len(removed) + len(added) != len(ids):
            log.warning("building the dense index cold", reason="the base has ids that Postgres does not know")
            return False
        vectors.update(base.path, path, dimensions, *rows.read_vectors(connection, added), removed)
    except (DataLoss, InvalidArgument) as error:
        log.warning("building the dense index cold", reason=error.message)
        return False
    return True


def _documents(contents: Iterable[rows.Content]) -> Iterator[LexicalDocument]:
    for content in contents:
        yield LexicalDocument(
            id=content.id,
            name=text.tokens(content.name),
            # The language is among the words of the title: asked for in a mixed corpus, it prefers its chunks.
            title=text.tokens(f"{content.title} {content.language}"),
            body=text.tokens(content.text),
        )


def _is_whole(path: Path, file: SidecarFile) -> bool:
    try:
        with path.open("rb") as opened:
            return (
                path.stat().st_size == file.size_bytes and hashlib.file_digest(opened, "sha256").digest() == file.sha256
            )
    except FileNotFoundError:
        return False
