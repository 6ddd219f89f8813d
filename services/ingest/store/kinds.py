"""Numbers under which kinds are stored: those of ``ChunkKind`` and ``ReferenceKind`` in the protos."""

from __future__ import annotations

from types import MappingProxyType

from services.ingest.chunks import ChunkKind, ReferenceKind

CHUNK_KINDS = MappingProxyType(
    {
        ChunkKind.MODULE: 1,
        ChunkKind.CLASS: 2,
        ChunkKind.FUNCTION: 3,
        ChunkKind.METHOD: 4,
        ChunkKind.SECTION: 5,
        ChunkKind.TEXT: 6,
    }
)
# Extraction does not know decision records; the decisions service tells.
DECISION_CHUNK = 7

REFERENCE_KINDS = MappingProxyType(
    {
        ReferenceKind.IMPORT: 1,
        ReferenceKind.CALL: 2,
        ReferenceKind.INHERIT: 3,
        ReferenceKind.DECORATE: 4,
        ReferenceKind.MENTION: 5,
        ReferenceKind.LINK: 6,
    }
)
