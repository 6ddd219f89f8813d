"""The values that extraction yields, and the rule that bounds their size.

Invariants: the text of a chunk is exactly the lines of its span, joined by LF (or, for a part of one giant line, the
characters that ``columns`` names); every non-blank line of a file lies in exactly one chunk; a chunk with its title
fits the model's budget; its key depends on structure alone, so a line inserted above changes no key.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from services.core.budget import MIN_BUDGET_TOKENS
from services.core.errors import InvalidArgument
from services.ingest.file_settings import Metadata

TokenCounter = Callable[[str], int]

_CHARACTERS_PER_TOKEN = 16  # caps what a tokenizer counts as nothing: spaces, or a long word that becomes one [UNK]
_SURELY_OVER = 8  # characters per token above which a unit is weighed line by line at once
_WORST_RANK = 1_000_000
_SEPARATOR = re.compile(r"[\s,;:(){}\[\]<>|&=+/\"'.-]")
_TITLE_SEPARATOR = " > "
_LATER_PART = re.compile(r" \(part (?!1\))\d+\)$")
_UNSAFE = re.compile(r"[\x00-\x1f%#~\x7f]")
_UNSAFE_NAME = re.compile(r"[\x00-\x1f%#~/\x7f]")


class ChunkKind(StrEnum):
    MODULE = "module"
    CLASS = "class"
    FUNCTION = "function"
    METHOD = "method"
    SECTION = "section"
    TEXT = "text"


class SymbolKind(StrEnum):
    MODULE = "module"
    CLASS = "class"
    FUNCTION = "function"
    METHOD = "method"
    VARIABLE = "variable"
    SECTION = "section"


class ReferenceKind(StrEnum):
    IMPORT = "import"
    CALL = "call"
    INHERIT = "inherit"
    DECORATE = "decorate"
    MENTION = "mention"  # a name in prose
    LINK = "link"  # a path in prose


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage to index. Lines count from 1 and both ends are included."""

    path: str
    kind: ChunkKind
    language: str
    module: str  # dotted, for Python; else ""
    qualified_name: str  # as in Symbol
    name: str
    title: str  # breadcrumb, with "(part N)" where a unit had to be split
    start_line: int
    end_line: int
    text: str
    ordinal: int  # among the chunks of the file with the same structural place
    key: str
    columns: tuple[int, int] | None = None  # characters [from, to) of its only line, where one line had to be split


@dataclass(frozen=True, slots=True)
class Symbol:
    """A definition. ``qualified_name`` is dotted for Python and ``path#heading/heading`` for Markdown."""

    kind: SymbolKind
    name: str
    qualified_name: str
    signature: str
    summary: str  # first line of the docstring
    start_line: int
    end_line: int
    key: str  # of the same form as chunk keys: structural, unique in the file


@dataclass(frozen=True, slots=True)
class Reference:
    """An edge from a symbol to a name.

    ``resolved`` says that ``target`` is a full name (dotted, or a path for links); otherwise it is the last name that
    the source shows, or the best guess, for a later stage that sees the whole project.
    """

    source: str  # qualified name of the innermost symbol around it
    kind: ReferenceKind
    target: str
    resolved: bool
    line: int


@dataclass(frozen=True, slots=True)
class Note:
    """Something about a file that a person should know although the file is indexed."""

    code: str
    detail: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class Extraction:
    path: str
    language: str
    module: str
    chunks: tuple[Chunk, ...]
    symbols: tuple[Symbol, ...]
    references: tuple[Reference, ...]
    notes: tuple[Note, ...]
    # What the file says of itself, and what is said of it.
    metadata: Metadata = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """A run of whole lines that belongs together, before its size is bounded. ``anchor`` is its structural place."""

    kind: ChunkKind
    anchor: tuple[str, ...]
    qualified_name: str
    name: str
    title: str
    start_line: int
    end_line: int
    language: str = ""  # where it is not that of the file


def model_input(title: str, text: str) -> str:
    """Make the text that is embedded and fingerprinted, and the one whose tokens are bounded."""
    return f"{title}\n{text}" if title else text


def embedded_title(chunk: Chunk) -> str:
    """Return the part of a chunk's title that is embedded with its text.

    Of a definition these are the classes and functions around it: its own name stands in its first line, and the name
    of its module, or the path of its file, is mostly noise (MRR .517 with it, .535 without on one function per file),
    while a moved file would be embedded anew for it. A later part of a split definition keeps its own name, which its
    text lacks.
    """
    if chunk.kind is ChunkKind.MODULE or not (chunk.module or _is_definition_of_code(chunk)):
        return chunk.title
    names = chunk.title.split(_TITLE_SEPARATOR)[1:]
    is_whole_or_first = not _LATER_PART.search(chunk.title)
    return _TITLE_SEPARATOR.join(names[:-1] if is_whole_or_first else names)


def _is_definition_of_code(chunk: Chunk) -> bool:
    return chunk.language != "python" and chunk.kind in (ChunkKind.CLASS, ChunkKind.FUNCTION, ChunkKind.METHOD)


def structural_key(path: str, anchor: Sequence[str], ordinal: int) -> str:
    """Name a place in a source: ``path``, ``path#anchor`` or ``path#anchor~ordinal``; injective, and readable."""
    key = _UNSAFE.sub(_escape, path)
    if anchor:
        key += "#" + "/".join(map(_escaped_name, anchor))
    return f"{key}~{ordinal}" if ordinal else key


# The chunks of a section follow each other, and its name may be as long as its file.
@functools.lru_cache(maxsize=64)
def _escaped_name(name: str) -> str:
    return _UNSAFE_NAME.sub(_escape, name)


def _escape(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"


@dataclass(frozen=True, slots=True)
class Budget:
    """The size that a chunk with its title may have, in tokens of the model without its special tokens."""

    count_tokens: TokenCounter
    tokens: int

    def __post_init__(self) -> None:
        if self.tokens < MIN_BUDGET_TOKENS:
            raise InvalidArgument(
                f"A budget of {self.tokens} tokens leaves no room for text.",
                remedy=f"Use a model or a setting of at least {MIN_BUDGET_TOKENS} tokens.",
            )

    @property
    def max_characters(self) -> int:
        return self.tokens * _CHARACTERS_PER_TOKEN

    def fits(self, title: str, text: str) -> bool:
        whole = model_input(title, text)
        if len(whole) > self.max_characters:
            return False
        # No tokenizer makes more tokens than bytes; counting is most of the cost of extraction.
        return len(whole) * 4 <= self.tokens or (
            len(whole.encode("utf-8", "replace")) <= self.tokens or self.count_tokens(whole) <= self.tokens
        )


def bounded(
    units: Iterable[Unit],
    lines: Sequence[str],
    ranks: Sequence[int],
    budget: Budget,
    *,
    path: str,
    language: str,
    module: str,
) -> tuple[tuple[Chunk, ...], tuple[Note, ...]]:
    """Turn units into chunks, splitting those over the budget, without overlap and without loss.

    ``ranks[i]`` says how good a place it is to begin a part at ``lines[i]``: 0 is best. Cuts depend on what stands
    before them, so that an edit moves no cut above it.
    """
    chunks: list[Chunk] = []
    notes: list[Note] = []
    ordinals: Counter[tuple[str, ...]] = Counter()
    for unit in units:
        span = _trim(lines, unit.start_line, unit.end_line)
        if span is None:
            continue
        title = _fitting_title(unit.title, budget)
        if title != unit.title:
            notes.append(Note("title_shortened", f"{unit.title[:200]!r} takes more than half of the budget", span[0]))
        parts = list(_Splitter(lines, ranks, budget, title).split(*span))
        for number, (start, end, columns) in enumerate(parts, 1):
            text = "\n".join(lines[start - 1 : end])
            ordinal = ordinals[unit.anchor]
            ordinals[unit.anchor] += 1
            chunks.append(
                Chunk(
                    path=path,
                    kind=unit.kind,
                    language=unit.language or language,
                    module=module,
                    qualified_name=unit.qualified_name,
                    name=unit.name,
                    title=title if len(parts) == 1 else _part_title(title, number),
                    start_line=start,
                    end_line=end,
                    text=text if columns is None else text[slice(*columns)],
                    ordinal=ordinal,
                    key=structural_key(path, unit.anchor, ordinal),
                    columns=columns,
                )
            )
    return tuple(chunks), tuple(notes)


def _part_title(title: str, number: int) -> str:
    return f"{title} (part {number})" if title else f"(part {number})"


def _fitting_title(title: str, budget: Budget) -> str:
    """Shorten a breadcrumb from the left until it leaves half of the budget to the text."""
    half = budget.tokens // 2
    if len(title) <= half or (len(title) <= budget.max_characters and budget.count_tokens(title) <= half):
        return title
    names = title.split(_TITLE_SEPARATOR)
    for first in range(1, len(names)):
        shorter = _TITLE_SEPARATOR.join(["…", *names[first:]])
        if len(shorter) <= budget.max_characters and budget.count_tokens(shorter) <= half:
            return shorter
    last = names[-1][: budget.max_characters // 2]
    while budget.count_tokens(last) > half - 1:
        last = last[: len(last) * 3 // 4]
    return last + "…"


def _trim(lines: Sequence[str], start: int, end: int) -> tuple[int, int] | None:
    while start <= end and not lines[start - 1].strip():
        start += 1
    while start <= end and not lines[end - 1].strip():
        end -= 1
    return (start, end) if start <= end else None


Part = tuple[int, int, tuple[int, int] | None]


class _Splitter:
    """Splits one unit; lines count from 1."""

    def __init__(self, lines: Sequence[str], ranks: Sequence[int], budget: Budget, title: str) -> None:
        self._lines = lines
        self._ranks = ranks
        self._budget = budget
        self._title = title
        self._weights: dict[int, int] = {}

    def split(self, start: int, end: int) -> Iterator[Part]:
        size = sum(len(line) + 1 for line in self._lines[start - 1 : end])
        if size <= self._budget.tokens * _SURELY_OVER and self._fits(start, end, self._title):
            yield start, end, None
            return
        title = _part_title(self._title, 999)
        room = self._budget.tokens - self._budget.count_tokens(title)
        while (span := _trim(self._lines, start, end)) is not None:
            start, end = span
            if self._weight(start, room) > room or not self._fits(start, start, title):
                for columns in self._pieces(self._lines[start - 1], room):
                    yield start, start, columns
                start += 1
                continue
            cut = self._cut(start, end, room)
            allowance = room
            while not self._fits(start, cut - 1, title):
                allowance = allowance * 9 // 10  # tokens of joined lines are not quite the sum of their tokens
                cut = self._cut(start, end, allowance)
            yield start, cut - 1, None
            start = cut

    def _fits(self, start: int, end: int, title: str) -> bool:
        span = _trim(self._lines, start, end)
        return span is None or self._budget.fits(title, "\n".join(self._lines[span[0] - 1 : span[1]]))

    def _weight(self, line: int, room: int) -> int:
        weight = self._weights.get(line)
        if weight is None:
            text = self._lines[line - 1]
            weight = -(-len(text) // _CHARACTERS_PER_TOKEN)
            if weight <= room:
                weight = max(weight, self._budget.count_tokens(text))
            self._weights[line] = weight
        return weight

    def _cut(self, start: int, end: int, room: int) -> int:
        """Choose the first line of the next part: ``start < cut <= end + 1``."""
        sums: list[int] = []  # sums[i]: tokens of the lines start..start+i
        total = 0
        for line in range(start, end + 1):
            total += self._weight(line, room)
            if total > 2 * room:
                break
            sums.append(total)
        if len(sums) == end + 1 - start and total <= room:
            return end + 1
        # Where two parts are enough for the rest, halve it rather than leave a crumb.
        halved = len(sums) == end + 1 - start and total <= 1.6 * room
        least = total - room if halved else room // 2
        best = start + 1
        best_cost: tuple[int, int] | None = None
        for cut in range(start + 1, end + 1):
            before = sums[cut - start - 1] if cut - start <= len(sums) else room + 1
            if before > room:
                break
            rank = self._ranks[cut - 1] + (0 if before >= least else _WORST_RANK)
            cost = (rank, abs(2 * before - total) if halved else -cut)
            if best_cost is None or cost < best_cost:
                best, best_cost = cut, cost
        return best

    def _pieces(self, line: str, room: int) -> Iterator[tuple[int, int]]:
        """Split one giant line by characters, preferring separators."""
        position, width = 0, room * 3
        while position < len(line):
            width = max(1, min(width, room * _CHARACTERS_PER_TOKEN, len(line) - position))
            tokens = self._budget.count_tokens(line[position : position + width])
            while tokens > room and width > 1:
                width = max(1, min(width * room // tokens, width * 9 // 10))
                tokens = self._budget.count_tokens(line[position : position + width])
            stop = position + width
            if stop < len(line):
                for back in range(stop, stop - width // 4, -1):
                    if _SEPARATOR.match(line[back - 1]):
                        stop = back
                        break
            yield position, stop
            position = stop
            width = width * 3 // 2 if tokens < room * 3 // 4 else width
