"""The probe of orchestrators without gRPC: 0 where a service serves, 1 with a reason where it does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from services.core.probe import probe

Status = health_pb2.HealthCheckResponse


@pytest.fixture
def service() -> Iterator[tuple[str, health.HealthServicer]]:
    server = grpc.server(ThreadPoolExecutor(2))
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}", servicer
    server.stop(None).wait()


def test_what_a_service_says_of_itself_and_of_its_parts_is_returned(
    service: tuple[str, health.HealthServicer],
) -> None:
    target, servicer = service
    servicer.set("", Status.NOT_SERVING)
    servicer.set("part", Status.SERVING)
    assert probe(target) == "NOT_SERVING"
    assert probe(target, "part") == "SERVING"
    assert probe(target, "nothing") == "SERVICE_UNKNOWN"


def test_the_command_ends_with_what_an_orchestrator_reads(service: tuple[str, health.HealthServicer]) -> None:
    target, servicer = service
    command = [sys.executable, "-m", "services.core.probe", target]
    servicer.set("", Status.SERVING)
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    servicer.set("", Status.NOT_SERVING)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip() == f"{target} says NOT_SERVING"


def test_a_port_that_nobody_listens_on_is_unavailable_within_the_timeout() -> None:
    assert probe("127.0.0.1:1", timeout_s=1.0) in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
