"""Path globs: * within a segment, ** across segments, ? one character, [ab] one of a set."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glob:
    """A glob over whole paths, of the same meaning as those of filters. Matching takes no longer than the path is long
    times the segments of the glob, whatever it says: globs come from files of sources."""

    text: str
    # None stands for **.
    _segments: tuple[re.Pattern[str] | None, ...]

    @classmethod
    def of(cls, text: str) -> Glob:
        segments = [None if one == "**" else re.compile(fnmatch.translate(one)) for one in text.split("/")]
        return cls(text, tuple(segments))

    def matches(self, path: str) -> bool:
        """Tell whether a path, with / between its names, fits as a whole."""
        folder, _, name = path.rpartition("/")
        return self.fits(self.below(folder), name)

    def below(self, folder: str) -> frozenset[int]:
        """Return the segments that may stand for the next name behind a folder, "" for none; empty when none may."""
        states = _with_skipped({0}, self._segments)
        for name in folder.split("/") if folder else ():
            states = self._behind(states, name)
        return frozenset(states)

    def fits(self, states: Collection[int], name: str) -> bool:
        """Tell whether a name fits at the end, with ``states`` as ``below`` returns them for its folder."""
        return len(self._segments) in self._behind(states, name)

    def _behind(self, states: Collection[int], name: str) -> set[int]:
        following: set[int] = set()
        for state in states:
            if state == len(self._segments):
                continue
            segment = self._segments[state]
            if segment is None:
                following.add(state)
            elif segment.match(name):
                following.add(state + 1)
        return _with_skipped(following, self._segments) if following else following


def _with_skipped(states: set[int], segments: Sequence[re.Pattern[str] | None]) -> set[int]:
    """Add the states behind each **, which may stand for nothing."""
    reached = set(states)
    for state in states:
        behind = state
        while behind < len(segments) and segments[behind] is None:
            behind += 1
            reached.add(behind)
    return reached
