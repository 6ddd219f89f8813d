"""Calling the embed service."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import grpc
import grpc.aio
import numpy as np
import numpy.typing as npt
from undercroft.embed.v1 import embed_pb2, embed_service_pb2, embed_service_pb2_grpc

from services.core.budget import MIN_BUDGET_TOKENS
from services.core.errors import NotReady, Unavailable, UndercroftError
from services.core.grpc import error_reason, open_channel, retry_after_s, told
from services.core.names import MODELS_FOLDER

Result = TypeVar("Result")

_INFO_TIMEOUT_S = 10.0
# Of calls that load a model which is not in memory.
_EMBED_TIMEOUT_S = 300.0
_SHORTEST_WAIT_S = 0.1
_LONGEST_WAIT_S = 5.0
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model's identity and limits.

    ``budget_tokens`` is what a text may have, without special tokens and prompt; ``max_texts`` what a call may.
    """

    name: str
    digest: str
    dimensions: int
    budget_tokens: int
    max_texts: int = 0  # 0: not known


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
    """The embed service as ingest uses it. Without a target, every call fails with NotReady.

    A service that is away is waited for ``patience_s``: it may be starting again, and a generation without vectors
    would be worse than one that is a moment late. One that answers is waited for as long as it loads the model.
    """

    def __init__(self, target: str, patience_s: float) -> None:
        self._channel = open_channel(target) if target else None
        self._patience_s = patience_s

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    async def digest(self, name: str, timeout_s: float = _INFO_TIMEOUT_S) -> str:
        """Return a model's digest without having it loaded; NotReady with the reason when it can't be used."""
        try:
            return _usable(name, await self._info(timeout_s)).digest
        except grpc.aio.AioRpcError as error:
            raise _unavailable(error) from error

    async def model(self, name: str, *, known: EmbeddingModel | None = None, is_patient: bool = True) -> EmbeddingModel:
        """Return a model's identity; NotReady with the reason when it can't be used, or reads too little of a text.

        One that has the digest of the ``known`` one need not be in memory; else it is loaded.
        """

        async def ask() -> EmbeddingModel:
            info = await self._info(_INFO_TIMEOUT_S)
            found = _usable(name, info)
            if known is not None and found.digest == known.digest:
                return replace(known, max_texts=info.max_texts)
            # The shortest text for each: what is left of the model's length is the same whatever the text.
            counted = await self._stub().CountTokens(
                embed_service_pb2.CountTokensRequest(model=name, texts=[""]),
                timeout=_EMBED_TIMEOUT_S if is_patient else _INFO_TIMEOUT_S,
            )
            budget = found.max_tokens - counted.token_counts[0]
            return EmbeddingModel(name, found.digest, found.dimensions, budget, info.max_texts)

        model = await self._patiently(name, ask, self._patience_s if is_patient else 0.0)
        if model.budget_tokens < MIN_BUDGET_TOKENS:
            raise NotReady(
                f"The model {name!r} reads {model.budget_tokens} tokens of a text besides prompt and specials, and"
                f" {MIN_BUDGET_TOKENS} are needed.",
                remedy="Prepare it with a longer --max-length or a shorter --passage-prompt.",
                reason="MODEL_TOO_SHORT",
            )
        return model

    async def _info(self, timeout_s: float) -> embed_service_pb2.GetInfoResponse:
        return await self._stub().GetInfo(embed_service_pb2.GetInfoRequest(), timeout=timeout_s)

    async def _is_loading(self, name: str) -> bool:
        """Tell whether the service is there and says that it could serve the model, which is not in memory yet."""
        try:
            return not _usable(name, await self._info(_INFO_TIMEOUT_S)).loaded
        except (grpc.aio.AioRpcError, NotReady):
            return False

    async def _patiently(self, name: str, call: Callable[[], Awaitable[Result]], patience_s: float) -> Result:
        """Call for a model, and again while the service is away, loads the model, or has too much to do.

        Raises NotReady or Unavailable when it can't.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + patience_s
        pause_s = _SHORTEST_WAIT_S
        while True:
            try:
                return await call()
            except grpc.aio.AioRpcError as error:
                asked_s = retry_after_s(error)
                # gRPC itself refuses messages that are too large with the code of too much to do, and without a time.
                if asked_s is None and not (
                    error.code() in _AWAY and patience_s and (loop.time() < end or await self._is_loading(name))
                ):
                    raise _unavailable(error) from error
                pause_s = min(2 * pause_s, _LONGEST_WAIT_S)
                wait_s = pause_s if asked_s is None else min(max(asked_s, _SHORTEST_WAIT_S), _LONGEST_WAIT_S)
            # Not all at once: those who were refused together would be refused together again.
            await asyncio.sleep(wait_s * random.uniform(1.0, 1.5))

    async def embed(self, model: EmbeddingModel, texts: Sequence[str]) -> Embedded:
        """Embed passages, waiting while the service has too much to do."""
        request = embed_service_pb2.EmbedRequest(
            model=model.name, texts=texts, task=embed_pb2.EMBED_TASK_PASSAGE, expected_digest=model.digest
        )

        async def ask() -> embed_service_pb2.EmbedResponse:
            return await self._stub().Embed(request, timeout=_EMBED_TIMEOUT_S)

        response = await self._patiently(model.name, ask, self._patience_s)
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


def _usable(name: str, info: embed_service_pb2.GetInfoResponse) -> embed_pb2.Model:
    """Return what is known of a model, or raise why it can't be used."""
    found = next((model for model in info.models if model.name == name), None)
    if found is None:
        raise NotReady(
            f"The embed service has no model {name!r}.",
            remedy=f"Prepare it with `undercroft models prepare` and put it into {MODELS_FOLDER}, or give the project"
            " another model.",
            reason="MODEL_NOT_FOUND",
        )
    # One in memory serves, whatever has become of its files.
    if found.refusal and not found.loaded:
        raise NotReady(
            f"The model {name!r} can't be used: {found.refusal}",
            remedy=f"Prepare it anew with `undercroft models prepare`, and put it into {MODELS_FOLDER}.",
            reason="MODEL_REFUSED",
        )
    return found


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
