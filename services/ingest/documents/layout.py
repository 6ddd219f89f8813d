"""What page layout does to text, undone: words broken at line ends, and lines that every page repeats."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

BREAK = "\x02"  # where pdfium found a word broken at the end of a line
_LAST = re.compile(r"\w*$")
_FIRST = re.compile(r"\w*")
_WORD = re.compile(r"[^\W\d_]{2,}(?:-[^\W\d_]+)*")
_MAX_WORD = 40
_NUMBER = re.compile(r"\d{1,6}")
_EDGE_LINES = 2
_LEAST_PAGES = 4
_SHARE = 0.4  # of the pages: left and right ones may differ
_MAX_REPEATED_CHARACTERS = 200


def mend_words(pages: Sequence[Sequence[str]]) -> list[list[str]]:
    """Put words together that the layout has broken, and end the line behind them.

    The hyphen stays where the document elsewhere writes the word with it, where both halves are words of their own in
    it, and before a digit or a capital: the layout does not tell its own hyphens from those of the author.
    """
    if not any(BREAK in line for lines in pages for line in lines):
        return [list(lines) for lines in pages]
    words: set[str] = set()
    for line in (line for lines in pages for line in lines):
        whole = line if BREAK not in line else " ".join(word for word in line.split() if BREAK not in word)
        words.update(word.casefold() for word in _WORD.findall(whole))
    return [[part for line in lines for part in _mended(line, words)] for lines in pages]


def _mended(line: str, words: set[str]) -> Iterator[str]:
    if BREAK not in line:
        yield line
        return
    row: list[str] = []
    for word in line.split(" "):
        row.append(_joined(word, words) if BREAK in word else word)
        if BREAK in word:
            yield " ".join(row).strip()
            row = []
    rest = " ".join(row).strip()
    if rest:
        yield rest


def _joined(word: str, words: set[str]) -> str:
    whole, *others = word.split(BREAK)
    for other in others:
        before, behind = _LAST.search(whole[-_MAX_WORD:]), _FIRST.match(other[:_MAX_WORD])
        left, right = before[0] if before else "", behind[0] if behind else ""
        whole += ("-" if _keeps_hyphen(left, right, words) else "") + other
    return whole


def _keeps_hyphen(left: str, right: str, words: set[str]) -> bool:
    if f"{left}-{right}".casefold() in words:
        return True
    if (left + right).casefold() in words:
        return False
    both = left.casefold() in words and right.casefold() in words
    return both or not (left[-1:].isalpha() and right[:1].islower())


def without_repeated(pages: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[str]]:
    """Leave out lines at the edges of pages that most pages have, page numbers among them; the first stays.

    Returns the lines of the pages, and one example of each line left out.
    """
    counts: Counter[tuple[str, int]] = Counter()
    for number, lines in enumerate(pages):
        counts.update({key for place in _edges(lines) for key in _keys(lines[place], number)})
    filled = sum(1 for lines in pages if lines)
    least = max(_LEAST_PAGES, _SHARE * filled)
    repeated = {key for key, count in counts.items() if count >= least}
    if not repeated:
        return [list(lines) for lines in pages], []
    seen: set[tuple[str, int]] = set()
    examples: dict[tuple[str, int], str] = {}
    kept: list[list[str]] = []
    for number, lines in enumerate(pages):
        dropped: set[int] = set()
        for place in _edges(lines):
            keys = repeated.intersection(_keys(lines[place], number))
            if keys & seen:
                dropped.add(place)
                examples.setdefault(min(keys), lines[place])
            seen |= keys
        kept.append([line for place, line in enumerate(lines) if place not in dropped])
    return kept, list(examples.values())


def _edges(lines: Sequence[str]) -> list[int]:
    count = len(lines)
    return sorted({*range(min(_EDGE_LINES, count)), *range(max(0, count - _EDGE_LINES), count)})


def _keys(line: str, page: int) -> Iterator[tuple[str, int]]:
    """Yield what a line has in common with those of other pages: itself, or itself without the number of its page."""
    line = line.strip()
    if len(line) > _MAX_REPEATED_CHARACTERS:
        return
    yield line, -1
    numbers = list(_NUMBER.finditer(line))
    for match in {numbers[0], numbers[-1]} if numbers else ():
        offset = int(match[0]) - page
        if offset >= 0:
            yield f"{line[: match.start()]}#{line[match.end() :]}", offset
