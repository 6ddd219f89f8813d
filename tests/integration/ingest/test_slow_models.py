"""Ingest waits for a model as long as the embed service is there and loads it, and no longer than its patience else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import services.embed  # noqa: F401  (sets the offline switches before anything else is imported)

# isort: split
import grpc.aio
from undercroft.embed.v1 import embed_service_pb2_grpc

from services.core.errors import NotReady, Unavailable
from services.core.grpc import ErrorInterceptor
from services.embed import registry
from services.embed.preparation import Options, prepare
from services.embed.recipe import Quantization
from services.embed.registry import Registry
from services.embed.server import EmbedServicer
from services.embed.service import EmbedService
from services.embed.settings import EmbedSettings
from services.embed.verify import VerifiedModel
from services.ingest import embedder as client
from services.ingest.embedder import Embedder
from tests.integration.embed.tiny_model import Tiny, write_source

PATIENCE_S = 0.3
LOAD_S = 3.0


class Volume:
    """Where the models are: reading one takes until it is let go."""

    def __init__(self) -> None:
        self.reads = 0
        self.is_read = threading.Event()


@pytest.fixture
def volume(monkeypatch: pytest.MonkeyPatch) -> Iterator[Volume]:
    slow, verify = Volume(), registry.verify

    def slowly(directory: Path, *, threads: int) -> VerifiedModel:
        slow.reads += 1
        slow.is_read.wait(60)
        return verify(directory, threads=threads)

    monkeypatch.setattr(registry, "verify", slowly)
    yield slow
    slow.is_read.set()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("slow-models")
    options = Options(quantization=Quantization.FLOAT32)
    prepare(write_source(root / "source", Tiny()), root / "models" / "tiny", options=options)
    return root / "models"


@pytest.fixture(params=[60.0, 0.2], ids=["the caller gives up", "the service gives up"])
async def target(request: pytest.FixtureRequest, models: Path, volume: Volume) -> AsyncIterator[str]:
    """The embed service with nothing in memory."""
    service = EmbedService(
        Registry(models, threads=1, queue_capacity=64, max_loaded=1),
        EmbedSettings(models_dir=models, load_timeout_s=request.param),
    )
    server = grpc.aio.server(interceptors=[ErrorInterceptor()])
    embed_service_pb2_grpc.add_EmbedServiceServicer_to_server(EmbedServicer(service), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    volume.is_read.set()
    await server.stop(None)
    await service.close()


@pytest.fixture
async def embedder(target: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Embedder]:
    # Shorter than the load, as the real ones are for large models on slow volumes.
    monkeypatch.setattr(client, "_EMBED_TIMEOUT_S", 0.5)
    embedder = Embedder(target, PATIENCE_S)
    yield embedder
    await embedder.close()


async def test_a_model_that_loads_for_longer_than_any_limit_is_waited_for(embedder: Embedder, volume: Volume) -> None:
    asked = asyncio.create_task(embedder.model("tiny"))
    done, _ = await asyncio.wait({asked}, timeout=LOAD_S)
    assert not done, asked.exception()
    volume.is_read.set()
    model = await asyncio.wait_for(asked, 30)
    embedded = await embedder.embed(model, ["a text"])
    assert embedded.vectors.shape == (1, model.dimensions)
    assert volume.reads == 1


async def test_one_that_is_known_already_is_not_loaded(embedder: Embedder, volume: Volume) -> None:
    volume.is_read.set()
    known = await embedder.model("tiny")
    volume.is_read.clear()
    assert await asyncio.wait_for(embedder.model("tiny", known=known), 5) == known
    assert volume.reads == 1


async def test_who_is_not_patient_is_told_and_the_load_goes_on(
    embedder: Embedder, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_INFO_TIMEOUT_S", 1.0)
    with pytest.raises(Unavailable):
        await embedder.model("tiny", is_patient=False)
    volume.is_read.set()
    assert await embedder.model("tiny")
    assert volume.reads == 1


async def test_a_model_that_is_not_there_is_not_waited_for(embedder: Embedder) -> None:
    with pytest.raises(NotReady):
        await asyncio.wait_for(embedder.model("absent"), 5)


async def test_a_service_that_is_away_is_waited_for_no_longer_than_the_patience() -> None:
    embedder = Embedder("127.0.0.1:1", PATIENCE_S)
    with pytest.raises(Unavailable):
        await asyncio.wait_for(embedder.model("tiny"), 30)
    await embedder.close()
