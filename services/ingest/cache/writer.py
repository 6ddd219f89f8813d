"""Writing an exported cache, part by part."""

from __future__ import annotations

import hashlib
import zlib

import numpy as np

from services.core.errors import DataLoss
from services.ingest.cache.format import (
    BLOCK_HEAD,
    BLOCK_TAG,
    CHECKSUM,
    FINGERPRINT_BYTES,
    FORMAT_VERSION,
    MAGIC,
    PREAMBLE,
    TRAILER_HEAD,
    TRAILER_TAG,
    Header,
    VectorBlock,
    encode_header,
    fingerprints_ascend,
)


class Writer:
    """Makes the bytes of a file: ``head``, then every ``block`` in order, then ``tail``.

    Holds a hash and counts, no vectors. Raises ``DataLoss`` when blocks come that the header does not promise, or not
    all that it does: such a file would be refused where it is imported.
    """

    def __init__(self, header: Header) -> None:
        self._header = header
        self._hash = hashlib.sha256()
        self._left = [one.vectors for one in header.models]
        self._at = (0, b"")

    def head(self) -> bytes:
        header = encode_header(self._header)
        return self._hashed(_checked(PREAMBLE.pack(MAGIC, FORMAT_VERSION, len(header)) + header))

    def block(self, block: VectorBlock) -> bytes:
        model, last = self._at
        after = last if block.model == model else b""
        dimensions = self._header.models[block.model].dimensions
        if (
            block.model < model
            or block.vectors.shape != (len(block), dimensions)
            or len(block.fingerprints) != len(block) * FINGERPRINT_BYTES
            or not fingerprints_ascend(block.fingerprints, after)
        ):
            raise _inconsistent()
        self._left[block.model] -= len(block)
        self._at = (block.model, block.last)
        vectors = block.vectors.astype(np.dtype("<f2"), copy=False).tobytes()
        head = BLOCK_HEAD.pack(BLOCK_TAG, block.model, len(block))
        return self._hashed(_checked(head + block.fingerprints + vectors))

    def tail(self) -> bytes:
        if any(self._left):
            raise _inconsistent()
        head = self._hashed(TRAILER_HEAD.pack(TRAILER_TAG, self._header.vectors))
        return head + self._hash.digest()

    def _hashed(self, part: bytes) -> bytes:
        self._hash.update(part)
        return part


def _checked(part: bytes) -> bytes:
    return part + CHECKSUM.pack(zlib.crc32(part))


def _inconsistent() -> DataLoss:
    return DataLoss(
        "The embedding cache has vectors that do not fit their model.",
        remedy="Export the models one by one to see which; indexing with --re-embed makes its vectors anew.",
        reason="CACHE_INCONSISTENT",
    )
