"""A forward file as a search sees it: with the live rows told from the dead ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from services.core.lexical.forward import ForwardFile, Indices
from services.core.lexical.layout import Segment, damaged
from services.core.lexical.scoring import Floats, stored_lengths

Ids = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


class OpenSegment:
    """One forward file of an open index."""

    def __init__(self, directory: Path, segment: Segment) -> None:
        self.number = segment.number
        self.live = segment.live
        self.forward = ForwardFile.open(directory / segment.forward_name)
        if len(self.forward) != segment.documents:
            raise damaged(directory, f"{segment.forward_name} has {len(self.forward)} of {segment.documents} documents")
        dead = segment.read_dead(directory).astype(np.int64)
        #: Which rows live.
        self.alive: Mask = np.ones(segment.documents, dtype=np.bool_)
        self.alive[dead] = False
        #: Lengths of all rows, as tantivy stores them.
        self.lengths: Floats = stored_lengths(self.forward.lengths)
        #: Live documents per term number.
        self.frequencies: npt.NDArray[np.int64] = self.forward.frequencies.astype(np.int64)
        if len(dead):
            positions, _ = self.forward.entries(dead)
            self.frequencies -= np.bincount(self.forward.entry_terms[positions], minlength=len(self.frequencies))
        self.length_total = int(self.forward.lengths[self.alive].sum(dtype=np.uint64))

    def frequency(self, number: int | None) -> int:
        """Return how many live documents have the term of this number."""
        return 0 if number is None else int(self.frequencies[number])

    def mask(self, ids: Ids) -> Mask:
        """Return for each row whether its id is among ``ids``."""
        return np.isin(self.forward.ids, ids)

    def counts(self, rows: Indices, numbers: Sequence[int | None]) -> Floats:
        """Return how often each term is in each of ``rows``: an array terms × rows."""
        counts: Floats = np.zeros((len(numbers), len(rows)), dtype=np.float64)
        positions, owners = self.forward.entries(rows)
        terms = self.forward.entry_terms[positions]
        for place, number in enumerate(numbers):
            if number is not None:
                found = np.flatnonzero(terms == np.uint32(number))
                counts[place, owners[found]] = self.forward.entry_counts[positions[found]]
        return counts
