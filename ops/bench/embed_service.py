"""The embed service as the embed benchmarks use it: started as a process of its own, called over gRPC."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio
import numpy as np
import psutil
from undercroft.embed.v1 import embed_pb2, embed_service_pb2, embed_service_pb2_grpc

ROOT = Path(__file__).resolve().parents[2]
TEXTS_PER_CALL = 64


@dataclass(frozen=True, slots=True)
class Service:
    """A running embed service."""

    process: psutil.Process
    target: str
    model: str

    @property
    def rss_mib(self) -> float:
        return self.process.memory_info().rss / 2**20

    @property
    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system

    def stub(self) -> embed_service_pb2_grpc.EmbedServiceAsyncStub:
        """Return a stub on a channel of its own, for the running event loop."""
        return embed_service_pb2_grpc.EmbedServiceStub(grpc.aio.insecure_channel(self.target))

    def request(
        self, texts: Sequence[str], task: embed_pb2.EmbedTask.ValueType = embed_pb2.EMBED_TASK_PASSAGE
    ) -> embed_service_pb2.EmbedRequest:
        return embed_service_pb2.EmbedRequest(model=self.model, texts=texts, task=task)


@contextmanager
def running_service(model: Path, **settings: object) -> Iterator[Service]:
    """Start the service over the folder that holds ``model``, and stop it."""
    environment = os.environ | {
        "UNDERCROFT_MODELS_DIR": str(model.parent),
        "UNDERCROFT_PRELOAD_MODELS": model.name,
        "UNDERCROFT_LISTEN": "127.0.0.1:0",
        **{f"UNDERCROFT_{name.upper()}": str(value) for name, value in settings.items()},
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "services.embed"], env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    try:
        yield Service(psutil.Process(process.pid), f"127.0.0.1:{_port(process)}", model.name)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stderr is not None
    port = 0
    for line in process.stderr:
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("event") == "listening":
            port = event["port"]
        if event.get("event") == "serving":
            return port
    sys.exit("the embed service did not start")


async def embed_all(service: Service, texts: Sequence[str], callers: int) -> float:
    """Embed texts from so many callers at once, one caller over a stream; return the seconds it took."""
    calls = [texts[start : start + TEXTS_PER_CALL] for start in range(0, len(texts), TEXTS_PER_CALL)]
    if callers > len(calls):
        share = max(1, len(texts) // callers)
        calls = [texts[start : start + share] for start in range(0, len(texts), share)]
    requests = [service.request(call) for call in calls]
    stub = service.stub()
    started = time.perf_counter()
    if callers == 1:

        async def sent() -> AsyncIterator[embed_service_pb2.EmbedStreamRequest]:
            for request in requests:
                yield embed_service_pb2.EmbedStreamRequest(request=request)

        answers = [answer async for answer in stub.EmbedStream(sent())]
        assert len(answers) == len(requests)
    else:
        waiting = iter(requests)

        async def call() -> None:
            for request in waiting:
                await stub.Embed(request)

        await asyncio.gather(*(call() for _ in range(callers)))
    return time.perf_counter() - started


async def query_times_ms(
    service: Service, queries: Sequence[str], *, per_s: float, seconds: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Send queries at a steady rate, whether or not earlier ones are answered; return each one's milliseconds."""
    stub = service.stub()
    await stub.Embed(service.request(queries[:1], embed_pb2.EMBED_TASK_QUERY))
    times: list[float] = []

    async def ask(query: str) -> None:
        started = time.perf_counter()
        await stub.Embed(service.request([query], embed_pb2.EMBED_TASK_QUERY))
        times.append((time.perf_counter() - started) * 1000)

    started = time.perf_counter()
    asked = []
    for number in range(round(per_s * seconds)):
        await asyncio.sleep(max(0.0, started + number / per_s - time.perf_counter()))
        asked.append(asyncio.create_task(ask(queries[number % len(queries)])))
    await asyncio.gather(*asked)
    return np.array(times)
