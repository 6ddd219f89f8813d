"""Candidates by vector: 4-bit TurboQuant codes in one immutable file, one id per distinct vector.

**What is promised.** The codes are not calibrated on data, so the score of an id depends on its vector and the query
alone, not on what was added before or beside it, nor on whether the file was built cold, updated or shuffled. Which of
several equal scores come first does depend on it (the slot). So ``VectorIndex.candidates`` never cuts inside a tie:
it returns every id that scores at least as high as the last one asked for, which makes the *set* a function of the
live vectors. Scores are approximate: they choose candidates and nothing else. The caller scores those exactly from
the truth in Postgres and orders by (score descending, key ascending), and the answer is the same after any history.

**Recall.** No bound holds for one query, as the error of a code is random in its vector; what holds is measured: with
four candidates for each hit wanted, recall@10 after exact scoring is .999 to 1.000 up to 200,000 vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import turbovec

from services.core.errors import DataLoss, InvalidArgument

#: Bits per coordinate. Another width only rebuilds the file.
BIT_WIDTH = 4
#: Candidates for each hit wanted: what makes exact scoring find the true top (module docstring).
OVERFETCH = 4
#: Fewest candidates of a search, so that a search for one or two hits is as sure as one for ten.
MIN_CANDIDATES = 40

Ids = npt.NDArray[np.uint64]
Vectors = npt.NDArray[np.float32]
#: Ids, and vectors of shape (ids, dimensions): so many at a time as are to be in memory.
Page = tuple[Ids, Vectors]


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Ids with approximate inner products, by (score descending, id ascending)."""

    ids: Ids
    scores: Vectors


def build(path: Path, dimensions: int, pages: Iterable[Page]) -> None:
    """Write the file of the vectors in ``pages`` (any floats) to ``path``, by an atomic rename after fsync.

    Raises ``InvalidArgument`` for shapes that do not fit, an id given twice, a value that is not finite, or dimensions
    that are no multiple of 8. No vectors make a file that finds nothing.
    """
    index = _new(dimensions)
    for ids, vectors in pages:
        _add(index, dimensions, ids, vectors)
    index.write(str(path))


def update(base: Path, path: Path, dimensions: int, pages: Iterable[Page], deleted_ids: Collection[int]) -> None:
    """Write ``base`` without ``deleted_ids`` and with ``pages`` to ``path``, another file: ``base`` stays as it is.

    Removing comes first, so an id may be deleted and added at once. Raises ``InvalidArgument`` for an id to delete
    that is not in ``base`` or one to add that is, ``DataLoss`` where ``base`` cannot be read.
    """
    if path == base:
        raise InvalidArgument("A published file is never rewritten.", remedy="Write the update to another path.")
    index = _load(base, dimensions)
    for deleted in sorted(set(deleted_ids)):
        if not index.remove(deleted):
            raise InvalidArgument(f"Vector {deleted} is not in {base.name}.", remedy="Rebuild the vector file.")
    for ids, vectors in pages:
        _add(index, dimensions, ids, vectors)
    index.write(str(path))


class VectorIndex:
    """An opened vector file. Safe to search from several threads."""

    def __init__(self, index: turbovec.IdMapIndex, dimensions: int) -> None:
        self._index = index
        self.dimensions = dimensions
        if len(self):
            self._index.prepare()

    @classmethod
    def open(cls, path: Path, dimensions: int) -> Self:
        """Load ``path`` from local disk into memory. Its SHA-256 must have been checked: the format has no checksum.

        Raises ``DataLoss`` where it cannot be read or holds vectors of other dimensions.
        """
        return cls(_load(path, dimensions), dimensions)

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, vector_id: int) -> bool:
        return bool(self._index.contains(vector_id))

    def recalls(self, page: Page) -> bool:
        """Tell whether every vector of ``page`` is among the candidates that are found by it (turbovec#303)."""
        ids, vectors = page
        return all(vector_id in self.candidates(vector, 1).ids for vector_id, vector in zip(ids, vectors, strict=True))

    def candidates(
        self,
        query: Vectors,
        limit: int,
        *,
        allowed_ids: Collection[int] | None = None,
        excluded_ids: Collection[int] = (),
    ) -> Candidates:
        """Return at least ``OVERFETCH * limit`` ids (all, where there are fewer) near ``query``, ties at the cut whole.

        ``query`` has shape (dimensions,). Ids that the file does not have are passed over; with none allowed nothing
        is found.
        """
        vector = _matrix(np.atleast_2d(query), self.dimensions)
        if len(vector) != 1 or limit < 1:
            raise InvalidArgument("A search takes one vector and asks for at least one hit.")
        allowed = None
        total = len(self)
        if allowed_ids is not None:
            allowed = np.array(sorted({i for i in allowed_ids if self._index.contains(i)}), dtype=np.uint64)
            total = len(allowed)
        if not total:
            return Candidates(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.float32))
        wanted = max(MIN_CANDIDATES, OVERFETCH * limit)
        excluded = np.fromiter(excluded_ids, dtype=np.uint64)
        fetch = wanted + len(excluded) + 1
        while True:
            found_scores, found_ids = self._index.search(vector, min(fetch, total), allowlist=allowed)
            kept = ~np.isin(found_ids[0], excluded)
            ids, scores = found_ids[0][kept], found_scores[0][kept]
            # The last score of all, excluded or not, tells how far the search has come.
            if fetch >= total or (len(scores) >= wanted and found_scores[0][-1] < scores[wanted - 1]):
                break
            fetch *= 2
        if len(scores) > wanted:
            within = scores >= scores[wanted - 1]
            ids, scores = ids[within], scores[within]
        order = np.lexsort((ids, -scores))
        return Candidates(ids[order], scores[order])


def _new(dimensions: int) -> turbovec.IdMapIndex:
    try:
        return turbovec.IdMapIndex(dimensions, BIT_WIDTH)
    except ValueError as error:
        raise InvalidArgument(f"{dimensions} dimensions cannot be coded: {error}.") from error


def _load(path: Path, dimensions: int) -> turbovec.IdMapIndex:
    try:
        index = turbovec.IdMapIndex.load(str(path))
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    if (index.dim, index.bit_width) != (dimensions, BIT_WIDTH):
        raise _damaged(path, f"it holds {index.dim} dimensions of {index.bit_width} bits, not {dimensions}")
    return index


def _add(index: turbovec.IdMapIndex, dimensions: int, ids: Ids, vectors: Vectors) -> None:
    if not len(ids):
        return
    try:
        index.add_with_ids(_matrix(vectors, dimensions), np.ascontiguousarray(ids, dtype=np.uint64))
    except ValueError as error:
        raise InvalidArgument(f"The vectors cannot be added: {error}.", remedy="Rebuild the vector file.") from error


def _matrix(vectors: Vectors, dimensions: int) -> Vectors:
    """Return ``vectors`` as turbovec takes them: rows × dimensions, float32, contiguous, finite."""
    if vectors.ndim != 2 or vectors.shape[1] != dimensions:
        raise InvalidArgument(f"Vectors of shape {vectors.shape} are not rows of {dimensions} numbers.")
    if not np.isfinite(vectors).all():
        raise InvalidArgument("A vector has a value that is not finite.", remedy="Embed the text again.")
    return np.ascontiguousarray(vectors, dtype=np.float32)


def _damaged(path: Path, cause: str) -> DataLoss:
    return DataLoss(
        f"The vector file {path.name} cannot be used: {cause}.",
        remedy="Rebuild the vector file of the project.",
        reason="VECTOR_FILE_DAMAGED",
    )
