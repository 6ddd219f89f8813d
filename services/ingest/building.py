"""Making the indexes of a generation in a local folder: from those of the one before, or from Postgres alone.

Both ways give the same answers. What is made is asked for what it holds before anything points at it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg
import structlog

from services.core import lexical, text, vectors
from services.core.errors import DataLoss, InvalidArgument, NotReady
from services.core.lexical import IndexFile, LexicalDocument, LexicalIndex
from services.core.vectors import VectorIndex
from services.ingest.canary import dense_problem, lexical_problem, sample_of
from services.ingest.store import sidecars as rows

log = structlog.get_logger(__name__)

_REMEDY = "Index again; the live generation stays."


@dataclass(frozen=True, slots=True)
class LexicalBase:
    """The lexical index of the live generation, its files, and what the next one changes."""

    folder: Path
    files: Mapping[str, IndexFile]
    changes: rows.Changes


@dataclass(frozen=True, slots=True)
class DenseBase:
    """The vector file of the live generation, and what the next one changes.

    ``changes`` is None when that has to be found out: from the ids ``before``, which the file may have.
    """

    path: Path
    changes: rows.Changes | None
    before: Callable[[], rows.Ids]


def make_lexical(
    connection: psycopg.Connection, folder: Path, base: LexicalBase | None, everything: Callable[[], Sequence[int]]
) -> tuple[Sequence[IndexFile], int]:
    """Write the lexical index into ``folder``; return its files and how many documents it has."""
    made = _update_lexical(connection, folder, base) if base is not None else None
    if made is not None:
        return made
    ids = everything()
    files = lexical.build(folder, documents(rows.contents(connection, ids)))
    problem = _recall(connection, folder, len(ids), ids)
    if problem:
        raise DataLoss(f"The new lexical index {problem}.", remedy=_REMEDY)
    return files, len(ids)


def _update_lexical(
    connection: psycopg.Connection, folder: Path, base: LexicalBase
) -> tuple[Sequence[IndexFile], int] | None:
    """Write the index from that of the live generation; None when that is not what Postgres says."""
    changes = base.changes
    try:
        count = lexical.count_documents(base.folder) + len(changes.added) - len(changes.removed)
        added = documents(rows.contents(connection, changes.added))
        files = lexical.update(base.folder, folder, added, changes.removed, base.files)
        problem = _recall(connection, folder, count, changes.added)
    except (DataLoss, InvalidArgument, NotReady) as error:
        # A base that does not fit what Postgres says, or is of another release.
        problem = error.message
    if problem:
        log.warning("building the lexical index cold", reason=problem)
        shutil.rmtree(folder, ignore_errors=True)
        return None
    return files, count


def _recall(connection: psycopg.Connection, folder: Path, count: int, ids: Sequence[int]) -> str:
    return lexical_problem(LexicalIndex.open(folder), count, documents(rows.contents(connection, sample_of(ids))))


def make_dense(
    connection: psycopg.Connection,
    path: Path,
    dimensions: int,
    base: DenseBase | None,
    everything: Callable[[], rows.Ids],
) -> int:
    """Write the vector file to ``path``, unless there are no vectors; return how many it has."""
    path.parent.mkdir()
    count = _update_dense(connection, path, dimensions, base, everything) if base is not None else None
    if count is None:
        ids = everything()
        count = len(ids)
        vectors.build(path, dimensions, rows.read_vectors(connection, ids))
        problem = dense_problem(VectorIndex.open(path, dimensions), count, vector_sample(connection, ids))
        if problem:
            raise DataLoss(f"The new vector file {problem}.", remedy=_REMEDY)
    if not count:
        path.unlink(missing_ok=True)
    return count


def _update_dense(
    connection: psycopg.Connection, path: Path, dimensions: int, base: DenseBase, everything: Callable[[], rows.Ids]
) -> int | None:
    """Write the file from that of the live generation; return how many vectors it has, None when that does not fit."""
    try:
        index = VectorIndex.open(base.path, dimensions)
        if base.changes is not None:
            added = [i for i in base.changes.added if i not in index]
            removed = [i for i in base.changes.removed if i in index]
        else:
            ids = everything()
            added = [i for i in ids.tolist() if i not in index]
            removed = [i for i in np.setdiff1d(base.before(), ids).tolist() if i in index]
            if len(index) + len(added) - len(removed) != len(ids):
                log.warning("building the dense index cold", reason="the base has ids that Postgres does not know")
                return None
        count = len(index) + len(added) - len(removed)
        new = np.array(added, dtype=np.uint64)
        vectors.update(base.path, path, dimensions, rows.read_vectors(connection, new), removed)
        made = VectorIndex.open(path, dimensions)
        problem = dense_problem(made, count, vector_sample(connection, new))
    except (DataLoss, InvalidArgument) as error:
        problem = error.message
    if problem:
        log.warning("building the dense index cold", reason=problem)
        return None
    return count


def vector_sample(connection: psycopg.Connection, ids: rows.Ids) -> Iterator[vectors.Page]:
    """Yield some vectors of ``ids``."""
    return rows.read_vectors(connection, np.array(sample_of(ids.tolist()), dtype=np.uint64))


def documents(contents: Iterable[rows.Content]) -> Iterator[LexicalDocument]:
    """Make lexical documents of contents."""
    for content in contents:
        yield LexicalDocument(
            id=content.id,
            name=text.tokens(content.name),
            # The language is among the words of the title: asked for in a mixed corpus, it prefers its chunks.
            title=text.tokens(f"{content.title} {content.language}"),
            body=text.tokens(content.text),
        )
