"""Batches across callers: texts of one length bucket run together, whoever sent them.

Queries overtake passages and have a request of the engine to themselves. Both queues are bounded; work whose caller is
gone or whose deadline has passed is dropped when its turn comes, without being run.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import structlog

from services.core.errors import Overloaded, Unavailable
from services.embed import metrics
from services.embed.backends import Float32Array, Lane
from services.embed.engine import Engine
from services.embed.recipe import Purpose
from services.embed.tokenization import TokenIds, Tokens

log = structlog.get_logger(__name__)

# Before the first batch has been timed; a slow processor does better than this.
_ASSUMED_TOKENS_PER_S = 4000.0
_SMOOTHING = 0.1
_SHORTEST_RETRY_S = 0.1
_LONGEST_RETRY_S = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Vectors (float32, texts x dimensions) in the order of the texts, and where the time went.

    ``queue_s`` is the longest wait of a text; ``infer_s`` the time of all batches that carried one.
    """

    vectors: Float32Array
    queue_s: float
    infer_s: float


@dataclass(slots=True, eq=False)
class _Job:
    """The texts of one caller."""

    vectors: Float32Array
    left: int
    done: asyncio.Future[None]
    enqueued_at: float
    deadline: float | None
    waiting: int
    queue_s: float = 0.0
    infer_s: float = 0.0


@dataclass(slots=True, eq=False)
class _Text:
    job: _Job
    row: int
    ids: TokenIds


@dataclass(slots=True)
class _Queue:
    """Waiting texts of one purpose, by length bucket; the oldest text decides which bucket runs next."""

    by_bucket: dict[int, deque[_Text]] = field(default_factory=dict)
    texts: int = 0
    tokens: int = 0

    def oldest_bucket(self) -> int | None:
        oldest = min(self.by_bucket.items(), key=lambda item: item[1][0].job.enqueued_at, default=None)
        return None if oldest is None else oldest[0]


class Batcher:
    """Runs one engine for many callers. Belongs to one event loop.

    ``capacity`` is the number of texts that may wait, for queries and for passages each. ``slots`` bounds the passage
    batches that run at once over all batchers of the process.
    """

    def __init__(self, engine: Engine, *, capacity: int, slots: asyncio.Semaphore) -> None:
        self.engine = engine
        self.capacity = capacity
        self._slots = slots
        self._queues = {purpose: _Queue() for purpose in Purpose}
        self._wake = {lane: asyncio.Event() for lane in Lane}
        self._tokens_per_s = _ASSUMED_TOKENS_PER_S
        self._threads = ThreadPoolExecutor(engine.threads + 1, thread_name_prefix="infer")
        self._workers = [asyncio.create_task(self._work(Lane.QUERY))]
        self._workers += [asyncio.create_task(self._work(Lane.BULK)) for _ in range(engine.threads)]
        self._is_closed = False

    @property
    def queue_length(self) -> int:
        """Texts that wait now."""
        return sum(queue.texts for queue in self._queues.values())

    async def embed(self, tokens: Sequence[Tokens], purpose: Purpose, *, timeout_s: float | None = None) -> Answer:
        """Embed tokenized texts.

        Raises ``Overloaded`` when they do not fit into the queue, ``Unavailable`` when ``timeout_s`` is over before
        their turn or the batcher closes. Cancelling drops what has not started.
        """
        loop = asyncio.get_running_loop()
        queue = self._queues[purpose]
        if self._is_closed:
            raise _closed()
        if queue.texts + len(tokens) > self.capacity:
            metrics.REFUSED.labels(purpose.value).inc(len(tokens))
            raise Overloaded(
                f"{queue.texts} texts wait already; {len(tokens)} more do not fit into {self.capacity}.",
                retry_after_s=self._retry_after_s(queue),
                remedy="Call again after the time that the answer states, with fewer texts at once.",
            )
        now = loop.time()
        job = _Job(
            vectors=np.empty((len(tokens), self.engine.recipe.dimensions), dtype=np.float32),
            left=len(tokens),
            done=loop.create_future(),
            enqueued_at=now,
            deadline=None if timeout_s is None else now + timeout_s,
            waiting=len(tokens),
        )
        if not tokens:
            return Answer(vectors=job.vectors, queue_s=0.0, infer_s=0.0)
        for row, item in enumerate(tokens):
            bucket = self.engine.bucket(item)
            queue.by_bucket.setdefault(bucket, deque()).append(_Text(job=job, row=row, ids=item.ids))
            queue.tokens += bucket
        self._count(queue, purpose, len(tokens))
        for event in self._wake.values():
            event.set()
        try:
            await job.done
        except asyncio.CancelledError:
            # Its texts stay where they are and are skipped; they no longer count as waiting.
            self._count(queue, purpose, -job.waiting)
            job.waiting = 0
            raise
        return Answer(vectors=job.vectors, queue_s=job.queue_s, infer_s=job.infer_s)

    async def close(self) -> None:
        """Stop the workers after the batches that run, and fail what still waits."""
        self._is_closed = True
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._fail_waiting(_closed())
        # Batches that run are waited for, but not by the event loop.
        await asyncio.to_thread(self._threads.shutdown)

    def _fail_waiting(self, error: Exception) -> None:
        """Fail every text that waits."""
        for purpose, queue in self._queues.items():
            for texts in queue.by_bucket.values():
                for text in texts:
                    _fail(text.job, error)
                    text.job.waiting = 0
            queue.by_bucket.clear()
            queue.tokens = 0
            self._count(queue, purpose, -queue.texts)

    async def _work(self, lane: Lane) -> None:
        loop = asyncio.get_running_loop()
        slots: contextlib.AbstractAsyncContextManager[None] = (
            self._slots if lane is Lane.BULK else contextlib.nullcontext()
        )
        while True:
            await self._wake[lane].wait()
            async with slots:
                try:
                    taken = self._take(lane)
                except Exception as error:
                    # Whatever it is: a worker that ends serves nobody any more, and nothing would tell.
                    log.exception("a batch could not be made")
                    self._fail_waiting(error)
                    continue
                if taken is None:
                    self._wake[lane].clear()
                    continue
                bucket, texts = taken
                started = time.perf_counter()
                rows = [text.ids for text in texts]
                try:
                    vectors = await loop.run_in_executor(self._threads, self.engine.infer, rows, bucket, lane)
                except asyncio.CancelledError:
                    for text in texts:
                        _fail(text.job, _closed())
                    raise
                except Exception as error:
                    for text in texts:
                        _fail(text.job, error)
                    continue
                self._deliver(texts, vectors, bucket, time.perf_counter() - started)

    def _take(self, lane: Lane) -> tuple[int, list[_Text]] | None:
        """Take the next batch that this lane may run: queries first, passages on the bulk lane only."""
        purposes = (Purpose.QUERY,) if lane is Lane.QUERY else (Purpose.QUERY, Purpose.PASSAGE)
        now = asyncio.get_running_loop().time()
        for purpose in purposes:
            queue = self._queues[purpose]
            while (bucket := queue.oldest_bucket()) is not None:
                texts = self._take_bucket(queue, purpose, bucket, now)
                if texts:
                    return bucket, texts
        return None

    def _take_bucket(self, queue: _Queue, purpose: Purpose, bucket: int, now: float) -> list[_Text]:
        waiting = queue.by_bucket[bucket]
        most = self.engine.most_rows(bucket)
        texts: list[_Text] = []
        while waiting and len(texts) < most:
            text = waiting.popleft()
            queue.tokens -= bucket
            job = text.job
            if job.done.done():
                self._count(queue, purpose, -job.waiting)
                job.waiting = 0
            elif job.deadline is not None and now > job.deadline:
                metrics.EXPIRED.labels(purpose.value).inc(job.waiting)
                self._count(queue, purpose, -job.waiting)
                job.waiting = 0
                _fail(job, Unavailable("The deadline passed while the texts waited.", reason="DEADLINE_EXCEEDED"))
            else:
                texts.append(text)
        # Rows come in powers of two; the rest goes back to the front, in its order.
        rows = 1 << (len(texts).bit_length() - 1) if texts else 0
        waiting.extendleft(reversed(texts[rows:]))
        queue.tokens += bucket * (len(texts) - rows)
        if not waiting:
            del queue.by_bucket[bucket]
        for text in texts[:rows]:
            text.job.waiting -= 1
            text.job.queue_s = max(text.job.queue_s, now - text.job.enqueued_at)
        self._count(queue, purpose, -rows)
        return texts[:rows]

    def _deliver(self, texts: Sequence[_Text], vectors: Float32Array, bucket: int, elapsed_s: float) -> None:
        rate = len(texts) * bucket / max(elapsed_s, 1e-6)
        self._tokens_per_s += _SMOOTHING * (rate - self._tokens_per_s)
        metrics.BATCH_ROWS.observe(len(texts))
        metrics.BATCH_SECONDS.observe(elapsed_s)
        for job in {id(text.job): text.job for text in texts}.values():
            job.infer_s += elapsed_s
        for text, vector in zip(texts, vectors, strict=True):
            text.job.vectors[text.row] = vector
            text.job.left -= 1
            if text.job.left == 0 and not text.job.done.done():
                text.job.done.set_result(None)

    def _count(self, queue: _Queue, purpose: Purpose, change: int) -> None:
        queue.texts += change
        metrics.WAITING.labels(purpose.value).inc(change)

    def _retry_after_s(self, queue: _Queue) -> float:
        rate = self._tokens_per_s * self.engine.threads
        return min(_LONGEST_RETRY_S, max(_SHORTEST_RETRY_S, queue.tokens / rate))


def _fail(job: _Job, error: BaseException) -> None:
    if not job.done.done():
        job.done.set_exception(error)


def _closed() -> Unavailable:
    return Unavailable("The model is being unloaded.", remedy="Call again.", reason="MODEL_UNLOADING")
