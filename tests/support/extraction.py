"""Extraction in this process, and what holds for every extraction."""

from __future__ import annotations

from collections import Counter

from services.ingest.chunks import Extraction, model_input
from services.ingest.extraction import extract
from services.ingest.extraction.tokens import estimate_tokens
from services.ingest.sniffing import split_lines


def extracted(text: str, *, path: str = "pkg/mod.py", module: str = "pkg.mod", tokens: int = 254) -> Extraction:
    """Extract a text, its tokens estimated."""
    return extract(path, text, module=module, count_tokens=estimate_tokens, budget_tokens=tokens)


def assert_whole(extraction: Extraction, text: str, tokens: int = 254) -> None:
    """Every non-blank line in exactly one chunk, each chunk its lines, each within the budget, each key once."""
    assert not any(note.code == "extractor_failed" for note in extraction.notes), extraction.notes
    lines = split_lines(text)
    covered: Counter[int] = Counter()
    for chunk in extraction.chunks:
        if chunk.columns is None:
            assert chunk.text == "\n".join(lines[chunk.start_line - 1 : chunk.end_line])
            covered.update(range(chunk.start_line, chunk.end_line + 1))
        else:
            assert chunk.text == lines[chunk.start_line - 1][slice(*chunk.columns)]
            covered[chunk.start_line] = 1
        assert estimate_tokens(model_input(chunk.title, chunk.text)) <= tokens
    for number, line in enumerate(lines, 1):
        assert covered[number] <= 1, (number, line)
        assert covered[number] == 1 or not line.strip(), (number, line)
    assert len({chunk.key for chunk in extraction.chunks}) == len(extraction.chunks)
    assert len({symbol.key for symbol in extraction.symbols}) == len(extraction.symbols)
    for symbol in extraction.symbols:
        assert 1 <= symbol.start_line <= symbol.end_line <= max(1, len(lines))
