"""Calling the embed service."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
import grpc.aio
import numpy as np
import numpy.typing as npt
from undercroft.embed.v1 import embed_pb2, embed_service_pb2, embed_service_pb2_grpc

from services.core.errors import NotReady, Unavailable, UndercroftError
from services.core.grpc import error_reason, open_channel, retry_after_s, told

_INFO_TIMEOUT_S = 10.0
_EMBED_TIMEOUT_S = 300.0
_SHORTEST_WAIT_S = 0.1
_LONGEST_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model's identity and limits. ``budget_tokens``: what a text may have, without special tokens and prompt."""

    name: str
    digest: str
    dimensions: int
    budget_tokens: int


@dataclass(frozen=True, slots=True)
class Processor:
    """What tells the kind of processor that made vectors: what it makes of the model's probes.

    ``probe_fingerprint`` is equal where vectors are; ``probe_cosine`` is the least one to the preparing machine.
    """

    probe_fingerprint: str
    probe_cosine: float


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors of shape (n, dimensions), how many of the texts were truncated, and what computed them."""

    vectors: npt.NDArray[np.float32]
    truncated: int
    processor: Processor


class Embedder:
    """The embed service as ingest uses it. Without a target, every call fails with NotReady."""

    def __init__(self, target: str) -> None:
        self._channel = open_channel(target) if target else None

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    async def digest(self, name: str, timeout_s: float = _INFO_TIMEOUT_S) -> str:
        """Return a model's digest without having it loaded; NotReady with the reason when it can't be used."""
        try:
            return (await self._find(name, timeout_s)).digest
        except grpc.aio.AioRpcError as error:
            raise _unavailable(error) from error

    async def model(self, name: str) -> EmbeddingModel:
        """Return a model's identity; NotReady with the reason when it can't be used."""
        try:
            found = await self._find(name, _INFO_TIMEOUT_S)
            counted = await self._stub().CountTokens(
                embed_service_pb2.CountTokensRequest(model=name, texts=[""]), timeout=_INFO_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as error:
            raise _unavailable(error) from error
        return EmbeddingModel(name, found.digest, found.dimensions, found.max_tokens - counted.token_counts[0])

    async def _find(self, name: str, timeout_s: float) -> embed_pb2.Model:
        info = await self._stub().GetInfo(embed_service_pb2.GetInfoRequest(), timeout=timeout_s)
        found = next((model for model in info.models if model.name == name), None)
        if found is None:
            raise NotReady(
                f"The embed service has no model {name!r}.",
                remedy="Prepare it with `undercroft models prepare`, or give the project another model.",
                reason="MODEL_NOT_FOUND",
            )
        # One in memory serves, whatever has become of its files.
        if found.refusal and not found.loaded:
            raise NotReady(
                f"The model {name!r} can't be used: {found.refusal}",
                remedy="Prepare it anew with `undercroft models prepare`.",
                reason="MODEL_REFUSED",
            )
        return found

    async def embed(self, model: EmbeddingModel, texts: Sequence[str]) -> Embedded:
        """Embed passages, waiting while the service has too much to do."""
        request = embed_service_pb2.EmbedRequest(
            model=model.name, texts=texts, task=embed_pb2.EMBED_TASK_PASSAGE, expected_digest=model.digest
        )
        while True:
            try:
                response = await self._stub().Embed(request, timeout=_EMBED_TIMEOUT_S)
                break
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise _unavailable(error) from error
                wait_s = min(retry_after_s(error) or _SHORTEST_WAIT_S, _LONGEST_WAIT_S)
            # Not all at once: those who were refused together would be refused together again.
            await asyncio.sleep(wait_s * random.uniform(1.0, 1.5))
        packed = response.vectors
        vectors = np.frombuffer(packed.values, dtype="<f4").reshape(packed.count, packed.dimensions)
        processor = Processor(response.probe_fingerprint, response.probe_cosine)
        return Embedded(vectors, len(response.truncated), processor)

    def _stub(self) -> embed_service_pb2_grpc.EmbedServiceAsyncStub:
        if self._channel is None:
            raise NotReady(
                "No embed service is configured.", remedy="Set UNDERCROFT_EMBED_TARGET.", reason="EMBED_NOT_CONFIGURED"
            )
        return embed_service_pb2_grpc.EmbedServiceStub(self._channel)


def _unavailable(error: grpc.aio.AioRpcError) -> UndercroftError:
    reason, _ = error_reason(error)
    if reason and error.code() is not grpc.StatusCode.UNAVAILABLE:
        message, remedy = told(error)
        return NotReady(message, remedy=remedy, reason=reason)
    return Unavailable(
        f"The embed service does not answer ({error.code().name}).",
        remedy="Start it or wait for it; the next index run fills in what is missing.",
        reason="EMBED_UNAVAILABLE",
    )
