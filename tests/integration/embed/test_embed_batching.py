"""Batches across callers: bounded, prompt for queries, and never run for nobody."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import numpy as np
import numpy.typing as npt
import pytest

from services.core.errors import Overloaded, Unavailable
from services.embed.backends import Lane
from services.embed.batching import Answer, Batcher
from services.embed.engine import Engine
from services.embed.preparation import PreparedModel
from services.embed.recipe import Purpose
from services.embed.tokenization import TokenIds, Tokens
from services.embed.verify import verify


class Gate:
    """Records the batches of an engine and can hold back those of the bulk lane."""

    def __init__(self, engine: Engine) -> None:
        self.batches: list[tuple[int, int, Lane]] = []
        self._infer: Callable[[Sequence[TokenIds], int, Lane], npt.NDArray[np.float32]] = engine.infer
        self._open = threading.Event()
        self._open.set()
        self.failing = False

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def infer(self, rows: Sequence[TokenIds], bucket: int, lane: Lane) -> npt.NDArray[np.float32]:
        self.batches.append((len(rows), bucket, lane))
        if lane is Lane.BULK:
            assert self._open.wait(30)
        if self.failing:
            raise RuntimeError("inference failed")
        return self._infer(rows, bucket, lane)


@pytest.fixture
def engine(quantized_model: PreparedModel) -> Engine:
    return verify(quantized_model.directory, threads=2).engine


@pytest.fixture
def gate(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate(engine)
    monkeypatch.setattr(engine, "infer", gate.infer)
    return gate


@asynccontextmanager
async def batcher_of(engine: Engine, capacity: int = 1000) -> AsyncIterator[Batcher]:
    batcher = Batcher(engine, capacity=capacity, slots=asyncio.Semaphore(engine.threads))
    try:
        yield batcher
    finally:
        await batcher.close()


def tokens_of(engine: Engine, texts: Sequence[str]) -> list[Tokens]:
    return engine.tokenize(texts, Purpose.PASSAGE)


def submit(
    batcher: Batcher, texts: Sequence[str], purpose: Purpose = Purpose.PASSAGE, timeout_s: float | None = None
) -> asyncio.Task[Answer]:
    return asyncio.create_task(batcher.embed(tokens_of(batcher.engine, texts), purpose, timeout_s=timeout_s))


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


async def occupy(batcher: Batcher, gate: Gate) -> list[asyncio.Task[Answer]]:
    """Fill both bulk requests with one text each, held back by the gate."""
    gate.hold()
    running = []
    for number in range(batcher.engine.threads):
        running.append(submit(batcher, ["a"]))
        await until(lambda expected=number + 1: len(gate.batches) == expected)  # type: ignore[misc]
    return running


async def test_concurrent_callers_get_the_bits_that_they_get_alone(engine: Engine) -> None:
    generator = random.Random(1)
    texts = ["x " * generator.randrange(1, 60) + str(number) for number in range(80)]
    alone = {text: engine.embed([text], Purpose.PASSAGE).vectors[0].tobytes() for text in texts}
    async with batcher_of(engine) as batcher:
        chunks = [generator.sample(texts, generator.randrange(1, 20)) for _ in range(25)]
        answers = await asyncio.gather(*(submit(batcher, chunk) for chunk in chunks))
        assert batcher.queue_length == 0
    for chunk, answer in zip(chunks, answers, strict=True):
        assert [row.tobytes() for row in answer.vectors] == [alone[text] for text in chunk]


async def test_texts_of_different_callers_share_a_batch(engine: Engine, gate: Gate) -> None:
    async with batcher_of(engine) as batcher:
        first = await occupy(batcher, gate)
        others = [submit(batcher, [f"b {number}"]) for number in range(8)]
        await until(lambda: batcher.queue_length == 8)
        gate.release()
        await asyncio.gather(*first, *others)
    assert gate.batches[2:] == [(8, 16, Lane.BULK)]


async def test_queries_do_not_wait_for_passages(engine: Engine, gate: Gate) -> None:
    async with batcher_of(engine) as batcher:
        passages = await occupy(batcher, gate)
        passages += [submit(batcher, ["a " * 40] * 20) for _ in range(3)]
        answer = await asyncio.wait_for(submit(batcher, ["where"], Purpose.QUERY), 20)
        assert answer.vectors.shape == (1, 32)
        assert not any(task.done() for task in passages)
        gate.release()
        await asyncio.gather(*passages)


async def test_a_full_queue_refuses_with_a_time_and_still_takes_queries(engine: Engine, gate: Gate) -> None:
    async with batcher_of(engine, capacity=10) as batcher:
        running = await occupy(batcher, gate)
        waiting = submit(batcher, ["b"] * 10)
        await until(lambda: batcher.queue_length == 10)
        with pytest.raises(Overloaded) as raised:
            await submit(batcher, ["c"])
        assert 0 < raised.value.retry_after_s <= 30
        assert raised.value.remedy
        assert (await submit(batcher, ["d"], Purpose.QUERY)).vectors.shape == (1, 32)
        gate.release()
        await asyncio.gather(*running, waiting)
        assert (await submit(batcher, ["c"])).vectors.shape == (1, 32)


async def test_work_whose_deadline_passed_is_dropped_without_being_run(engine: Engine, gate: Gate) -> None:
    async with batcher_of(engine) as batcher:
        running = await occupy(batcher, gate)
        late = submit(batcher, ["b " * 30, "b"], timeout_s=0.0)
        await until(lambda: batcher.queue_length == 2)
        gate.release()
        with pytest.raises(Unavailable) as raised:
            await late
        assert raised.value.reason == "DEADLINE_EXCEEDED"
        await asyncio.gather(*running)
        await until(lambda: batcher.queue_length == 0)
        assert (await submit(batcher, ["c " * 70])).vectors.shape == (1, 32)
    assert len(gate.batches) == 3


async def test_cancelled_work_is_dropped_and_frees_its_place(engine: Engine, gate: Gate) -> None:
    async with batcher_of(engine, capacity=10) as batcher:
        running = await occupy(batcher, gate)
        gone = submit(batcher, ["b"] * 10)
        await until(lambda: batcher.queue_length == 10)
        gone.cancel()
        await until(lambda: batcher.queue_length == 0)
        kept = submit(batcher, ["c"] * 10)
        await until(lambda: batcher.queue_length == 10)
        gate.release()
        await asyncio.gather(*running, kept)
        assert batcher.queue_length == 0
    assert sum(rows for rows, _, _ in gate.batches) == 12


async def test_a_failing_batch_fails_its_callers_and_nobody_else(engine: Engine, gate: Gate) -> None:
    async with batcher_of(engine) as batcher:
        gate.failing = True
        with pytest.raises(RuntimeError, match="inference failed"):
            await submit(batcher, ["a", "b " * 30, "c " * 60])
        gate.failing = False
        assert (await submit(batcher, ["a"])).vectors.shape == (1, 32)
        assert batcher.queue_length == 0


async def test_closing_answers_everybody(engine: Engine, gate: Gate) -> None:
    batcher = Batcher(engine, capacity=100, slots=asyncio.Semaphore(2))
    tasks = await occupy(batcher, gate)
    tasks += [submit(batcher, [f"{number} " * 10]) for number in range(20)]
    await until(lambda: batcher.queue_length == 20)
    closing = asyncio.create_task(batcher.close())
    await asyncio.sleep(0)
    gate.release()
    await closing
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, Unavailable) for result in results)
    with pytest.raises(Unavailable):
        await submit(batcher, ["a"])


async def test_the_oldest_text_decides_so_that_no_length_starves(engine: Engine, gate: Gate) -> None:
    async with batcher_of(engine) as batcher:
        running = await occupy(batcher, gate)
        long = submit(batcher, ["b " * 80])
        await until(lambda: batcher.queue_length == 1)
        short = [submit(batcher, ["c"] * 16) for _ in range(4)]
        await until(lambda: batcher.queue_length == 65)
        gate.release()
        await asyncio.gather(*running, long, *short)
    assert gate.batches[2][1] == 96


async def test_a_batch_that_cannot_be_made_fails_its_texts_and_no_worker(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with batcher_of(engine) as batcher:
        with monkeypatch.context() as broken:
            broken.setattr(engine, "most_rows", lambda bucket: 1 // 0)
            for purpose in Purpose:
                with pytest.raises(ZeroDivisionError):
                    await asyncio.wait_for(submit(batcher, ["a", "b"], purpose), 10)
        assert batcher.queue_length == 0
        for purpose in Purpose:
            assert (await asyncio.wait_for(submit(batcher, ["a", "b"], purpose), 10)).vectors.shape[0] == 2
