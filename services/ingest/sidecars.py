"""The sidecars of a generation: made in a local folder, published to the shared volume, kept as the next one's base.

The local copy of the live generation is checked by SHA-256 before it is built upon; a missing or damaged one costs a
cold build, never an embed call.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg
import structlog

from services.core.errors import DataLoss, NotReady
from services.core.lexical import IndexFile, LexicalIndex
from services.core.sidecars import Damage, SidecarFile, Volume
from services.core.vectors import VectorIndex
from services.ingest.building import DenseBase, LexicalBase, documents, make_dense, make_lexical, vector_sample
from services.ingest.canary import dense_problem, lexical_problem, sample_of
from services.ingest.projects import DENSE, LEXICAL
from services.ingest.store import sidecars as rows

log = structlog.get_logger(__name__)

DENSE_FILE = "dense.tq"

# Device, inode, size and time of a local file.
_Signature = tuple[int, int, int, int]
_MOST_SIGNATURES = 10_000


@dataclass(frozen=True, slots=True)
class NextBuild:
    """What the sidecars of a run's generation are made for.

    ``live`` are those of ``generation``. ``keeps_vectors`` says that they lack no vector that Postgres has, so that
    only new contents can bring any.
    """

    project_id: int
    run_id: int
    # Name of the attempt, under which it is built.
    attempt: str
    generation: int
    live: Sequence[SidecarFile]
    dimensions: int
    keeps_vectors: bool


@dataclass(frozen=True, slots=True)
class Built:
    """Published sidecars, and how many documents and vectors they hold."""

    files: Sequence[SidecarFile]
    documents: int
    vectors: int


class SidecarBuilder:
    """Builds sidecars in a local folder and publishes them to the volume. Blocking: call it in a thread."""

    def __init__(self, url: str, volume: Volume, local_dir: Path) -> None:
        self._url = url
        self._volume = volume
        self._local = local_dir
        # SHA-256 of local files that were hashed already: they need not be hashed again before they change.
        self._hashed: dict[_Signature, bytes] = {}
        self._locks: dict[int, threading.Lock] = {}

    def clean(self) -> None:
        """Remove what a killed process was building; for the start of a service, before anything is built."""
        for folder in self._local.glob("*/*"):
            if not folder.name.isdigit():
                shutil.rmtree(folder, ignore_errors=True)

    def build_next(self, wanted: NextBuild) -> Built:
        """Make and publish the sidecars of the generation that the run will make live. Changes nothing that is live."""
        project_id, run_id = wanted.project_id, wanted.run_id
        with self._lock(project_id), self._connect() as connection:
            made = self._fresh(project_id, wanted.attempt)
            base = self._base(project_id, wanted.generation, wanted.live)
            lexical_base = dense_base = None
            if base is not None:
                changes = rows.content_changes(connection, project_id, run_id)
                lexical_base = LexicalBase(base / LEXICAL, _index_files(wanted.live), changes)
                if (base / DENSE / DENSE_FILE).exists():
                    known = rows.vector_changes(connection, project_id, changes) if wanted.keeps_vectors else None
                    dense_base = DenseBase(
                        base / DENSE / DENSE_FILE,
                        known,
                        lambda: rows.live_vector_ids(connection, project_id, wanted.generation),
                    )
            lexical_files, documents_made = make_lexical(
                connection,
                made / LEXICAL,
                lexical_base,
                lambda: rows.next_content_ids(connection, project_id, run_id),
            )
            vectors_made = 0
            if wanted.dimensions:
                vectors_made = make_dense(
                    connection,
                    made / DENSE / DENSE_FILE,
                    wanted.dimensions,
                    dense_base,
                    lambda: rows.next_vector_ids(connection, project_id, run_id),
                )
            return Built(self._publish(made, lexical_files, wanted.live), documents_made, vectors_made)

    def rebuild_live(self, project_id: int, generation: int, dimensions: int) -> Built:
        """Make and publish the sidecars of the live generation anew, from Postgres alone."""
        name = f"rebuilt-{generation}-{secrets.token_hex(4)}"
        with self._lock(project_id), self._connect() as connection:
            made = self._fresh(project_id, name)
            lexical_files, documents_made = make_lexical(
                connection, made / LEXICAL, None, lambda: rows.live_content_ids(connection, project_id, generation)
            )
            vectors_made = 0
            if dimensions:
                vectors_made = make_dense(
                    connection,
                    made / DENSE / DENSE_FILE,
                    dimensions,
                    None,
                    lambda: rows.live_vector_ids(connection, project_id, generation),
                )
            built = Built(self._publish(made, lexical_files, ()), documents_made, vectors_made)
            self._keep(project_id, name, generation)
            return built

    def keep(self, project_id: int, made: str, generation: int) -> None:
        """Keep what was built as the base of the next build, and drop older bases."""
        with self._lock(project_id):
            self._keep(project_id, made, generation)

    def discard(self, project_id: int, made: str) -> None:
        """Drop what was built, if it was not kept."""
        shutil.rmtree(self._local / str(project_id) / made, ignore_errors=True)

    def projects(self) -> list[int]:
        """Return the ids of projects that have something on local disk."""
        return [int(folder.name) for folder in self._local.glob("*") if folder.name.isdigit()]

    def forget(self, project_id: int) -> None:
        """Drop what local disk has of a project."""
        with self._lock(project_id):
            shutil.rmtree(self._local / str(project_id), ignore_errors=True)

    def _keep(self, project_id: int, made: str, generation: int) -> None:
        folder = self._local / str(project_id)
        target = folder / str(generation)
        shutil.rmtree(target, ignore_errors=True)
        (folder / made).rename(target)
        for other in folder.iterdir():
            # Only bases: a run or a repair may be at work beside this one.
            if other != target and other.name.isdigit():
                shutil.rmtree(other, ignore_errors=True)

    def problems(
        self, project_id: int, generation: int, live: Sequence[SidecarFile], dimensions: int, counts: Mapping[str, int]
    ) -> list[Damage]:
        """Check what whole files say: their counts against the generation's, and that they find what they hold."""
        with self._lock(project_id):
            return self._problems(project_id, generation, live, dimensions, counts)

    def _problems(
        self, project_id: int, generation: int, live: Sequence[SidecarFile], dimensions: int, counts: Mapping[str, int]
    ) -> list[Damage]:
        base = self._base(project_id, generation, live)
        if base is None:
            return []
        first = {file.method: file for file in reversed(live)}
        found = []
        with self._connect() as connection:
            contents = rows.live_content_ids(connection, project_id, generation)
            sample = documents(rows.contents(connection, sample_of(contents)))
            try:
                problem = lexical_problem(LexicalIndex.open(base / LEXICAL), counts["documents"], sample)
            except (DataLoss, NotReady) as error:
                problem = error.message
            if problem:
                found.append(Damage(first[LEXICAL], problem))
            if DENSE in first:
                ids = rows.live_vector_ids(connection, project_id, generation)
                try:
                    index = VectorIndex.open(base / DENSE / DENSE_FILE, dimensions)
                    # Vectors that the cache has got since the publish are not in the file, and need not be.
                    held = np.array([i for i in ids.tolist() if i in index], dtype=np.uint64)
                    problem = dense_problem(index, counts["vectors"], vector_sample(connection, held))
                except DataLoss as error:
                    problem = error.message
                if problem:
                    found.append(Damage(first[DENSE], problem))
        return found

    def _lock(self, project_id: int) -> threading.Lock:
        """Return the lock that keeps a repair's work on local disk apart from a run's."""
        return self._locks.setdefault(project_id, threading.Lock())

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(self._url, application_name="undercroft-sidecars")

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
            if self._is_whole(path, file):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._volume.fetch(file, path)
            except DataLoss as error:
                log.warning("building cold", project=project_id, reason=error.message)
                return None
        return folder

    def _is_whole(self, path: Path, file: SidecarFile) -> bool:
        try:
            signature = _signature(path)
            if signature not in self._hashed:
                with path.open("rb") as opened:
                    self._remember(signature, hashlib.file_digest(opened, "sha256").digest())
        except FileNotFoundError:
            return False
        return self._hashed[signature] == file.sha256

    def _remember(self, signature: _Signature, sha256: bytes) -> None:
        if len(self._hashed) >= _MOST_SIGNATURES:
            self._hashed.clear()
        self._hashed[signature] = sha256

    def _publish(
        self, made: Path, lexical_files: Sequence[IndexFile], live: Sequence[SidecarFile]
    ) -> Sequence[SidecarFile]:
        published = {(file.method, file.logical_name, file.sha256): file for file in live}
        return list(self._published(made, lexical_files, published))

    def _published(
        self, made: Path, lexical_files: Sequence[IndexFile], live: Mapping[tuple[str, str, bytes], SidecarFile]
    ) -> Iterator[SidecarFile]:
        for file in lexical_files:
            before = live.get((LEXICAL, file.name, bytes.fromhex(file.sha256)))
            if before is not None and self._volume.holds(before):
                yield before
            else:
                yield self._publish_one(LEXICAL, made / LEXICAL / file.name)
        if (made / DENSE / DENSE_FILE).exists():
            yield self._publish_one(DENSE, made / DENSE / DENSE_FILE)

    def _publish_one(self, method: str, path: Path) -> SidecarFile:
        file = self._volume.publish(method, path.name, path)
        self._remember(_signature(path), file.sha256)
        return file


def _signature(path: Path) -> _Signature:
    stat = path.stat()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _index_files(live: Sequence[SidecarFile]) -> dict[str, IndexFile]:
    return {
        file.logical_name: IndexFile(file.logical_name, file.sha256.hex(), file.size_bytes)
        for file in live
        if file.method == LEXICAL
    }
