from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import services.embed  # noqa: F401  (sets the offline switches before anything else is imported)

# isort: split
import grpc
import grpc.aio
from undercroft.embed.v1 import embed_service_pb2, embed_service_pb2_grpc

from services.core.grpc import ErrorInterceptor
from services.embed.preparation import Options, prepare
from services.embed.recipe import Quantization
from services.embed.registry import Registry
from services.embed.server import EmbedServicer
from services.embed.service import EmbedService
from services.embed.settings import EmbedSettings
from services.search.embedding import EmbedClient
from tests.integration.embed.tiny_model import Tiny, write_source

MODEL, OTHER = "tiny", "other"


class Turnstile(grpc.aio.ServerInterceptor):
    """Counts the texts that are asked of Embed, holds the calls while it is closed, and notes those that were left."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.left: list[str] = []
        self.opened = asyncio.Event()
        self.opened.set()
        self._arrived = asyncio.Event()

    async def arrival(self) -> None:
        """Wait until a call has come."""
        self._arrived.clear()
        await asyncio.wait_for(self._arrived.wait(), 10)

    async def departure(self) -> None:
        """Wait until a held call has been left by its caller."""
        async with asyncio.timeout(10):
            while not self.left:
                await asyncio.sleep(0.005)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)

        async def call(request: embed_service_pb2.EmbedRequest, context: Any) -> Any:
            self.texts += request.texts
            self._arrived.set()
            try:
                await self.opened.wait()
            except asyncio.CancelledError:
                self.left += request.texts
                raise
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(call, handler.request_deserializer, handler.response_serializer)


@dataclass
class Embedder:
    """The embed service on loopback, behind a turnstile."""

    folder: Path
    turnstile: Turnstile = field(default_factory=Turnstile)
    target: str = "127.0.0.1:0"

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve while the block runs, at the address of the last time."""
        registry = Registry(self.folder, threads=1, queue_capacity=64, max_loaded=4)
        settings = EmbedSettings(models_dir=self.folder)
        service = EmbedService(registry, settings)
        await service.preload()
        server = grpc.aio.server(interceptors=[self.turnstile, ErrorInterceptor()])
        embed_service_pb2_grpc.add_EmbedServiceServicer_to_server(EmbedServicer(service), server)
        self.target = f"127.0.0.1:{server.add_insecure_port(self.target)}"
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)
            await service.close()


@dataclass(frozen=True)
class Models:
    """Prepared models of one folder."""

    folder: Path
    digests: dict[str, str]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Two models with the same weights, whose queries get different prompts. Not to be changed."""
    root = tmp_path_factory.mktemp("query-models")
    source = write_source(root / "source", Tiny())
    digests = {
        name: prepare(
            source,
            root / "models" / name,
            options=Options(quantization=Quantization.FLOAT32, query_prompt=prompt),
        ).manifest.digest
        for name, prompt in ((MODEL, "q "), (OTHER, "find: "))
    }
    return Models(root / "models", digests)


@pytest.fixture
async def embedder(models: Models) -> AsyncIterator[Embedder]:
    embedder = Embedder(models.folder)
    async with embedder.serving():
        yield embedder


@pytest.fixture
async def client(embedder: Embedder) -> AsyncIterator[EmbedClient]:
    client = EmbedClient(embedder.target)
    yield client
    await client.close()
