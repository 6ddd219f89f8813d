"""What holds for the chunks of every format."""

from __future__ import annotations

from services.ingest.chunks import Extraction
from services.ingest.extraction.tokens import estimate_tokens
from services.ingest.extraction.worker import Extracted, Job, WorkerSettings, run
from services.ingest.skips import Skipped
from tests.support.extraction import assert_whole


def taken(data: bytes | str, path: str, *, tokens: int = 254) -> Extracted:
    """Extract a file as a worker does, and hold its chunks against the invariants."""
    outcome = run(Job(path, data.encode() if isinstance(data, str) else data), WorkerSettings(tokens), estimate_tokens)
    assert not isinstance(outcome, Skipped), outcome
    assert_whole(outcome.extraction, outcome.file.text, tokens)
    return outcome


def outline(extraction: Extraction) -> list[tuple[str, int, int]]:
    return [(chunk.title, chunk.start_line, chunk.end_line) for chunk in extraction.chunks]


def symbols(extraction: Extraction) -> list[tuple[str, int, int]]:
    """Name each symbol below its file."""
    return [
        (symbol.qualified_name.partition("#")[2], symbol.start_line, symbol.end_line) for symbol in extraction.symbols
    ]


def codes(extraction: Extraction) -> list[str]:
    return [note.code for note in extraction.notes]
