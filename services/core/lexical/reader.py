"""Searching an index that lies complete in a local directory."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import tantivy

from services.core.errors import InvalidArgument
from services.core.lexical.forward import Indices
from services.core.lexical.layout import ROW_BITS, ROW_FIELD, State, damaged, open_tantivy, read_state
from services.core.lexical.query import Query, frequency, prepare, read_approximate, sort_terms
from services.core.lexical.scoring import Floats, Statistics, contributions, totals
from services.core.lexical.segment import Ids, Mask, OpenSegment
from services.core.lexical.vocabulary import Vocabulary

#: Up to so many allowed ids are scored one by one, without asking tantivy for candidates.
MAX_DIRECT_IDS = 4096
#: Candidates beyond the hits asked for: enough that nine of ten queries need one fetch.
FETCH_MARGIN = 16


@dataclass(frozen=True, slots=True)
class LexicalHit:
    """One document: its exact score, and what each matched term adds to it, in byte order of the terms."""

    id: int
    score: float
    terms: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class LexicalHits:
    """Answer to one query.

    ``hits`` by (score descending, id ascending): the top k and **every** document that ties with the last of them; the
    caller cuts by its own keys. ``frequencies``: live documents per term looked up. ``unknown``: terms that no
    document has. ``ignored``: terms dropped because the query has too many. ``matches``: how many live documents have
    any of the terms, before allowed and excluded ids are applied.
    """

    hits: tuple[LexicalHit, ...]
    frequencies: dict[str, int]
    unknown: tuple[str, ...]
    ignored: tuple[str, ...]
    matches: int


@dataclass(frozen=True, slots=True, eq=False)
class _Scored:
    """Documents with one of the terms, their exact scores, and the part of each term (terms × documents)."""

    ids: Ids
    scores: Floats
    parts: Floats


class LexicalIndex:
    """One generation's index, opened from a local directory that holds its files and is never changed.

    The directory must be writable, for a lock file of tantivy. Safe to search from several threads.
    """

    def __init__(self, directory: Path, state: State) -> None:
        self._segments = [OpenSegment(directory, segment) for segment in state.segments]
        self._exact = Statistics(
            documents=sum(segment.live for segment in self._segments),
            length_total=sum(segment.length_total for segment in self._segments),
        )
        try:
            index = open_tantivy(directory)
            self._schema = index.schema
            self._searcher = index.searcher()
        except (ValueError, OSError) as error:
            raise damaged(directory, str(error)) from error
        if self._searcher.num_docs != self._exact.documents:
            raise damaged(directory, "tantivy and the forward files count different documents")
        self._approximate = read_approximate(self._searcher, self._schema, self._segments)
        self._vocabulary: Vocabulary | None = None
        self._vocabulary_lock = threading.Lock()

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open the index in ``directory``.

        Raises ``NotReady`` where another release wrote it, ``DataLoss`` where files are missing or do not fit.
        """
        return cls(directory, read_state(directory))

    def __len__(self) -> int:
        return self._exact.documents

    def frequency(self, term: str) -> int:
        """Return how many live documents have ``term``."""
        return frequency(term, self._segments)

    def nearest_terms(self, term: str, limit: int) -> list[str]:
        """Return live terms within two edits of ``term``, then those that begin with it; nearest first."""
        with self._vocabulary_lock:
            if self._vocabulary is None:
                self._vocabulary = Vocabulary(self._segments)
        return self._vocabulary.nearest(term, limit)

    def search(
        self,
        terms: Sequence[str],
        limit: int,
        *,
        allowed_ids: Collection[int] | None = None,
        excluded_ids: Collection[int] = (),
    ) -> LexicalHits:
        """Return the ``limit`` best documents for the distinct ``terms``, and all that tie with the last.

        A document with none of the terms is never a hit. Ids that the index does not have are passed over.
        """
        if limit < 1:
            raise InvalidArgument(f"A search for {limit} hits finds none.", remedy="Ask for at least one.")
        told = sort_terms(terms, self._segments)
        if not told.known or self._approximate is None:
            return LexicalHits((), {}, told.unknown, told.ignored, 0)
        query = prepare(
            told.known,
            self._segments,
            exact=self._exact,
            approximate=self._approximate,
            searcher=self._searcher,
            schema=self._schema,
        )
        masks = self._masks(allowed_ids, excluded_ids)
        if allowed_ids is not None and len(allowed_ids) <= MAX_DIRECT_IDS:
            _, matches = self._fetch(query, 1)
            scored = self._score(query, [np.flatnonzero(mask) for mask in masks])
        else:
            scored, matches = self._widen(query, limit, masks)
        frequencies = dict(zip(query.terms, query.frequencies, strict=True))
        return LexicalHits(_hits(query.terms, scored, limit), frequencies, told.unknown, told.ignored, matches)

    def _masks(self, allowed: Collection[int] | None, excluded: Collection[int]) -> list[Mask]:
        """Return for each segment which of its rows may be hits."""
        masks = [segment.alive for segment in self._segments]
        if allowed is not None:
            ids = np.fromiter(allowed, dtype=np.uint64)
            masks = [mask & segment.mask(ids) for mask, segment in zip(masks, self._segments, strict=True)]
        if excluded:
            ids = np.fromiter(excluded, dtype=np.uint64)
            masks = [mask & ~segment.mask(ids) for mask, segment in zip(masks, self._segments, strict=True)]
        return masks

    def _widen(self, query: Query, limit: int, masks: list[Mask]) -> tuple[_Scored, int]:
        """Fetch until the bound of ``scoring`` says that the top ``limit`` and their ties are complete."""
        fetch = limit + FETCH_MARGIN
        while True:
            hits, matches = self._fetch(query, fetch)
            scored = self._score(query, self._rows([address for _, address in hits], masks))
            if len(hits) >= matches:
                return scored, matches
            beyond = query.ratio * hits[-1][0] + query.slack
            if np.count_nonzero(scored.scores > beyond) >= limit:
                return scored, matches
            fetch = min(4 * fetch, matches)

    def _fetch(self, query: Query, fetch: int) -> tuple[list[tuple[float, tantivy.DocAddress]], int]:
        """Return tantivy's best, and how many live documents match."""
        # count=True is what makes tantivy score every match: see ``scoring``.
        result = self._searcher.search(query.tantivy, fetch, count=True)
        return result.hits, int(result.count)  # type: ignore[attr-defined]

    def _rows(self, addresses: list[tantivy.DocAddress], masks: list[Mask]) -> list[Indices]:
        """Return the rows at ``addresses``, by segment, without those that may not be hits."""
        found = np.array(self._searcher.fast_field_values(ROW_FIELD, addresses), dtype=np.uint64)
        numbers = found >> np.uint64(ROW_BITS)
        rows = (found & np.uint64((1 << ROW_BITS) - 1)).astype(np.int64)
        by_segment = [rows[numbers == np.uint64(segment.number)] for segment in self._segments]
        return [mine[mask[mine]] for mine, mask in zip(by_segment, masks, strict=True)]

    def _score(self, query: Query, rows: list[Indices]) -> _Scored:
        """Score rows exactly and drop those with no term."""
        ids: list[Ids] = []
        counts: list[Floats] = []
        lengths: list[Floats] = []
        for segment, mine, numbers in zip(self._segments, rows, query.numbers, strict=True):
            ids.append(segment.forward.ids[mine])
            counts.append(segment.counts(mine, numbers))
            lengths.append(segment.lengths[mine])
        norms = self._exact.norms(np.concatenate(lengths))
        parts = contributions(query.idfs, np.concatenate(counts, axis=1), norms)
        scores = totals(parts)
        kept = np.flatnonzero(scores > 0.0)
        return _Scored(np.concatenate(ids)[kept], scores[kept], parts[:, kept])


def _hits(terms: tuple[str, ...], scored: _Scored, limit: int) -> tuple[LexicalHit, ...]:
    scores = scored.scores
    if len(scores) > limit:
        cut = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        places: npt.NDArray[np.int64] = np.flatnonzero(scores >= cut)
    else:
        places = np.arange(len(scores))
    order = places[np.lexsort((scored.ids[places], -scores[places]))]
    parts = scored.parts[:, order].T.tolist()
    return tuple(
        LexicalHit(document, score, tuple((term, part) for term, part in zip(terms, mine, strict=True) if part > 0.0))
        for document, score, mine in zip(scored.ids[order].tolist(), scores[order].tolist(), parts, strict=True)
    )
