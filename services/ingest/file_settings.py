"""What is said of a file besides its content: how it is cut into chunks, and metadata to filter by."""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import dataclass
from enum import StrEnum

MAX_KEYS = 32
MAX_VALUES = 32
_MAX_VALUE_CHARS = 200
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")

# Keys with their values, sorted by key.
Metadata = tuple[tuple[str, tuple[str, ...]], ...]


class ChunkBy(StrEnum):
    """Where a document with headings is cut. What does not fit the model is split further in any case."""

    AUTO = "auto"  # at every heading
    H1 = "h1"
    H2 = "h2"
    H3 = "h3"
    FILE = "file"  # nowhere

    @property
    def deepest_level(self) -> int | None:
        """Return the deepest level of headings that begin a chunk; None for all."""
        match self:
            case ChunkBy.AUTO:
                return None
            case ChunkBy.FILE:
                return 0
            case _:
                return int(self.value[1:])


@dataclass(frozen=True, slots=True)
class FileSettings:
    """What the manifests of a source say of a file."""

    chunk_by: ChunkBy = ChunkBy.AUTO
    metadata: Metadata = ()

    def canonical(self) -> str:
        """Return them as one text, which differs where they do; empty where nothing is said."""
        if self == FileSettings():
            return ""
        return json.dumps([self.chunk_by.value, self.metadata], ensure_ascii=False, separators=(",", ":"))


def checked_key(key: object) -> str:
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        shown = repr(key[:80]) if isinstance(key, str) else f"a {type(key).__name__}"
        raise ValueError(f"{shown} is no key: a letter, then letters, digits, '_', '.' and '-', at most 64")
    return key


def checked_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.date):
        return value.isoformat()
    if not isinstance(value, (str, int, float)):
        # Not shown: nested aliases of a few lines are gigabytes when they are written out.
        raise ValueError(f"a {type(value).__name__} is no text or number")
    text = str(value).strip()
    if not text or len(text) > _MAX_VALUE_CHARS or not text.isprintable():
        raise ValueError(f"{text[:80]!r} is no line of 1 to {_MAX_VALUE_CHARS} characters")
    text.encode()
    return text
