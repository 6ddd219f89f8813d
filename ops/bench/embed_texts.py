"""Texts for the embed benchmarks, cut from Python's own standard library, so that every machine has them."""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from services.embed.recipe import Purpose
from services.embed.tokenization import TextTokenizer

FIXED_TOKENS = 128
MIXED_TOKENS = (20, 256)
QUERY_TOKENS = 12


class TextSource:
    """Cuts texts of a wanted length in tokens, special tokens included; the same ones for the same seed."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._words = [word for text in _library() for word in text.split(" ")]

    def fixed(self, count: int, tokens: int, seed: int = 1) -> list[str]:
        """Return texts of exactly this many tokens."""
        return list(self._cut([tokens] * count, seed, exact=True))

    def mixed(self, count: int, seed: int = 2, span: tuple[int, int] = MIXED_TOKENS) -> list[str]:
        """Return texts whose lengths are spread evenly, within two tokens."""
        generator = random.Random(seed)
        return list(self._cut([generator.randint(*span) for _ in range(count)], seed, exact=False))

    def _cut(self, lengths: Sequence[int], seed: int, *, exact: bool) -> Iterator[str]:
        generator = random.Random(seed)
        for wanted in lengths:
            while True:
                start = generator.randrange(len(self._words) - wanted)
                text = self._longest(start, wanted)
                got = self._count(text)
                if got == wanted or (not exact and abs(got - wanted) <= 2):
                    yield text
                    break

    def _longest(self, start: int, wanted: int) -> str:
        """Return as many words from ``start`` on as fit into the wanted tokens."""
        low, high = 1, wanted
        while low < high:
            middle = (low + high + 1) // 2
            if self._count(" ".join(self._words[start : start + middle])) <= wanted:
                low = middle
            else:
                high = middle - 1
        return " ".join(self._words[start : start + low])

    def _count(self, text: str) -> int:
        return self._tokenizer.tokenize([text], Purpose.PASSAGE)[0].count


def _library() -> Iterator[str]:
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        yield path.read_text(encoding="utf-8", errors="replace")
