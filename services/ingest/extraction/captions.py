"""Captions (.srt, .vtt, .sbv): consecutive cues packed into chunks, titled with the time that they cover.

Cues are found by their timing lines alone, which is all that the three formats differ in. Where a chunk is full it ends
behind the last cue that ends a sentence, if that leaves it at least half full.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.ingest.chunks import Budget, ChunkKind, Extraction, Note, Unit, bounded
from services.ingest.sniffing import split_lines

_TIME = r"(?:\d{1,4}:)?\d{1,2}:\d{2}(?:[.,]\d{1,3})?"
_TIMING = re.compile(rf"\s*(?P<start>{_TIME})(?:\s*-->\s*|,)(?P<end>{_TIME})(?:\s.*)?$")
_SENTENCE_END = re.compile(r"[.?!…。？！][\"'»”)\]]*(?:</?[^<>]*>)*\s*$")


@dataclass(frozen=True, slots=True)
class _Cue:
    start: str
    end: str
    start_line: int  # of its number or name, where it has one
    timing_line: int


def extract_captions(path: str, text: str, *, budget: Budget) -> Extraction | Note:
    """Extract one file of captions, or say that it holds none; ``text`` has LF line ends."""
    lines = split_lines(text)
    cues = list(_cues(lines))
    if not cues:
        return Note("not_parsed", "no cue: no line is of the form START --> END")
    units = _units(path, cues, lines, budget)
    ranks = [100] * len(lines)
    for cue in cues:
        ranks[cue.start_line - 1] = 0
    chunks, notes = bounded(units, lines, ranks, budget, path=path, language="captions", module="")
    return Extraction(path, "captions", "", chunks, (), (), notes)


def _cues(lines: Sequence[str]) -> Iterator[_Cue]:
    for number, line in enumerate(lines, 1):
        match = _TIMING.match(line[:200])
        if match is None:
            continue
        named = number >= 2 and lines[number - 2].strip() and (number == 2 or not lines[number - 3].strip())
        is_cue_above = number >= 2 and _TIMING.match(lines[number - 2][:200]) is not None
        start_line = number - 1 if named and not is_cue_above else number
        yield _Cue(_clock(match["start"]), _clock(match["end"]), start_line, number)


def _clock(time: str) -> str:
    """Write a time as hours, minutes and seconds."""
    parts = re.split("[.,]", time)[0].split(":")
    return ":".join(part.rjust(2, "0") for part in ["0"] * (3 - len(parts)) + parts)


def _units(path: str, cues: Sequence[_Cue], lines: Sequence[str], budget: Budget) -> Iterator[Unit]:
    name = path.rpartition("/")[2]
    place = path.replace("/", " > ")
    yield Unit(ChunkKind.TEXT, (), path, name, place, 1, cues[0].start_line - 1)
    ends = [*(cue.start_line - 1 for cue in cues[1:]), len(lines)]
    weights = [
        budget.count_tokens("\n".join(lines[cue.start_line - 1 : end])) + 1 for cue, end in zip(cues, ends, strict=True)
    ]
    room = budget.tokens - budget.count_tokens(_title(name, cues[-1], cues[-1])) - 2
    first = 0
    while first < len(cues):
        after = _group_end(cues, ends, lines, weights, first, room)
        yield Unit(
            ChunkKind.TEXT,
            (cues[first].start,),
            path,
            name,
            _title(name, cues[first], cues[after - 1]),
            cues[first].start_line,
            ends[after - 1],
        )
        first = after


def _group_end(
    cues: Sequence[_Cue], ends: Sequence[int], lines: Sequence[str], weights: Sequence[int], first: int, room: int
) -> int:
    """Return the place behind the last cue of the group that begins at ``first``."""
    total = 0
    behind_sentence = 0
    for place in range(first, len(cues)):
        total += weights[place]
        if total > room:
            return behind_sentence or max(place, first + 1)
        said = "\n".join(lines[cues[place].timing_line : ends[place]]).rstrip()
        if total * 2 >= room and _SENTENCE_END.search(said[-200:]):
            behind_sentence = place + 1
    return len(cues)


def _title(name: str, first: _Cue, last: _Cue) -> str:
    return f"{name} > {first.start}–{last.end}"
