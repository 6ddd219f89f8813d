"""Query vectors from the real embed service: the bits are those of the service, however they come about."""

from __future__ import annotations

import asyncio
import random

import numpy as np
import psycopg
import pytest
from undercroft.embed.v1 import embed_pb2, embed_service_pb2, embed_service_pb2_grpc

from services.core.db import migrate
from services.core.errors import NotReady, Unavailable
from services.core.grpc import open_channel
from services.search.embedding import EmbedClient, QueryCache
from services.search.steps.base import QueryVector
from tests.integration.search.conftest import MODEL, OTHER, Embedder, Models
from tests.support.postgres import PostgresForTests

AMPLE = 1 << 30
QUERIES = [f"{verb} the {noun}" for verb in ("open", "close", "parse") for noun in ("file", "index", "漢字", "Straße")]


def cache_over(client: EmbedClient, *, max_entries: int = 1000) -> QueryCache:
    return QueryCache(client.embed_query, max_entries=max_entries, max_bytes=AMPLE)


async def straight(embedder: Embedder, model: str, text: str) -> QueryVector:
    """Ask the service without anything of search between."""
    async with open_channel(embedder.target) as channel:
        stub: embed_service_pb2_grpc.EmbedServiceAsyncStub = embed_service_pb2_grpc.EmbedServiceStub(channel)
        task = embed_pb2.EMBED_TASK_QUERY
        response = await stub.Embed(embed_service_pb2.EmbedRequest(model=model, texts=[text], task=task))
    return QueryVector(response.vectors.values, response.probe_fingerprint, response.probe_cosine)


@pytest.mark.parametrize("max_entries", [0, 3, 1000], ids=["no cache", "evicting", "cache"])
async def test_bits_are_those_of_the_service_with_and_without_a_cache_at_once_and_after_eviction(
    embedder: Embedder, client: EmbedClient, models: Models, max_entries: int
) -> None:
    expected = {(m, text): await straight(embedder, m, text) for m in models.digests for text in QUERIES}
    assert len({one.packed for one in expected.values()}) == len(expected)
    cache = cache_over(client, max_entries=max_entries)
    asked = list(expected) * 4
    random.Random(4).shuffle(asked)
    for start in range(0, len(asked), 8):
        wave = asked[start : start + 8]
        vectors = await asyncio.gather(*(cache.vector(model, models.digests[model], text) for model, text in wave))
        assert vectors == [expected[one] for one in wave]


async def test_queries_at_the_same_time_make_one_call_and_later_ones_none(
    embedder: Embedder, client: EmbedClient, models: Models
) -> None:
    cache = cache_over(client)
    embedder.turnstile.opened.clear()
    waiting = [asyncio.create_task(cache.vector(MODEL, models.digests[MODEL], "open a file")) for _ in range(20)]
    await embedder.turnstile.arrival()
    # The first, who made the call, goes: the others get its answer.
    waiting[0].cancel()
    embedder.turnstile.opened.set()
    vectors = set(await asyncio.gather(*waiting[1:]))
    vectors.add(await cache.vector(MODEL, models.digests[MODEL], "open a file"))
    assert len(vectors) == 1
    assert embedder.turnstile.texts == ["open a file"]
    assert not embedder.turnstile.left


async def test_the_service_is_told_when_nobody_waits_any_more(
    embedder: Embedder, client: EmbedClient, models: Models
) -> None:
    cache = cache_over(client)
    embedder.turnstile.opened.clear()
    waiting = [asyncio.create_task(cache.vector(MODEL, models.digests[MODEL], "open a file")) for _ in range(3)]
    await embedder.turnstile.arrival()
    for task in waiting:
        task.cancel()
    await embedder.turnstile.departure()
    embedder.turnstile.opened.set()
    assert await cache.vector(MODEL, models.digests[MODEL], "open a file")
    assert embedder.turnstile.texts == ["open a file"] * 2


async def test_a_model_that_was_exchanged_is_not_taken_for_the_one_that_is_asked_for(
    embedder: Embedder, client: EmbedClient, models: Models
) -> None:
    cache = cache_over(client)
    kept = await cache.vector(MODEL, models.digests[MODEL], "open a file")
    for _ in range(2):
        with pytest.raises(NotReady) as told:
            await cache.vector(OTHER, models.digests[MODEL][::-1], "open a file")
        assert told.value.reason == "MODEL_CHANGED"
        assert told.value.remedy
    assert await cache.vector(OTHER, models.digests[OTHER], "open a file") != kept
    assert len(embedder.turnstile.texts) == 4


async def test_while_the_service_is_away_known_queries_are_answered_and_new_ones_when_it_is_back(
    models: Models,
) -> None:
    embedder = Embedder(models.folder)
    async with embedder.serving():
        client = EmbedClient(embedder.target)
        cache = cache_over(client)
        known = await cache.vector(MODEL, models.digests[MODEL], "known")
    try:
        assert await cache.vector(MODEL, models.digests[MODEL], "known") == known
        told = await asyncio.gather(
            *(cache.vector(MODEL, models.digests[MODEL], "new") for _ in range(5)), return_exceptions=True
        )
        assert [one.reason for one in told if isinstance(one, Unavailable)] == ["EMBED_UNAVAILABLE"] * 5
        async with embedder.serving(), asyncio.timeout(30):
            while True:
                try:
                    assert await cache.vector(MODEL, models.digests[MODEL], "new")
                    break
                except Unavailable:
                    await asyncio.sleep(0.05)
    finally:
        await client.close()


async def test_without_a_service_the_reason_and_the_remedy_are_told() -> None:
    with pytest.raises(NotReady) as told:
        await cache_over(EmbedClient("")).vector(MODEL, "d" * 64, "q")
    assert "UNDERCROFT_EMBED_TARGET" in told.value.remedy


def test_the_database_reads_the_bits_that_were_written(postgres: PostgresForTests) -> None:
    url = postgres.create_database()
    migrate(url)
    numbers = np.random.default_rng(4).integers(0, 2**32, size=(20, 384), dtype=np.uint32).view(np.float32)
    # Powers of two have the farthest neighbours; the database refuses what is not finite.
    numbers[0] = np.ldexp(np.float32(1), np.arange(384) % 250 - 126)
    numbers = np.where(np.isfinite(numbers) & (np.abs(numbers) > 1e-37), numbers, np.float32(0.1))
    with psycopg.connect(url) as session:
        for row in numbers.astype("<f4"):
            sent = session.execute("SELECT vector_send(%s::vector)", (QueryVector(row.tobytes()).text,)).fetchone()
            assert sent is not None
            assert np.frombuffer(sent[0][4:], dtype=">f4").astype("<f4").tobytes() == row.tobytes()
