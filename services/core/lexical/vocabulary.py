"""Terms near a misspelt one, for the hint that goes with an empty answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from services.core.lexical.segment import OpenSegment

_CLASSES = 32
_MOST_COMPARED = 2000
_SHORT_CHARS = 4
_PREFIX_CHARS = 3


class Vocabulary:
    """The live terms of an index. Made when the first hint is needed: about 150 ms for 100,000 terms."""

    def __init__(self, segments: Iterable[OpenSegment]) -> None:
        frequencies: Counter[str] = Counter()
        for segment in segments:
            for term, frequency in zip(segment.forward.terms(), segment.frequencies.tolist(), strict=True):
                if frequency:
                    frequencies[term] += frequency
        self._frequencies = frequencies
        self._terms = sorted(frequencies)
        self._profiles = _profiles(self._terms)

    def nearest(self, term: str, limit: int) -> list[str]:
        """Return up to ``limit`` terms within two edits (one for short terms), then those that begin with ``term``.

        Order: edits, then frequency descending, then the term.
        """
        edits = 1 if len(term) <= _SHORT_CHARS else 2
        # Every edit of an ASCII letter changes two letter counts at most, so this drops no term that is near.
        apart = np.abs(self._profiles - _profiles([term])).sum(axis=1)
        near = []
        places = np.flatnonzero(apart <= 2 * edits)
        # Numbered names can be near one another by the thousand: a hint is not worth comparing them all.
        places = places[np.argsort(apart[places], kind="stable")[:_MOST_COMPARED]]
        for place in places.tolist():
            candidate = self._terms[place]
            distance = _distance(term, candidate, edits)
            if distance <= edits and candidate != term:
                near.append((distance, -self._frequencies[candidate], candidate))
        if len(term) >= _PREFIX_CHARS:
            seen = {candidate for _, _, candidate in near} | {term}
            near += [
                (edits + 1, -self._frequencies[candidate], candidate)
                for candidate in self._terms
                if candidate.startswith(term) and candidate not in seen
            ]
        return [candidate for _, _, candidate in sorted(near)[:limit]]


def _profiles(terms: list[str]) -> npt.NDArray[np.int16]:
    """Count the characters of each term by class: an array terms × classes."""
    chars = np.frombuffer("".join(terms).encode("utf-32-le"), dtype=np.uint32).astype(np.int64)
    owners = np.repeat(np.arange(len(terms), dtype=np.int64), [len(term) for term in terms])
    counts = np.bincount(owners * _CLASSES + chars % _CLASSES, minlength=len(terms) * _CLASSES)
    return counts.reshape(len(terms), _CLASSES).astype(np.int16)


def _distance(left: str, right: str, most: int) -> int:
    """Return the edits between two words (a swap of neighbours is one), or ``most + 1`` where there are more."""
    if abs(len(left) - len(right)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, char in enumerate(left, 1):
        previous, row, older = row, [i], before
        for j, other in enumerate(right, 1):
            cost = min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (char != other))
            if i > 1 and j > 1 and char == right[j - 2] and left[i - 2] == other:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        before = previous
        if min(row) > most:
            return most + 1
    return row[-1]
