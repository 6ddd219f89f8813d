"""Titles of transcripts: which medium a text that lies beside one speaks of."""

from __future__ import annotations

from dataclasses import replace

from services.core.budget import MIN_BUDGET_TOKENS
from services.ingest.chunks import Budget, Extraction
from services.ingest.media import medium_of

_SEPARATOR = " > "


def transcript_label(path: str, budget: Budget) -> tuple[str, Budget]:
    """Return what the titles of a file are to begin with, "" for no transcript, and the budget that it leaves."""
    medium = medium_of(path)
    if not medium:
        return "", budget
    label = f"{medium} (transcript)"
    left = budget.tokens - budget.count_tokens(label + _SEPARATOR) - 1
    if left < max(MIN_BUDGET_TOKENS, budget.tokens // 2):
        return "", budget
    return label, Budget(budget.count_tokens, left)


def labelled(extraction: Extraction, label: str) -> Extraction:
    """Put a label in the place of the file's name in each title, or before titles without it."""
    if not label:
        return extraction
    name = extraction.path.rpartition("/")[2]
    chunks = tuple(replace(chunk, title=_labelled(chunk.title, name, label)) for chunk in extraction.chunks)
    return replace(extraction, chunks=chunks)


def _labelled(title: str, name: str, label: str) -> str:
    return title.replace(name, label, 1) if name in title else _SEPARATOR.join(part for part in (label, title) if part)
