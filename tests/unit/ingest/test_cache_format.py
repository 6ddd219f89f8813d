"""G36: an export of the embedding cache is bit-exact, deterministic, and refused when it is not what was written."""

from __future__ import annotations

import hashlib
import io
import os
import random
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.errors import DataLoss, InvalidArgument, NotReady
from services.ingest.cache import Header, ModelVectors, VectorBlock, Writer, read_blocks, verify
from services.ingest.cache.format import BLOCK_HEAD, CHECKSUM, FINGERPRINT_BYTES, PREAMBLE, block_rows
from services.ingest.spool import spooled

FORMAT = "undercroft-embedding-1"
Vectors = dict[str, dict[bytes, bytes]]


def cache_of(models: Sequence[tuple[int, int]], seed: int = 0) -> Vectors:
    """Make vectors by digest and fingerprint: for each (dimensions, n), random finite float16 in their bits."""
    generator = np.random.default_rng(seed)
    cache: Vectors = {}
    for number, (dimensions, count) in enumerate(models):
        bits = generator.integers(0, 1 << 16, size=(count, dimensions), dtype=np.uint16)
        # No infinity and no NaN; subnormals and both zeros are among them.
        bits[(bits & 0x7C00) == 0x7C00] &= 0x83FF
        digest = hashlib.sha256(f"model {number}".encode()).hexdigest()
        cache[digest] = {generator.bytes(FINGERPRINT_BYTES): row.astype("<u2").tobytes() for row in bits}
    return cache


def header_of(cache: Vectors) -> Header:
    models = [
        ModelVectors(digest, len(next(iter(vectors.values()))) // 2, len(vectors))
        for digest, vectors in sorted(cache.items())
    ]
    return Header(FORMAT, "undercroft 1", tuple(models))


def parts_of(cache: Vectors, rows: int | None = None) -> list[bytes]:
    """Return head, blocks and trailer of an export, with ``rows`` vectors in a block or as many as fit."""
    header = header_of(cache)
    writer = Writer(header)
    parts = [writer.head()]
    for index, model in enumerate(header.models):
        ordered = sorted(cache[model.digest].items())
        step = rows or block_rows(model.dimensions)
        for start in range(0, len(ordered), step):
            page = ordered[start : start + step]
            vectors = np.frombuffer(b"".join(vector for _, vector in page), dtype="<f2")
            block = VectorBlock(index, b"".join(key for key, _ in page), vectors.reshape(len(page), -1))
            parts.append(writer.block(block))
    return [*parts, writer.tail()]


def export(cache: Vectors, rows: int | None = None) -> bytes:
    return b"".join(parts_of(cache, rows))


def imported(exported: bytes) -> Vectors:
    file = io.BytesIO(exported)
    header = verify(file, FORMAT)
    cache: Vectors = {}
    for block in read_blocks(file):
        vectors = cache.setdefault(header.models[block.model].digest, {})
        for number in range(len(block)):
            key = block.fingerprints[number * FINGERPRINT_BYTES : (number + 1) * FINGERPRINT_BYTES]
            vectors[key] = block.vectors[number].tobytes()
    return cache


def refusal(exported: bytes) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as told:
        verify(io.BytesIO(exported), FORMAT)
    return told.value


def resealed(exported: bytes) -> bytes:
    """Return bytes with the SHA-256 at their end made right: not damaged on the way, but written so."""
    return exported[:-32] + hashlib.sha256(exported[:-32]).digest()


SMALL = [(8, 40), (3, 5)]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 60)), max_size=4),
    st.integers(0, 1 << 32),
    st.integers(1, 50),
)
def test_every_vector_comes_back_bit_for_bit(models: list[tuple[int, int]], seed: int, rows: int) -> None:
    cache = cache_of(models, seed)
    assert imported(export(cache, rows)) == cache


def test_full_blocks_fit_a_message_and_come_back(tmp_path: Path) -> None:
    cache = cache_of([(384, 3000)])
    parts = parts_of(cache)
    assert max(len(part) for part in parts) <= 1 << 20
    assert len(parts) == 2 + 3
    assert imported(b"".join(parts)) == cache


def test_equal_caches_give_equal_files_in_whatever_order_they_were_filled() -> None:
    cache = cache_of(SMALL)
    shuffled = {digest: dict(reversed(vectors.items())) for digest, vectors in reversed(cache.items())}
    assert export(shuffled) == export(cache)


def test_an_empty_cache_is_a_file_too() -> None:
    assert imported(export({})) == {}


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_one_flipped_byte_anywhere_is_damage(data: st.DataObject) -> None:
    exported = bytearray(export(cache_of(SMALL), 16))
    exported[data.draw(st.integers(0, len(exported) - 1))] ^= data.draw(st.integers(1, 255))
    assert refusal(bytes(exported)).reason == "CACHE_DAMAGED"


def test_every_truncation_is_damage() -> None:
    exported = export(cache_of(SMALL), 16)
    for length in range(len(exported)):
        told = refusal(exported[:length])
        assert told.reason == "CACHE_DAMAGED"
        assert ("empty" if not length else f"ends after {length} bytes") in told.message


def _flip(exported: bytes, parts: list[bytes], chosen: random.Random) -> bytes:
    damaged = bytearray(exported)
    for position in chosen.sample(range(len(exported)), chosen.randint(1, 5)):
        damaged[position] ^= chosen.randint(1, 255)
    return bytes(damaged)


def _truncate(exported: bytes, parts: list[bytes], chosen: random.Random) -> bytes:
    return exported[: chosen.randrange(len(exported))]


def _extend(exported: bytes, parts: list[bytes], chosen: random.Random) -> bytes:
    return exported + chosen.choice([b"\0", chosen.randbytes(chosen.randint(1, 5000)), exported])


def _swap_blocks(exported: bytes, parts: list[bytes], chosen: random.Random) -> bytes:
    moved = list(parts)
    a, b = chosen.sample(range(1, len(parts) - 1), 2)
    moved[a], moved[b] = moved[b], moved[a]
    return b"".join(moved)


def _drop_or_repeat_block(exported: bytes, parts: list[bytes], chosen: random.Random) -> bytes:
    block = chosen.randrange(1, len(parts) - 1)
    return b"".join([*parts[:block], *parts[block : block + 1] * chosen.choice([0, 2]), *parts[block + 1 :]])


def _zero_run(exported: bytes, parts: list[bytes], chosen: random.Random) -> bytes:
    """Lose pages of a disk: a run of zeros."""
    start = chosen.randrange(len(exported) - 600)
    return exported[:start] + bytes(600) + exported[start + 600 :]


def _other_bytes(exported: bytes, parts: list[bytes], chosen: random.Random) -> bytes:
    return chosen.choice([b"", b"PK\3\4" + chosen.randbytes(3000), chosen.randbytes(3000), b"undercroft-cache"])


DAMAGES = [_flip, _truncate, _extend, _swap_blocks, _drop_or_repeat_block, _zero_run, _other_bytes]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__.strip("_"))
def test_every_random_damage_is_refused(damage: Callable[[bytes, list[bytes], random.Random], bytes]) -> None:
    chosen = random.Random(damage.__name__)
    parts = parts_of(cache_of([(16, 100), (8, 64)]), 16)
    exported = b"".join(parts)
    assert imported(exported)
    for _ in range(60):
        damaged = damage(exported, parts, chosen)
        assert damaged != exported
        told = refusal(damaged)
        assert told.reason == "CACHE_DAMAGED"
        assert told.remedy


def test_a_refusal_says_what_is_wrong_and_where() -> None:
    parts = parts_of(cache_of([(8, 40)]), 16)
    head, first, second = (len(part) for part in parts[:3])
    exported = b"".join(parts)
    flipped = bytearray(exported)
    flipped[head + first + 20] ^= 1
    assert (
        f"block 2 is damaged (bytes {head + first} to {head + first + second - 1})" in refusal(bytes(flipped)).message
    )
    assert "within block 1" in refusal(exported[: head + 5]).message
    assert "3 bytes follow its end" in refusal(exported + b"abc").message
    assert "does not begin as an export" in refusal(b"#!/bin/sh\n").message
    assert "it is empty" in refusal(b"").message
    assert "out of order" in refusal(b"".join([parts[0], parts[2], parts[1], *parts[3:]])).message


def test_another_format_version_is_incompatible_only_when_the_file_is_whole() -> None:
    exported = bytearray(export(cache_of(SMALL)))
    struct.pack_into("<I", exported, 16, 7)
    assert refusal(bytes(exported)).reason == "CACHE_DAMAGED"
    told = refusal(resealed(bytes(exported)))
    assert told.reason == "CACHE_INCOMPATIBLE"
    assert "format 7" in told.message
    assert told.remedy


def test_fingerprints_of_another_format_are_incompatible() -> None:
    header = replace(header_of({}), embedding_format="undercroft-embedding-2")
    writer = Writer(header)
    told = refusal(writer.head() + writer.tail())
    assert told.reason == "CACHE_INCOMPATIBLE"
    assert "undercroft-embedding-2" in told.message
    assert FORMAT in told.message


def _head(encoded: bytes) -> bytes:
    head = PREAMBLE.pack(b"undercroft-cache", 1, len(encoded)) + encoded
    return head + CHECKSUM.pack(zlib.crc32(head))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"embedding_format":1,"models":[],"product":"p"}',
        b'{"embedding_format":"f","models":{},"product":null}',
        b'{"embedding_format":"f","models":[{"digest":"d","dimensions":0,"vectors":1}],"product":"p"}',
        b'{"embedding_format":"f","models":[{"digest":"d","dimensions":-1,"vectors":1}],"product":"p"}',
        b'{"embedding_format":"f","models":[{"digest":"d","dimensions":1e9,"vectors":1}],"product":"p"}',
        b'{"embedding_format":"f","models":[{"digest":"d","dimensions":999999,"vectors":1}],"product":"p"}',
        b'{"embedding_format":"f","models":[{"digest":"","dimensions":1,"vectors":1}],"product":"p"}',
        b'{"embedding_format":"f","models":[{"digest":"a\\u0000","dimensions":1,"vectors":1}],"product":"p"}',
        b'{"embedding_format":"f","models":[{"digest":"d","dimensions":1,"vectors":true}],"product":"p"}',
        b'{"embedding_format":"f","models":[{"digest":"b","dimensions":1,"vectors":1},'
        b'{"digest":"a","dimensions":1,"vectors":1}],"product":"p"}',
    ],
)
def test_a_sealed_file_with_a_header_that_is_none_is_refused(header: bytes) -> None:
    trailer = struct.pack("<4sQ", b"TAIL", 0) + bytes(32)
    assert refusal(resealed(_head(header) + trailer)).reason == "CACHE_DAMAGED"


def test_a_sealed_file_that_contradicts_itself_is_refused() -> None:
    parts = parts_of(cache_of([(4, 30)]), 10)
    for wrong in (
        # Fewer, more, repeated and disordered vectors than the header and the trailer say.
        [*parts[:-2], parts[-1]],
        [*parts[:2], *parts[1:]],
        [parts[0], parts[2], parts[1], *parts[3:]],
        [*parts[:-1], struct.pack("<4sQ", b"TAIL", 31) + bytes(32)],
    ):
        assert refusal(resealed(b"".join(wrong))).reason == "CACHE_DAMAGED"


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_value_that_is_not_finite_is_refused(value: float) -> None:
    header = Header(FORMAT, "p", (ModelVectors("d", 3, 1),))
    writer = Writer(header)
    block = VectorBlock(0, bytes(31) + b"\1", np.array([[0.5, value, 0.1]], dtype="<f2"))
    told = refusal(writer.head() + writer.block(block) + writer.tail())
    assert told.reason == "CACHE_DAMAGED"
    assert "not finite" in told.message


def test_a_block_that_claims_to_be_huge_costs_no_memory() -> None:
    """A size in the file is believed only within what a block may have."""
    parts = parts_of(cache_of([(4, 30)]))
    forged = BLOCK_HEAD.pack(b"BLCK", 0, 1 << 31) + parts[1][BLOCK_HEAD.size :]
    assert refusal(resealed(b"".join([parts[0], forged, parts[2]]))).reason == "CACHE_DAMAGED"
    preamble = PREAMBLE.pack(b"undercroft-cache", 1, (1 << 32) - 1)
    assert refusal(resealed(preamble + parts[0][PREAMBLE.size :] + parts[2])).reason == "CACHE_DAMAGED"


def test_a_cache_that_does_not_fit_its_counts_is_never_sealed() -> None:
    header = Header(FORMAT, "p", (ModelVectors("d", 2, 2),))
    vectors = np.zeros((1, 2), dtype="<f2")
    first, second = VectorBlock(0, b"\1" * 32, vectors), VectorBlock(0, b"\2" * 32, vectors)
    writer = Writer(header)
    writer.head()
    writer.block(second)
    with pytest.raises(DataLoss):
        writer.tail()
    with pytest.raises(DataLoss):
        writer.block(first)
    with pytest.raises(DataLoss):
        writer.block(VectorBlock(0, b"\3" * 32, np.zeros((1, 3), dtype="<f2")))


async def _parts(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_parts_are_spooled_in_order_and_leave_nothing(tmp_path: Path) -> None:
    async with spooled(_parts(b"ab", b"", b"cd"), tmp_path / "new" / "folder", "export", 0) as file:
        assert file.read() == b"abcd"
        file.seek(1)
        assert file.read(2) == b"bc"
    assert os.listdir(tmp_path / "new" / "folder") == []


async def test_a_disk_without_room_refuses_before_it_is_full(tmp_path: Path) -> None:
    with pytest.raises(NotReady) as told:
        async with spooled(_parts(b"ab"), tmp_path, "export", 1 << 62):
            pass
    assert told.value.reason == "LOCAL_DISK_UNWRITABLE"
    assert "No space left" in told.value.message
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotReady):
        async with spooled(_parts(b"ab"), tmp_path / "file", "export", 0):
            pass
