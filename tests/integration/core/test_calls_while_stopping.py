"""A replica that stops costs its callers nothing: calls that meet its end are asked of another one."""

from __future__ import annotations

import asyncio
import collections

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from services.core.grpc import open_channel

_STOPS = 10
_CALLERS = 8


async def start(port: int = 0) -> tuple[grpc.aio.Server, int]:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    return server, bound


async def test_no_call_fails_while_one_of_two_replicas_stops() -> None:
    stays, first = await start()
    stops, second = await start()
    codes: collections.Counter[str] = collections.Counter()
    is_over = False
    async with open_channel(f"ipv4:127.0.0.1:{first},127.0.0.1:{second}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        async def ask() -> None:
            while not is_over:
                try:
                    await stub.Check(health_pb2.HealthCheckRequest(), timeout=30)
                    codes["OK"] += 1
                except grpc.aio.AioRpcError as error:
                    codes[f"{error.code().name}: {error.details()}"] += 1

        callers = [asyncio.create_task(ask()) for _ in range(_CALLERS)]
        for _ in range(_STOPS):
            await asyncio.sleep(0.1)
            await stops.stop(10)
            stops, _ = await start(second)
            answered = codes["OK"]
            while codes["OK"] < answered + 100:
                await asyncio.sleep(0.01)
        is_over = True
        await asyncio.gather(*callers)
    await stops.stop(None)
    await stays.stop(None)
    assert set(codes) == {"OK"}
