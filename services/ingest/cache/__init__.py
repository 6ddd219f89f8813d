"""The embedding cache as a file that admins carry from one appliance to another.

Invariant: a file is written from one state of the cache, the same state gives the same bytes, and a file that is not
exactly what was written is refused before anything of it is used.
"""

from __future__ import annotations

from services.ingest.cache.format import Header, ModelVectors, VectorBlock
from services.ingest.cache.reader import incompatible, read_blocks, verify
from services.ingest.cache.writer import Writer

__all__ = ["Header", "ModelVectors", "VectorBlock", "Writer", "incompatible", "read_blocks", "verify"]
