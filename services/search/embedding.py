"""Vectors of queries: asked of the embed service, kept for the next equal query, shared by those at the same time.

A vector is a function of its text, its task and its model alone (DESIGN 7): a kept one is, bit for bit, what the same
kind of processor would make anew. All of it runs on one event loop, where nothing comes between two awaits: there are
no locks.
"""

from __future__ import annotations

import asyncio
import copy
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import grpc
import grpc.aio
from undercroft.embed.v1 import embed_pb2, embed_service_pb2, embed_service_pb2_grpc

from services.core.errors import NotReady, Unavailable, UndercroftError
from services.core.grpc import error_reason, open_channel, told
from services.search import metrics
from services.search.steps.base import QueryVector

_EMBED_TIMEOUT_S = 5.0
# After a call that was not answered in time, the next queries go without for so long: a service that hangs would cost
# each of them the whole limit.
_AVOIDED_S = 3.0
# What an entry takes besides its text and its numbers: the objects around them and its place in the order. Measured.
_ENTRY_BYTES = 320

#: Embeds a query: name of the model, its digest, the text.
EmbedQuery = Callable[[str, str, str], Awaitable[QueryVector]]


class EmbedClient:
    """The embed service as search uses it."""

    def __init__(self, target: str) -> None:
        self._channel = open_channel(target) if target else None
        self._avoided_until = 0.0

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    async def embed_query(self, model: str, digest: str, text: str) -> QueryVector:
        """Embed a query; NotReady or Unavailable with the reason when that can't be done."""
        if self._channel is None:
            raise NotReady("No embed service is configured.", remedy="Set UNDERCROFT_EMBED_TARGET.")
        if time.monotonic() < self._avoided_until:
            raise _silent()
        request = embed_service_pb2.EmbedRequest(
            model=model, texts=[text], task=embed_pb2.EMBED_TASK_QUERY, expected_digest=digest
        )
        try:
            stub: embed_service_pb2_grpc.EmbedServiceAsyncStub = embed_service_pb2_grpc.EmbedServiceStub(self._channel)
            response = await stub.Embed(request, timeout=_EMBED_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                self._avoided_until = time.monotonic() + _AVOIDED_S
                raise _silent() from error
            raise _embed_error(error) from error
        # One string for all vectors of a processor.
        fingerprint = sys.intern(response.probe_fingerprint)
        return QueryVector(response.vectors.values, fingerprint, response.probe_cosine)


def _silent() -> Unavailable:
    return Unavailable(
        f"The embed service did not answer within {_EMBED_TIMEOUT_S:.0f} s.",
        remedy="See whether it loads the model, is overloaded, or hangs and must be restarted; the lexical preset needs"
        " none.",
        reason="EMBED_UNAVAILABLE",
    )


def _embed_error(error: grpc.aio.AioRpcError) -> UndercroftError:
    reason, _ = error_reason(error)
    if reason and error.code() is not grpc.StatusCode.UNAVAILABLE:
        message, remedy = told(error)
        return NotReady(message, remedy=remedy, reason=reason)
    return Unavailable(
        f"The embed service does not answer ({error.code().name}).",
        remedy="Start it or wait for it; the lexical preset needs none.",
        reason="EMBED_UNAVAILABLE",
    )


@dataclass(slots=True, eq=False)
class _Flight:
    """A query that is being embedded, and how many wait for it."""

    task: asyncio.Task[QueryVector]
    waiters: int = 0


class QueryCache:
    """Vectors of queries, the least recently used going first; equal queries at the same time make one call.

    Kept by the model's digest and the text as it was asked. That is enough: every vector here is of the task query, and
    the digest covers the weights and the recipe, with the prompt that goes before the text and the length that is read
    of it. The service is told which digest is expected, so what it answers is of no other model.

    ``max_entries`` and ``max_bytes`` (texts included) both bound what is kept; 0 keeps nothing, and equal queries still
    share calls.
    """

    def __init__(self, embed: EmbedQuery, *, max_entries: int, max_bytes: int) -> None:
        self._embed = embed
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        # With the size that was counted: a text grows when its UTF-8 form is asked for later.
        self._kept: OrderedDict[tuple[str, str], tuple[QueryVector, int]] = OrderedDict()
        self._kept_bytes = 0
        # By the model's name too: its directory may be gone where another with the same digest is not.
        self._flights: dict[tuple[str, str, str], _Flight] = {}

    async def vector(self, model: str, digest: str, text: str) -> QueryVector:
        """Return the vector of a query, kept, under way or made now; errors are those of embedding it.

        A caller who is cancelled leaves the call to the others who wait for it; with the last one it ends. An error is
        told to all who waited and not kept.
        """
        kept = self._kept.get((digest, text))
        if kept is not None:
            self._kept.move_to_end((digest, text))
            metrics.HITS.inc()
            return kept[0]
        flight = self._flight(model, digest, text)
        flight.waiters += 1
        try:
            # Unlike awaiting the task, this cancels nothing when the waiter is cancelled.
            await asyncio.wait((flight.task,))
        finally:
            flight.waiters -= 1
            if not flight.waiters:
                # One that has just failed is not logged either, as an error that nobody took.
                flight.task.cancel()
                if self._flights.get((model, digest, text)) is flight:
                    del self._flights[model, digest, text]
        error = flight.task.exception()
        if isinstance(error, UndercroftError):
            # One for each waiter: raising changes an exception, and callers raise it further.
            raise copy.copy(error) from error
        return flight.task.result()

    def _flight(self, model: str, digest: str, text: str) -> _Flight:
        """Return the running call for a query, or start one. One that has ended is not joined: it may have failed."""
        flight = self._flights.get((model, digest, text))
        if flight is not None and not flight.task.done():
            metrics.SHARED.inc()
            return flight
        metrics.MISSES.inc()
        task = asyncio.create_task(self._embed_and_keep(model, digest, text))
        flight = self._flights[model, digest, text] = _Flight(task)
        return flight

    async def _embed_and_keep(self, model: str, digest: str, text: str) -> QueryVector:
        vector = await self._embed(model, digest, text)
        self._keep((digest, text), vector)
        return vector

    def _keep(self, key: tuple[str, str], vector: QueryVector) -> None:
        size = _size_bytes(key, vector)
        # One too large for the whole cache must not empty it; the same vector may have come by another model name.
        if self._max_entries == 0 or size > self._max_bytes or key in self._kept:
            return
        self._kept[key] = vector, size
        self._kept_bytes += size
        while len(self._kept) > self._max_entries or self._kept_bytes > self._max_bytes:
            _, (_, counted) = self._kept.popitem(last=False)
            self._kept_bytes -= counted
            metrics.EVICTED.inc()
        metrics.ENTRIES.set(len(self._kept))
        metrics.BYTES.set(self._kept_bytes)


def _size_bytes(key: tuple[str, str], vector: QueryVector) -> int:
    """Return the memory of an entry. Digests are counted once for all: they are few."""
    return sys.getsizeof(key[1]) + len(vector.packed) + _ENTRY_BYTES


class QueryEmbedding:
    """Vectors of one query: each model is asked once, and may be asked before a leg needs its answer."""

    def __init__(self, embed: EmbedQuery, text: str) -> None:
        self._embed = embed
        self._text = text
        self._asked: dict[tuple[str, str], asyncio.Task[QueryVector]] = {}

    def ask(self, model_name: str, model_digest: str) -> asyncio.Task[QueryVector]:
        """Start embedding the query, unless that has been done."""
        model = (model_name, model_digest)
        if model not in self._asked:
            self._asked[model] = asyncio.ensure_future(self._embed(*model, self._text))
        return self._asked[model]

    async def vector(self, model_name: str, model_digest: str) -> QueryVector:
        return await self.ask(model_name, model_digest)

    async def close(self) -> None:
        """Drop answers that nobody waits for."""
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
