"""The second model of tests is as real as the first: served, verified, and what it says it is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import grpc.aio
import numpy as np
import numpy.typing as npt
import pytest
from undercroft.embed.v1 import (
    embed_pb2,
    embed_service_pb2,
    embed_service_pb2_grpc,
    model_service_pb2,
    model_service_pb2_grpc,
)

from services.core.grpc import open_channel
from services.embed.verify import read_manifest
from tests.integration.embed.conftest import REAL_MODEL, Server
from tests.support.models import make_projected_model, project, projection

PROJECTED = "projected"
TEXTS = [
    "def total_price(cart):\n    return sum(item.price for item in cart)",
    "Thirty days after the sale a cart can be returned.",
    "class Cart:\n    def add(self, item):\n        self.items.append(item)\n" * 6,
    "why are writes ordered before the commit",
]


@pytest.fixture(scope="module")
def models(real_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models directory with the demo's model and its projection."""
    directory = tmp_path_factory.mktemp("models")
    shutil.copytree(real_model, directory / REAL_MODEL, copy_function=os.link)
    assert make_projected_model(directory / REAL_MODEL, directory / PROJECTED) == directory / PROJECTED
    return directory


@pytest.fixture(scope="module")
def server(models: Path, start_server: Callable[..., AbstractContextManager[Server]]) -> Iterator[Server]:
    with start_server(models) as running:
        yield running


async def embed(channel: grpc.aio.Channel, model: str) -> npt.NDArray[np.float32]:
    request = embed_service_pb2.EmbedRequest(model=model, texts=TEXTS, task=embed_pb2.EMBED_TASK_PASSAGE)
    packed = (await embed_service_pb2_grpc.EmbedServiceStub(channel).Embed(request)).vectors
    return np.frombuffer(packed.values, dtype="<f4").reshape(packed.count, packed.dimensions)


async def test_its_vectors_are_those_of_the_model_projected(server: Server) -> None:
    async with open_channel(server.target) as channel:
        original, projected = await embed(channel, REAL_MODEL), await embed(channel, PROJECTED)
    assert projected.shape == (len(TEXTS), 256)
    np.testing.assert_allclose(np.linalg.norm(projected, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(projected, project(original, projection(384, 256)), atol=1e-5)


async def test_it_is_another_model_and_passes_every_check(server: Server, models: Path) -> None:
    async with open_channel(server.target) as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        verified = await stub.VerifyModel(model_service_pb2.VerifyModelRequest(name=PROJECTED))
    assert verified.refusal == ""
    assert verified.dimensions == 256
    assert verified.probe_cosine > 0.9999
    assert verified.digest == read_manifest(models / PROJECTED).digest != read_manifest(models / REAL_MODEL).digest


def test_a_projection_keeps_angles_of_what_it_keeps() -> None:
    matrix = projection(384, 256)
    assert matrix.dtype == np.float32
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(256), atol=1e-5)
    assert np.array_equal(matrix, projection(384, 256))
