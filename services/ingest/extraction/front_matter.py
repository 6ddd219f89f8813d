"""What a document says of itself in its front matter: metadata to filter by, and how it is to be cut."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

from services.ingest.chunks import Note
from services.ingest.file_settings import MAX_KEYS, MAX_VALUES, ChunkBy, Metadata, checked_key, checked_value

# The key under which a document speaks to the product: {chunk_by: h2}.
_OWN_KEY = "undercroft"
_MAX_CHARS = 64 * 1024
_INVALID = "front_matter_invalid"


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """``chunk_by`` is None where nothing is said of it."""

    metadata: Metadata = ()
    chunk_by: ChunkBy | None = None
    notes: tuple[Note, ...] = ()


def read_front_matter(block: str) -> FrontMatter:
    """Read front matter with its marks, YAML or TOML; empty for none.

    Texts, numbers and dates of its upper level, and lists of them, are metadata; what is nested, or too long to filter
    by, is left out.
    """
    if not block:
        return FrontMatter()
    if len(block) > _MAX_CHARS:
        return FrontMatter(notes=(Note(_INVALID, f"more than {_MAX_CHARS:,} characters", 1),))
    body = "\n".join(block.strip("\n").split("\n")[1:-1])
    try:
        read = tomllib.loads(body) if block.startswith("+++") else _yaml(body)
        if read is None:
            return FrontMatter()
        if not isinstance(read, Mapping):
            raise ValueError("it is no mapping")
        return FrontMatter(_metadata(read), _chunk_by(read))
    except Exception as error:  # whatever the parsers make of it, the document is a document
        return FrontMatter(notes=(Note(_INVALID, " ".join(str(error).split())[:300], 1),))


def _yaml(body: str) -> object:
    import yaml

    read: object = yaml.load(body, Loader=yaml.CSafeLoader)
    return read


def _metadata(read: Mapping[object, object]) -> Metadata:
    found: dict[str, tuple[str, ...]] = {}
    for key, value in read.items():
        listed = value if isinstance(value, list) else [value]
        try:
            name = checked_key(key)
            values = tuple(dict.fromkeys(checked_value(one) for one in listed[:MAX_VALUES]))
        except ValueError:
            continue
        if values and len(found) < MAX_KEYS:
            found[name] = values
    return tuple(sorted(found.items()))


def _chunk_by(read: Mapping[object, object]) -> ChunkBy | None:
    own = read.get(_OWN_KEY)
    if not isinstance(own, Mapping) or "chunk_by" not in own:
        return None
    try:
        return ChunkBy(own["chunk_by"])
    except ValueError:
        raise ValueError(f"{_OWN_KEY}.chunk_by is none of {', '.join(ChunkBy)}") from None
