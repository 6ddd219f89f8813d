"""A database that does not answer: callers are told once, and health says so without taking the replica away."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import psutil
import psycopg
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from psycopg_pool import PoolTimeout
from undercroft.ingest.v1 import project_pb2, project_service_pb2, project_service_pb2_grpc

from services.core import db
from services.core import grpc as core_grpc
from services.core.db import Database
from services.core.grpc import error_reason, open_channel, serve
from services.core.settings import ServiceSettings
from tests.support.postgres import PostgresForTests, start_test_postgres

Status = health_pb2.HealthCheckResponse


class Failing(project_service_pb2_grpc.ProjectServiceServicer):
    """A service whose calls end as the database has them end."""

    def __init__(self) -> None:
        self.error: Exception = PoolTimeout()
        self.calls = 0

    async def GetProject(self, request: project_service_pb2.GetProjectRequest, context: object) -> project_pb2.Project:
        self.calls += 1
        raise self.error


def free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
async def failing() -> AsyncIterator[tuple[Failing, str]]:
    servicer = Failing()
    address = free_address()

    def register(server: grpc.aio.Server) -> list[str]:
        project_service_pb2_grpc.add_ProjectServiceServicer_to_server(servicer, server)
        return []

    serving = asyncio.create_task(serve("failing", ServiceSettings(listen=address, metrics_listen=""), register))
    yield servicer, address
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize(
    ("error", "code", "reason", "calls"),
    [
        (PoolTimeout(), grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE", 1),
        (psycopg.errors.QueryCanceled(), grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE", 1),
        (psycopg.errors.AdminShutdown(), grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE", 4),
        (psycopg.errors.ReadOnlySqlTransaction(), grpc.StatusCode.UNAVAILABLE, "DATABASE_READ_ONLY", 4),
        (psycopg.errors.DiskFull(), grpc.StatusCode.FAILED_PRECONDITION, "DATABASE_DISK_FULL", 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_what_was_waited_for_is_not_asked_again(
    failing: tuple[Failing, str], error: Exception, code: grpc.StatusCode, reason: str, calls: int
) -> None:
    servicer, address = failing
    servicer.error = error
    async with open_channel(address) as channel:
        stub = project_service_pb2_grpc.ProjectServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as told:
            await stub.GetProject(project_service_pb2.GetProjectRequest(name="projects/one"), wait_for_ready=True)
    assert (told.value.code(), error_reason(told.value)[0], servicer.calls) == (code, reason, calls)


async def test_a_database_that_hangs_is_told_to_calls_without_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db, "_PING_S", 0.5)
    monkeypatch.setattr(db, "_CHECK_INTERVAL_S", 0.0)
    server = start_test_postgres(tmp_path / "postgres")
    database = Database(server.create_database(), size=1)
    await database.open()
    database._pool.timeout = 1.0
    async with database.snapshot() as connection:
        row = await (await connection.execute("SELECT pg_backend_pid()")).fetchone()
    assert row is not None
    # The backend and its parent, which would take new connections.
    backend = psutil.Process(row["pg_backend_pid"])
    stopped = [backend, backend.parent()]
    for process in stopped:
        process.suspend()
    try:
        async with asyncio.timeout(30):
            with pytest.raises(PoolTimeout):
                async with database.snapshot():
                    pass
    finally:
        for process in stopped:
            process.resume()
    async with database.snapshot() as connection:
        await connection.execute("SELECT 1")
    await database.close()
    server.stop()


async def test_a_database_is_spoken_to_in_utf8_whatever_its_url_says(postgres: PostgresForTests) -> None:
    database = Database(psycopg.conninfo.make_conninfo(postgres.create_database(), client_encoding="LATIN1"))
    await database.open()
    async with database.snapshot() as connection:
        row = await (await connection.execute("SELECT %s AS arrow", ("→",))).fetchone()
    assert row == {"arrow": "→"}
    await database.close()


async def test_health_says_that_the_database_is_away_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_grpc, "_WATCH_INTERVAL_S", 0.05)
    monkeypatch.setattr(db, "_PING_S", 0.5)
    server = start_test_postgres(tmp_path / "postgres")
    database = Database(server.create_database())
    await database.open()
    settings = ServiceSettings(listen=free_address(), metrics_listen="")
    serving = asyncio.create_task(serve("some", settings, lambda _: [], needs={"database": database.ping}))
    async with open_channel(settings.listen) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        async def health(name: str) -> int:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), wait_for_ready=True)
            return int(answer.status)

        async with asyncio.timeout(30):
            while await health("database") != Status.SERVING:
                await asyncio.sleep(0.02)
        server.stop()
        async with asyncio.timeout(30):
            while await health("database") != Status.NOT_SERVING:
                await asyncio.sleep(0.02)
        assert await health("") == Status.SERVING
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await database.close()
