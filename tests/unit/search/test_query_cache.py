"""Vectors of queries are kept within bounds, made once for all who ask at the same time, and never those of others."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import sys
import traceback
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from undercroft.embed.v1 import embed_service_pb2

from services.core.errors import NotReady, Overloaded, UndercroftError
from services.search.embedding import QueryCache, QueryEmbedding, _size_bytes
from services.search.steps.base import QueryVector

MODEL, DIGEST = "minilm", "d" * 64
AMPLE = 1 << 30


def vector_of(digest: str, text: str, dimensions: int = 8) -> QueryVector:
    """What the model of a digest makes of a text: other bits for every other digest and text."""
    return QueryVector(hashlib.shake_256(f"{digest}\0{text}".encode()).digest(4 * dimensions))


@dataclass
class Model:
    """Embeds when it is let, counts calls, and notes those that were cancelled."""

    dimensions: int = 8
    failure: Exception | None = None
    before_failing: Callable[[], None] = lambda: None
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    async def embed(self, model: str, digest: str, text: str) -> QueryVector:
        self.calls.append((model, digest, text))
        try:
            await asyncio.sleep(0)
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(text)
            raise
        if (failure := self.failure) is not None:
            self.before_failing()
            raise failure
        return vector_of(digest, text, self.dimensions)

    def cache(self, *, max_entries: int = 100, max_bytes: int = AMPLE) -> QueryCache:
        return QueryCache(self.embed, max_entries=max_entries, max_bytes=max_bytes)


async def turns(count: int = 5) -> None:
    """Let everything that is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)


def ask(cache: QueryCache, text: str, *, digest: str = DIGEST, model: str = MODEL) -> asyncio.Task[QueryVector]:
    return asyncio.create_task(cache.vector(model, digest, text))


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"undercroft_search_query_cache_{name}", labels) or 0.0


def lookups() -> Counter[str]:
    return Counter({one: int(counted("lookups_total", result=one)) for one in ("hit", "miss", "shared")})


@pytest.fixture
async def left_behind() -> AsyncIterator[list[dict[str, object]]]:
    """What the loop is told of tasks whose errors nobody took, when they are collected."""
    told: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))
    yield told
    loop.set_exception_handler(None)


async def test_an_equal_query_is_embedded_once() -> None:
    model, before = Model(), lookups()
    cache = model.cache()
    first, second = await cache.vector(MODEL, DIGEST, "who calls it"), await cache.vector(MODEL, DIGEST, "who calls it")
    assert first is second
    assert first == vector_of(DIGEST, "who calls it")
    assert len(model.calls) == 1
    assert lookups() - before == {"miss": 1, "hit": 1}


@pytest.mark.parametrize("other", ["Who calls it", "who calls it ", "who  calls it", "who calls it?"])
async def test_a_query_that_differs_at_all_is_another(other: str) -> None:
    model = Model()
    for texts in (("who calls it", other), (other, "who calls it")):
        cache = model.cache()
        for text in texts * 2:
            assert await cache.vector(MODEL, DIGEST, text) == vector_of(DIGEST, text)
    assert len(model.calls) == 4


async def test_another_digest_under_the_same_name_is_another_model() -> None:
    model = Model()
    cache = model.cache()
    old, new = await cache.vector(MODEL, DIGEST, "q"), await cache.vector(MODEL, "e" * 64, "q")
    assert (old, new) == (vector_of(DIGEST, "q"), vector_of("e" * 64, "q"))
    assert await cache.vector(MODEL, DIGEST, "q") == old
    assert len(model.calls) == 2


async def test_the_same_model_under_another_name_is_known() -> None:
    model = Model()
    cache = model.cache()
    assert await cache.vector(MODEL, DIGEST, "q") is await cache.vector("a-copy", DIGEST, "q")


async def test_the_same_model_under_two_names_is_kept_once_and_a_missing_directory_fails_only_its_own_name() -> None:
    model = Model()
    cache = model.cache()
    model.gate.clear()
    both = [ask(cache, "q"), ask(cache, "q", model="a-copy")]
    await turns()
    model.gate.set()
    assert await both[0] == await both[1]
    assert [name for name, _, _ in model.calls] == [MODEL, "a-copy"]
    assert counted("entries") == 1
    assert counted("bytes") == _size_bytes((DIGEST, "q"), both[0].result())


async def test_equal_queries_at_the_same_time_share_one_call() -> None:
    model, before = Model(), lookups()
    cache = model.cache()
    model.gate.clear()
    waiting = [ask(cache, "q") for _ in range(50)] + [ask(cache, "other")]
    await turns()
    model.gate.set()
    vectors = await asyncio.gather(*waiting)
    assert {id(one) for one in vectors[:50]} == {id(vectors[0])}
    assert [text for _, _, text in model.calls] == ["q", "other"]
    assert lookups() - before == {"miss": 2, "shared": 49}


@pytest.mark.parametrize("leaving", [range(1), range(1, 5), range(4)], ids=["the first", "all later", "all but one"])
async def test_who_is_cancelled_leaves_the_call_to_the_others(leaving: range) -> None:
    model = Model()
    cache = model.cache()
    model.gate.clear()
    waiting = [ask(cache, "q") for _ in range(5)]
    await turns()
    for number in leaving:
        waiting[number].cancel()
    await turns()
    model.gate.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in answers] == [n in leaving for n in range(5)]
    assert {one.packed for one in answers if isinstance(one, QueryVector)} == {vector_of(DIGEST, "q").packed}
    assert len(model.calls) == 1
    assert not model.cancelled


async def test_a_deadline_ends_the_wait_of_its_caller_alone() -> None:
    model = Model()
    cache = model.cache()
    model.gate.clear()
    patient = ask(cache, "q")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(cache.vector(MODEL, DIGEST, "q"), 0.01)
    model.gate.set()
    assert await patient == vector_of(DIGEST, "q")
    assert len(model.calls) == 1


async def test_the_call_is_cancelled_with_its_last_waiter_and_the_next_caller_makes_another() -> None:
    model = Model()
    cache = model.cache()
    model.gate.clear()
    waiting = [ask(cache, "q") for _ in range(3)]
    await turns()
    for task in waiting:
        task.cancel()
    # Comes before the cancelled call has ended, and must neither join it nor be taken for it when it ends.
    await turns(1)
    late = [ask(cache, "q"), ask(cache, "q")]
    await turns()
    assert model.cancelled == ["q"]
    model.gate.set()
    assert await late[0] is await late[1]
    assert len(model.calls) == 2
    assert await cache.vector(MODEL, DIGEST, "q") is late[0].result()


async def test_a_search_that_ends_early_cancels_what_only_it_waits_for() -> None:
    model = Model()
    cache = model.cache()
    model.gate.clear()
    one, other = QueryEmbedding(cache.vector, "q"), QueryEmbedding(cache.vector, "q")
    one.ask(MODEL, DIGEST)
    answer = other.ask(MODEL, DIGEST)
    await turns()
    await one.close()
    await turns()
    assert not model.cancelled
    model.gate.set()
    assert await answer == vector_of(DIGEST, "q")
    await other.close()

    model.gate.clear()
    alone = QueryEmbedding(cache.vector, "another")
    alone.ask(MODEL, DIGEST)
    await turns()
    await alone.close()
    await turns()
    assert model.cancelled == ["another"]


async def test_an_error_is_told_to_all_who_wait_each_with_its_own_and_the_next_caller_tries_again() -> None:
    model = Model(failure=NotReady("No such model.", remedy="Load it.", reason="MODEL_REFUSED", metadata={"a": "b"}))
    cache = model.cache()
    model.gate.clear()
    waiting = [ask(cache, "q") for _ in range(20)]
    await turns()
    model.gate.set()
    told = await asyncio.gather(*waiting, return_exceptions=True)
    assert len({id(one) for one in told}) == 20
    for one in told:
        assert isinstance(one, NotReady)
        assert (one.message, one.remedy, one.reason) == ("No such model.", "Load it.", "MODEL_REFUSED")
        assert one.metadata == {"a": "b"}
        assert one.__cause__ is model.failure
    # What each raises further adds to its own traceback: the shared cause stays as it was raised.
    depths = {len(traceback.extract_tb(one.__traceback__)) for one in told if isinstance(one, BaseException)}
    assert len(depths) == 1
    assert len(traceback.extract_tb(model.failure.__traceback__)) <= 3
    assert len(model.calls) == 1

    model.failure = None
    assert await cache.vector(MODEL, DIGEST, "q") == vector_of(DIGEST, "q")
    assert len(model.calls) == 2


async def test_who_asks_right_after_a_failure_does_not_get_the_old_error() -> None:
    """Between the end of a call and the turn of its waiters: what has failed is not joined, nor takes what came after
    it along."""
    model = Model(failure=NotReady("Away."))
    cache = model.cache()
    late: list[asyncio.Task[QueryVector]] = []

    def others_come() -> None:
        model.failure = None
        model.gate.clear()
        late.append(ask(cache, "q"))

    model.before_failing = others_come
    with pytest.raises(NotReady):
        await cache.vector(MODEL, DIGEST, "q")
    late.append(ask(cache, "q"))
    await turns()
    model.gate.set()
    assert await late[0] is await late[1]
    assert len(model.calls) == 2


async def test_what_an_error_says_besides_its_message_is_told_too() -> None:
    model = Model(failure=Overloaded("Full.", retry_after_s=7.0))
    with pytest.raises(Overloaded) as told:
        await model.cache().vector(MODEL, DIGEST, "q")
    assert told.value.retry_after_s == 7.0


async def test_an_error_of_the_program_stays_what_it_is() -> None:
    model = Model(failure=ZeroDivisionError("a fault"))
    cache = model.cache()
    told = await asyncio.gather(*(cache.vector(MODEL, DIGEST, "q") for _ in range(3)), return_exceptions=True)
    assert all(isinstance(one, ZeroDivisionError) for one in told)
    assert not any(isinstance(one, UndercroftError) for one in told)


async def test_an_error_that_nobody_waits_for_any_more_is_nobodys(left_behind: list[dict[str, object]]) -> None:
    async def leave_as_it_fails() -> None:
        model = Model(failure=NotReady("Away."))
        waiting = ask(model.cache(), "q")
        model.before_failing = lambda: asyncio.get_running_loop().call_soon(waiting.cancel)
        await asyncio.wait((waiting,))
        assert waiting.cancelled()

    await leave_as_it_fails()
    await turns()
    gc.collect()
    assert not left_behind


async def test_the_least_recently_used_goes_first_and_comes_back_with_the_same_bits() -> None:
    model, evicted = Model(), counted("evicted_total")
    cache = model.cache(max_entries=2)
    first = await cache.vector(MODEL, DIGEST, "a")
    await cache.vector(MODEL, DIGEST, "b")
    await cache.vector(MODEL, DIGEST, "a")
    await cache.vector(MODEL, DIGEST, "c")
    assert await cache.vector(MODEL, DIGEST, "a") is first
    assert await cache.vector(MODEL, DIGEST, "b") == vector_of(DIGEST, "b")
    assert [text for _, _, text in model.calls] == ["a", "b", "c", "b"]
    assert counted("evicted_total") - evicted == 2
    assert counted("entries") == 2


async def test_long_queries_count_for_what_they_take() -> None:
    model = Model()
    cache = model.cache(max_bytes=100_000)
    for number in range(20):
        # A character of CJK takes two bytes in memory.
        await cache.vector(MODEL, DIGEST, "漢" * 8000 + str(number))
    assert counted("entries") == 6
    assert 90_000 < counted("bytes") <= 100_000


async def test_a_text_that_others_make_larger_is_given_back_at_the_size_it_was_counted_at() -> None:
    """Whoever reads a text as UTF-8, as every extension does, leaves the bytes in it."""
    model = Model()
    cache = model.cache(max_entries=2)
    for number in range(10):
        text = "漢" * 8000 + str(number)
        await cache.vector(MODEL, DIGEST, text)
        before = sys.getsizeof(text)
        embed_service_pb2.EmbedRequest(texts=[text])
        assert sys.getsizeof(text) > before
    fresh = _size_bytes((DIGEST, "漢" * 8000 + "9"), vector_of(DIGEST, "q"))
    assert counted("entries") == 2
    assert counted("bytes") == 2 * fresh


async def test_what_is_larger_than_the_whole_cache_leaves_the_others_in_it() -> None:
    model = Model()
    cache = model.cache(max_bytes=2000)
    await cache.vector(MODEL, DIGEST, "short")
    await cache.vector(MODEL, DIGEST, "long" * 1000)
    await cache.vector(MODEL, DIGEST, "short")
    await cache.vector(MODEL, DIGEST, "long" * 1000)
    assert [len(text) for _, _, text in model.calls] == [5, 4000, 4000]


@pytest.mark.parametrize(("max_entries", "max_bytes"), [(0, AMPLE), (100, 0)])
async def test_a_bound_of_nothing_keeps_nothing_and_calls_are_still_shared(max_entries: int, max_bytes: int) -> None:
    model, evicted = Model(), counted("evicted_total")
    cache = model.cache(max_entries=max_entries, max_bytes=max_bytes)
    for _ in range(3):
        assert await cache.vector(MODEL, DIGEST, "q") == vector_of(DIGEST, "q")
    assert len(model.calls) == 3
    assert counted("evicted_total") == evicted
    await asyncio.gather(*(cache.vector(MODEL, DIGEST, "q") for _ in range(10)))
    assert len(model.calls) == 4


Ask = tuple[str, str]
ASKS = st.lists(
    st.lists(st.tuples(st.sampled_from(["d" * 64, "e" * 64]), st.text("aé漢", max_size=3)), min_size=1, max_size=6),
    max_size=12,
)


@given(ASKS, st.integers(0, 5), st.integers(0, 3000))
async def test_whatever_is_asked_in_whatever_order_bits_are_right_and_both_bounds_hold(
    waves: list[list[Ask]], max_entries: int, max_bytes: int
) -> None:
    """Waves of concurrent queries against a plain list that is cut in the order of use."""

    model = Model()
    cache = model.cache(max_entries=max_entries, max_bytes=max_bytes)
    expected: OrderedDict[Ask, int] = OrderedDict()
    calls = 0
    for wave in waves:
        vectors = await asyncio.gather(*(cache.vector(MODEL, digest, text) for digest, text in wave))
        assert vectors == [vector_of(digest, text) for digest, text in wave]
        for one in wave:
            if one in expected:
                expected.move_to_end(one)
        made = [one for one in dict.fromkeys(wave) if one not in expected]
        calls += len(made)
        for one in made:
            size = _size_bytes(one, vector_of(*one))
            if max_entries and size <= max_bytes:
                expected[one] = size
                while len(expected) > max_entries or sum(expected.values()) > max_bytes:
                    expected.popitem(last=False)
        assert len(model.calls) == calls
        assert list(cache._kept) == list(expected)
        assert cache._kept_bytes == sum(expected.values()) <= max_bytes
        assert len(cache._kept) <= max_entries
        assert not cache._flights
