"""Writing an index: cold, or as the difference to one that is published."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, repeat
from pathlib import Path
from types import MappingProxyType

import numpy as np
import tantivy

from services.core.errors import InvalidArgument
from services.core.lexical.document import LexicalDocument
from services.core.lexical.forward import ForwardBuilder, ForwardFile, Indices
from services.core.lexical.layout import (
    ROW_BITS,
    ROW_FIELD,
    STATE_FILE,
    TANTIVY_META_FILE,
    TEXT_FIELD,
    IndexFile,
    Segment,
    State,
    index_files,
    open_tantivy,
    read_state,
    schema,
    tantivy_files,
)

#: With more segments the small ones become one. Below 8, where tantivy's own policy would merge in the background.
MAX_SEGMENTS = 7
#: Dead rows cost space and drag tantivy's statistics away from the live ones, which widens every search.
MAX_DEAD_SHARE = 0.2
#: The small segments may grow to this share of the largest; then all become one.
MAX_DELTA_SHARE = 0.2

# Thresholds at which tantivy flushes a segment, not allocations: one batch shall become one segment.
_COLD_HEAP_BYTES = 1_500_000_000
_DELTA_HEAP_BYTES = 100_000_000

Counts = tuple[int, Mapping[str, int]]


def build(directory: Path, documents: Iterable[LexicalDocument]) -> tuple[IndexFile, ...]:
    """Write an index of ``documents`` into ``directory``, which is made and must hold nothing.

    Returns its files. They are complete but not durable: publishing them (copy, fsync, rename) is the caller's.
    Raises ``InvalidArgument`` where an id occurs twice.
    """
    return _build(directory, ((document.id, document.counts()) for document in documents))


def update(
    base: Path,
    directory: Path,
    added: Iterable[LexicalDocument],
    deleted_ids: Collection[int],
    base_files: Mapping[str, IndexFile] = MappingProxyType({}),
) -> tuple[IndexFile, ...]:
    """Write the index of ``base`` without ``deleted_ids`` and with ``added`` into ``directory``.

    Nothing in ``base`` is changed; files that stay are hard links to it where the file system allows. An id may be
    deleted and added in one call: its document is replaced. Returns all files of the new index; those whose SHA-256
    is published already need no copying. ``base_files`` are what is known of the files of ``base``, by name: those that
    stay are not hashed again. Raises ``InvalidArgument`` where an id to delete is not in ``base``, or one
    to add is already there.
    """
    state = read_state(base)
    deleted = np.unique(np.fromiter(deleted_ids, dtype=np.uint64))
    old = [_Live(base, segment) for segment in state.segments]
    lost = [live.find(deleted) for live in old]
    if sum(len(rows) for rows in lost) != len(deleted):
        raise InvalidArgument("An id to delete is not in the index.", remedy="Rebuild the lexical index.")
    fresh = [(document.id, document.counts()) for document in added]
    fresh_ids = np.array([document_id for document_id, _ in fresh], dtype=np.uint64)
    known = sum(len(live.find(np.unique(fresh_ids))) for live in old)
    if known != len(np.intersect1d(fresh_ids, deleted)):
        raise InvalidArgument("An id to add is already in the index.", remedy="Delete it in the same update.")

    for live, rows in zip(old, lost, strict=True):
        live.kill(rows)
    moved = _moved(old, len(fresh))
    if len(moved) == len(old):
        return _build(directory, chain(*(live.documents() for live in old), fresh))

    _link(base, directory, state)
    kept = [live for live in old if live not in moved]
    dead_rows = [row for live in old for row in live.tantivy_rows(live in moved)]
    batch = chain(*(live.documents() for live in moved), fresh)
    segments = [live.save(directory) for live in kept if live.segment.live]
    segments += _append(directory, state.next_number, batch, dead_rows)
    result = State(tuple(segments), next_number=state.next_number + 1)
    result.write(directory)
    return index_files(directory, result, base, base_files)


class _Live:
    """A segment of the base index whose rows die."""

    def __init__(self, base: Path, segment: Segment) -> None:
        self.segment = segment
        self.forward = ForwardFile.open(base / segment.forward_name)
        self._was_dead = segment.read_dead(base)
        self._alive = np.ones(len(self.forward), dtype=np.bool_)
        self._alive[self._was_dead] = False

    def find(self, ids: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> Indices:
        return np.flatnonzero(self._alive & np.isin(self.forward.ids, ids))

    def kill(self, rows: Indices) -> None:
        self._alive[rows] = False
        dead = len(self._alive) - int(self._alive.sum())
        self.segment = Segment(self.segment.number, self.segment.documents, dead)

    def documents(self) -> Iterator[Counts]:
        return self.forward.documents(np.flatnonzero(self._alive))

    def tantivy_rows(self, everything: bool) -> list[int]:
        """Return the rows that die in this update, as tantivy names them."""
        dying = np.ones(len(self._alive), dtype=np.bool_) if everything else ~self._alive
        dying[self._was_dead] = False
        return [int(row) + (self.segment.number << ROW_BITS) for row in np.flatnonzero(dying)]

    def save(self, directory: Path) -> Segment:
        """Write the dead rows where they have changed."""
        if self.segment.dead != len(self._was_dead):
            path = directory / self.segment.dead_name
            path.unlink(missing_ok=True)  # a link to the base's file, which must keep its bytes
            np.flatnonzero(~self._alive).astype(np.uint32).tofile(path)
        return self.segment


def _moved(segments: list[_Live], fresh: int) -> list[_Live]:
    """Choose the segments whose documents are written anew: none, the small ones, or all."""
    rows = sum(live.segment.documents for live in segments)
    if sum(live.segment.dead for live in segments) > MAX_DEAD_SHARE * rows:
        return segments
    if len(segments) + bool(fresh) <= MAX_SEGMENTS:
        return []
    largest = max(segments, key=lambda live: (live.segment.documents, -live.segment.number))
    small = [live for live in segments if live is not largest]
    if sum(live.segment.live for live in small) + fresh > MAX_DELTA_SHARE * largest.segment.live:
        return segments
    return small


def _build(directory: Path, documents: Iterable[Counts]) -> tuple[IndexFile, ...]:
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise InvalidArgument(f"{directory} is not empty.", remedy="Build an index in a new directory.")
    tantivy.Index(schema(), path=str(directory))
    state = State(tuple(_append(directory, 1, documents, [], _COLD_HEAP_BYTES)), next_number=2)
    state.write(directory)
    return index_files(directory, state)


def _append(
    directory: Path,
    number: int,
    documents: Iterable[Counts],
    dead_rows: list[int],
    heap_bytes: int = _DELTA_HEAP_BYTES,
) -> list[Segment]:
    """Commit dead rows and new documents to tantivy, and write the forward file of the new ones."""
    index = open_tantivy(directory)
    # One thread, so that a batch becomes one segment, which is what keeps the number of segments ours to decide.
    writer = index.writer(heap_size=heap_bytes, num_threads=1)
    forward = ForwardBuilder()
    if dead_rows:
        # By query: a delete by term takes the number as signed and finds nothing.
        writer.delete_documents_by_query(tantivy.Query.term_set_query(index.schema, ROW_FIELD, dead_rows))
    ids: set[int] = set()
    for document_id, counts in documents:
        if document_id in ids:
            raise InvalidArgument(f"Document {document_id} is given twice.", remedy="Give each id once.")
        ids.add(document_id)
        document = tantivy.Document()
        document.add_unsigned(ROW_FIELD, (number << ROW_BITS) + len(forward))
        document.add_text(TEXT_FIELD, " ".join(chain.from_iterable(repeat(t, n) for t, n in counts.items())))
        forward.add(document_id, counts)
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    if not len(forward):
        return []
    segment = Segment(number, len(forward))
    forward.write(directory / segment.forward_name)
    return [segment]


def _link(base: Path, directory: Path, state: State) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise InvalidArgument(f"{directory} is not empty.", remedy="Write an update into a new directory.")
    names = tantivy_files(base)
    for segment in state.segments:
        names += [segment.forward_name, *([segment.dead_name] if segment.dead else [])]
    for name in names:
        if name not in (STATE_FILE, TANTIVY_META_FILE):
            try:
                os.link(base / name, directory / name)
                continue
            except OSError:
                pass  # another file system, or one without links
        shutil.copyfile(base / name, directory / name)
