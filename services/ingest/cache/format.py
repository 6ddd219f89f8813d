"""The layout of an exported cache. Integers are little-endian.

======== ======================================================================================
head     magic (16 bytes), format version (u32), length of the header (u32), header, CRC-32 of the head
blocks   ``BLCK``, index of the model in the header (u32), n (u32), n fingerprints of 32 bytes,
         n vectors of float16, CRC-32 of the block
trailer  ``TAIL``, number of all vectors (u64), SHA-256 of all bytes before it
======== ======================================================================================

The header is JSON in UTF-8 with sorted keys and no spaces. Models are ordered by digest, and vectors by model and
fingerprint. Nothing tells when or where a file was written, so equal caches give equal files.

Every version of the format begins with the magic and the version, and ends with the SHA-256 of all before it: a damaged
file is never taken for one of another version.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MAGIC = b"undercroft-cache"
FORMAT_VERSION = 1
BLOCK_TAG, TRAILER_TAG = b"BLCK", b"TAIL"
FINGERPRINT_BYTES = 32
SHA256_BYTES = 32
# A halfvec has at most this many.
MOST_DIMENSIONS = 16_000
MOST_HEADER_BYTES = 1 << 20

PREAMBLE = struct.Struct("<16sII")
CHECKSUM = struct.Struct("<I")
BLOCK_HEAD = struct.Struct("<4sII")
TRAILER_HEAD = struct.Struct("<4sQ")
TRAILER_BYTES = TRAILER_HEAD.size + SHA256_BYTES

_VALUE_BYTES = 2
# A block fits one message of a call.
_BLOCK_BYTES = 1 << 20
_MOST_CHARS = 200


@dataclass(frozen=True, slots=True)
class ModelVectors:
    """How many vectors of how many dimensions a file has of a model."""

    digest: str
    dimensions: int
    vectors: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a file holds, by model digest. ``embedding_format`` is what the fingerprints are made with."""

    embedding_format: str
    product: str
    models: tuple[ModelVectors, ...]

    @property
    def vectors(self) -> int:
        return sum(model.vectors for model in self.models)


@dataclass(frozen=True, slots=True, eq=False)
class VectorBlock:
    """Vectors of one model, ascending by fingerprint: n × 32 bytes, and float16 of shape (n, dimensions)."""

    model: int
    fingerprints: bytes
    vectors: npt.NDArray[np.float16]

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def last(self) -> bytes:
        return self.fingerprints[-FINGERPRINT_BYTES:]


def block_rows(dimensions: int) -> int:
    """Return how many vectors a block has at most."""
    return max(1, (_BLOCK_BYTES - BLOCK_HEAD.size - CHECKSUM.size) // (FINGERPRINT_BYTES + _VALUE_BYTES * dimensions))


def block_body_bytes(rows: int, dimensions: int) -> int:
    """Return the size of what follows a block's head, without its checksum."""
    return rows * (FINGERPRINT_BYTES + _VALUE_BYTES * dimensions)


def encode_header(header: Header) -> bytes:
    """Return the header as JSON."""
    models = [{"digest": one.digest, "dimensions": one.dimensions, "vectors": one.vectors} for one in header.models]
    fields = {"embedding_format": header.embedding_format, "models": models, "product": header.product}
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def decode_header(encoded: bytes) -> Header:
    """Return the header that JSON tells; ValueError when it is none."""
    try:
        fields = json.loads(encoded)
        models = tuple(
            ModelVectors(_text(one["digest"]), _number(one["dimensions"]), _number(one["vectors"]))
            for one in fields["models"]
        )
        header = Header(_text(fields["embedding_format"]), _text(fields["product"]), models)
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError("a field is missing or of another type") from error
    digests = [one.digest for one in models]
    if digests != sorted(set(digests)):
        raise ValueError("its models are not in order")
    if any(one.dimensions > MOST_DIMENSIONS for one in models):
        raise ValueError(f"a model has more than {MOST_DIMENSIONS} dimensions")
    return header


def fingerprints_ascend(fingerprints: bytes, after: bytes) -> bool:
    """Tell whether fingerprints of 32 bytes each, and the one before them, ascend with none twice."""
    for start in range(0, len(fingerprints), FINGERPRINT_BYTES):
        current = fingerprints[start : start + FINGERPRINT_BYTES]
        if current <= after:
            return False
        after = current
    return True


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    if not 0 < len(value) <= _MOST_CHARS or not value.isprintable():
        raise ValueError("a text is empty, too long or not printable")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    if not 0 < value < 1 << 62:
        raise ValueError("a number is out of range")
    return value
