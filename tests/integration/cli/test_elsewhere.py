"""Commands where ``UNDERCROFT_*_TARGET`` names services that are not of this machine's appliance."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import typer
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from typer.testing import CliRunner

from services.cli import models, status

Status = health_pb2.HealthCheckResponse
NOBODY = "127.0.0.1:1"


@pytest.fixture
def app() -> typer.Typer:
    application = typer.Typer()
    status.register(application)
    models.register(application)
    return application


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[health.HealthServicer]:
    """A service that says its health, as all four services."""
    server = grpc.server(ThreadPoolExecutor(4))
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    for name in ("INGEST", "EMBED", "SEARCH", "DECISIONS"):
        monkeypatch.setenv(f"UNDERCROFT_{name}_TARGET", f"127.0.0.1:{port}")
    yield servicer
    server.stop(None).wait()


def test_status_asks_the_services_that_are_named(
    app: typer.Typer, service: health.HealthServicer, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.set("", Status.SERVING)
    shown = CliRunner().invoke(app, ["status"])
    assert (shown.exit_code, shown.stdout.count("serving")) == (0, 4)
    monkeypatch.setenv("UNDERCROFT_SEARCH_TARGET", NOBODY)
    monkeypatch.setenv("UNDERCROFT_DECISIONS_TARGET", "")
    shown = CliRunner().invoke(app, ["status"])
    assert shown.exit_code == 1
    lines = {line.split()[0]: line for line in shown.stdout.splitlines() if line.split()}
    assert "does not answer" in lines["search"]
    assert NOBODY in lines["search"]
    assert "not named" in lines["decisions"]
    found = json.loads(CliRunner().invoke(app, ["status", "--json"]).stdout)
    assert found["healthy"] is False
    assert {one["name"]: one["health"] == "SERVING" for one in found["services"]} == {
        "ingest": True,
        "embed": True,
        "search": False,
    }


def test_status_tells_a_service_that_starts_from_one_that_is_gone(
    app: typer.Typer, service: health.HealthServicer
) -> None:
    service.set("", Status.NOT_SERVING)
    shown = CliRunner().invoke(app, ["status"])
    assert shown.exit_code == 1
    assert "not serving yet" in shown.stdout


def test_status_says_that_a_database_is_away(app: typer.Typer, service: health.HealthServicer) -> None:
    service.set("", Status.SERVING)
    service.set("database", Status.NOT_SERVING)
    shown = CliRunner().invoke(app, ["status"])
    assert (shown.exit_code, shown.stdout.count("the database does not answer it")) == (1, 4)
    service.set("database", Status.SERVING)
    assert CliRunner().invoke(app, ["status"]).exit_code == 0


@pytest.mark.parametrize("command", ["install", "prepare", "remove"])
def test_models_of_services_elsewhere_are_not_changed_here(
    app: typer.Typer, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERCROFT_EMBED_TARGET", NOBODY)
    monkeypatch.setenv("UNDERCROFT_HOME", str(tmp_path / "home"))
    told = CliRunner().invoke(app, ["models", command, str(tmp_path)])
    assert told.exit_code == 1
    assert NOBODY in told.output
    assert "UNDERCROFT_MODELS" in told.output
    assert not (tmp_path / "home").exists()
