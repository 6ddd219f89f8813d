"""What holds for the chunks of every format."""

from __future__ import annotations

from collections import Counter

from services.ingest.chunks import Extraction, model_input
from services.ingest.extraction.tokens import estimate_tokens
from services.ingest.extraction.worker import Extracted, Job, WorkerSettings, run
from services.ingest.skips import Skipped
from services.ingest.sniffing import split_lines


def taken(data: bytes | str, path: str, *, tokens: int = 254) -> Extracted:
    """Extract a file as a worker does, and hold its chunks against the invariants."""
    outcome = run(Job(path, data.encode() if isinstance(data, str) else data), WorkerSettings(tokens), estimate_tokens)
    assert not isinstance(outcome, Skipped), outcome
    assert_whole(outcome.extraction, outcome.file.text, tokens)
    return outcome


def assert_whole(extraction: Extraction, text: str, tokens: int = 254) -> None:
    """Each non-blank line lies in one chunk, whose text is its lines, whose size fits and whose key is its own."""
    assert not any(note.code == "extractor_failed" for note in extraction.notes), extraction.notes
    lines = split_lines(text)
    covered: Counter[int] = Counter()
    for chunk in extraction.chunks:
        if chunk.columns is None:
            assert chunk.text == "\n".join(lines[chunk.start_line - 1 : chunk.end_line])
            covered.update(range(chunk.start_line, chunk.end_line + 1))
        else:
            covered[chunk.start_line] = 1
        assert estimate_tokens(model_input(chunk.title, chunk.text)) <= tokens
    for number, line in enumerate(lines, 1):
        assert covered[number] == 1 or (not line.strip() and covered[number] == 0), (number, line)
    assert len({chunk.key for chunk in extraction.chunks}) == len(extraction.chunks)
    assert len({symbol.key for symbol in extraction.symbols}) == len(extraction.symbols)


def outline(extraction: Extraction) -> list[tuple[str, int, int]]:
    return [(chunk.title, chunk.start_line, chunk.end_line) for chunk in extraction.chunks]


def symbols(extraction: Extraction) -> list[tuple[str, int, int]]:
    """Name each symbol below its file."""
    return [
        (symbol.qualified_name.partition("#")[2], symbol.start_line, symbol.end_line) for symbol in extraction.symbols
    ]


def codes(extraction: Extraction) -> list[str]:
    return [note.code for note in extraction.notes]
