"""Transport of the embed service: protocol buffers in, protocol buffers out, nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
from google.protobuf import empty_pb2
from undercroft.embed.v1 import (
    embed_pb2,
    embed_service_pb2,
    embed_service_pb2_grpc,
    model_service_pb2,
    model_service_pb2_grpc,
)

from services.core.cpu import cpu_threads
from services.core.errors import InvalidArgument, Overloaded, Unimplemented
from services.core.grpc import remaining_s, serve
from services.core.starting import start
from services.embed.recipe import Purpose
from services.embed.registry import ModelState, Registry
from services.embed.service import EmbedService, Vectors
from services.embed.settings import EmbedSettings

NAME = "embed"
# Requests of one stream that are worked on at once: the next one is tokenized while the last one runs.
_STREAM_DEPTH = 2

_PURPOSES = {
    embed_pb2.EMBED_TASK_UNSPECIFIED: Purpose.PASSAGE,
    embed_pb2.EMBED_TASK_PASSAGE: Purpose.PASSAGE,
    embed_pb2.EMBED_TASK_QUERY: Purpose.QUERY,
}


class EmbedServicer(embed_service_pb2_grpc.EmbedServiceServicer):
    """EmbedService over gRPC."""

    def __init__(self, service: EmbedService) -> None:
        self._service = service

    async def Embed(
        self,
        request: embed_service_pb2.EmbedRequest,
        context: grpc.aio.ServicerContext[embed_service_pb2.EmbedRequest, embed_service_pb2.EmbedResponse],
    ) -> embed_service_pb2.EmbedResponse:
        return await self._embed(request, remaining_s(context))

    async def EmbedStream(
        self,
        request_iterator: AsyncIterator[embed_service_pb2.EmbedStreamRequest],
        context: grpc.aio.ServicerContext[embed_service_pb2.EmbedStreamRequest, embed_service_pb2.EmbedStreamResponse],
    ) -> AsyncIterator[embed_service_pb2.EmbedStreamResponse]:
        running: asyncio.Queue[asyncio.Task[embed_service_pb2.EmbedResponse] | None] = asyncio.Queue()
        room = asyncio.Semaphore(_STREAM_DEPTH)
        started: set[asyncio.Task[embed_service_pb2.EmbedResponse]] = set()

        async def read() -> None:
            try:
                async for message in request_iterator:
                    await room.acquire()
                    task = asyncio.create_task(self._embed_when_there_is_room(message.request, context))
                    started.add(task)
                    running.put_nowait(task)
            finally:
                running.put_nowait(None)

        # Apart from answering: a client may wait for an answer before it sends on.
        reading = asyncio.create_task(read())
        try:
            while (task := await running.get()) is not None:
                response = await task
                started.discard(task)
                room.release()
                yield embed_service_pb2.EmbedStreamResponse(response=response)
            await reading
        finally:
            for each in (reading, *started):
                each.cancel()
            await asyncio.gather(reading, *started, return_exceptions=True)

    async def CountTokens(
        self,
        request: embed_service_pb2.CountTokensRequest,
        context: grpc.aio.ServicerContext[embed_service_pb2.CountTokensRequest, embed_service_pb2.CountTokensResponse],
    ) -> embed_service_pb2.CountTokensResponse:
        counts = await self._service.count_tokens(request.model, list(request.texts), _purpose(request.task))
        return embed_service_pb2.CountTokensResponse(
            token_counts=counts.token_counts, max_tokens=counts.max_length_tokens
        )

    async def EmbedTokens(
        self,
        request: embed_service_pb2.EmbedTokensRequest,
        context: grpc.aio.ServicerContext[embed_service_pb2.EmbedTokensRequest, embed_service_pb2.EmbedTokensResponse],
    ) -> embed_service_pb2.EmbedTokensResponse:
        raise Unimplemented(
            "Token-level embedding for late interaction is not part of this release.",
            remedy="Use Embed.",
        )

    async def ScorePairs(
        self,
        request: embed_service_pb2.ScorePairsRequest,
        context: grpc.aio.ServicerContext[embed_service_pb2.ScorePairsRequest, embed_service_pb2.ScorePairsResponse],
    ) -> embed_service_pb2.ScorePairsResponse:
        raise Unimplemented(
            "Cross-encoder scores are not part of this release.",
            remedy="Use Embed and compare the vectors.",
        )

    async def GetInfo(
        self,
        request: embed_service_pb2.GetInfoRequest,
        context: grpc.aio.ServicerContext[embed_service_pb2.GetInfoRequest, embed_service_pb2.GetInfoResponse],
    ) -> embed_service_pb2.GetInfoResponse:
        info = await self._service.info()
        return embed_service_pb2.GetInfoResponse(
            models=[_model(state) for state in info.models],
            max_texts=info.max_texts,
            max_text_chars=info.max_text_chars,
            max_request_bytes=info.max_request_bytes,
            queue_capacity=info.queue_capacity,
            queue_length=info.queue_length,
            threads=info.threads,
            engine=info.engine,
            processor=info.processor,
        )

    async def _embed_when_there_is_room(
        self,
        request: embed_service_pb2.EmbedRequest,
        context: grpc.aio.ServicerContext[embed_service_pb2.EmbedStreamRequest, embed_service_pb2.EmbedStreamResponse],
    ) -> embed_service_pb2.EmbedResponse:
        """Embed, however long the queue is full: a stream is held back by not being read, not refused."""
        while True:
            try:
                return await self._embed(request, remaining_s(context))
            except Overloaded as error:
                await asyncio.sleep(error.retry_after_s)

    async def _embed(
        self, request: embed_service_pb2.EmbedRequest, timeout_s: float | None
    ) -> embed_service_pb2.EmbedResponse:
        return _embed_response(
            await self._service.embed(
                request.model,
                list(request.texts),
                _purpose(request.task),
                expected_digest=request.expected_digest,
                timeout_s=timeout_s,
            )
        )


class ModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    """ModelService over gRPC."""

    def __init__(self, service: EmbedService) -> None:
        self._service = service

    async def GetModel(
        self,
        request: model_service_pb2.GetModelRequest,
        context: grpc.aio.ServicerContext[model_service_pb2.GetModelRequest, embed_pb2.Model],
    ) -> embed_pb2.Model:
        return _model(await self._service.get_model(request.name))

    async def VerifyModel(
        self,
        request: model_service_pb2.VerifyModelRequest,
        context: grpc.aio.ServicerContext[model_service_pb2.VerifyModelRequest, embed_pb2.Model],
    ) -> embed_pb2.Model:
        return _model(await self._service.verify_model(request.name))

    async def LoadModel(
        self,
        request: model_service_pb2.LoadModelRequest,
        context: grpc.aio.ServicerContext[model_service_pb2.LoadModelRequest, embed_pb2.Model],
    ) -> embed_pb2.Model:
        return _model(await self._service.load_model(request.name))

    async def UnloadModel(
        self,
        request: model_service_pb2.UnloadModelRequest,
        context: grpc.aio.ServicerContext[model_service_pb2.UnloadModelRequest, empty_pb2.Empty],
    ) -> empty_pb2.Empty:
        await self._service.unload_model(request.name)
        return empty_pb2.Empty()


async def run(settings: EmbedSettings) -> None:
    """Serve until SIGTERM."""
    registry = Registry(
        settings.models_dir,
        threads=settings.inference_threads or cpu_threads(),
        queue_capacity=settings.queue_capacity,
        max_loaded=settings.max_loaded_models,
    )
    service = EmbedService(registry, settings)

    def register(server: grpc.aio.Server) -> list[str]:
        embed_service_pb2_grpc.add_EmbedServiceServicer_to_server(EmbedServicer(service), server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(service), server)
        return [
            embed_service_pb2.DESCRIPTOR.services_by_name["EmbedService"].full_name,
            model_service_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name,
        ]

    try:
        await serve(NAME, settings, register, ready=service.preload)
    finally:
        await service.close()


def main() -> None:
    """Start the service with settings from the environment."""
    start(NAME, EmbedSettings, run)


def _purpose(task: embed_pb2.EmbedTask.ValueType) -> Purpose:
    purpose = _PURPOSES.get(task)
    if purpose is None:
        raise InvalidArgument(f"The task {task} is not known.", remedy="Use EMBED_TASK_QUERY or EMBED_TASK_PASSAGE.")
    return purpose


def _embed_response(result: Vectors) -> embed_service_pb2.EmbedResponse:
    count, dimensions = result.vectors.shape
    return embed_service_pb2.EmbedResponse(
        vectors=embed_pb2.PackedVectors(
            count=count, dimensions=dimensions, values=result.vectors.astype("<f4", copy=False).tobytes()
        ),
        model_digest=result.model_digest,
        token_counts=result.token_counts,
        truncated=result.truncated,
        timing=embed_pb2.EmbedTiming(
            queue_us=round(result.queue_s * 1e6),
            tokenize_us=round(result.tokenize_s * 1e6),
            infer_us=round(result.infer_s * 1e6),
        ),
        probe_fingerprint=result.probe.fingerprint,
        probe_cosine=result.probe.min_cosine,
    )


def _model(state: ModelState) -> embed_pb2.Model:
    model = embed_pb2.Model(name=state.name, loaded=state.is_loaded, refusal=state.refusal)
    if state.manifest is not None:
        model.digest = state.manifest.digest
        fidelity = state.manifest.fidelity
        model.fidelity.texts = fidelity.texts
        model.fidelity.mean_cosine = fidelity.mean_cosine
        model.fidelity.min_cosine = fidelity.min_cosine
        model.fidelity.top10_overlap = fidelity.top10_overlap
    if state.recipe is not None:
        model.dimensions = state.recipe.dimensions
        model.max_tokens = state.recipe.max_length_tokens
        model.pooling = state.recipe.pooling.value
        model.normalized = state.recipe.normalize
        model.quantization = state.recipe.quantization.value
        model.query_prompt = state.recipe.prompts.query
        model.passage_prompt = state.recipe.prompts.passage
        model.full_dimensions = state.recipe.full_dimensions
        model.engine = state.recipe.engine.value
    if state.probe is not None:
        model.probe_cosine = state.probe.min_cosine
        model.probe_fingerprint = state.probe.fingerprint
    return model
