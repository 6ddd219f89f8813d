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

from services.cli import models, projects, search, status

Status = health_pb2.HealthCheckResponse
NOBODY = "127.0.0.1:1"


@pytest.fixture
def app() -> typer.Typer:
    application = typer.Typer()
    for module in (status, models, search, projects):
        module.register(application)
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


def test_a_service_that_does_not_answer_is_named_with_its_variable(
    app: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERCROFT_SEARCH_TARGET", NOBODY)
    told = CliRunner().invoke(app, ["search", "anything"])
    assert told.exit_code == 1
    assert f"search at {NOBODY} (UNDERCROFT_SEARCH_TARGET)" in told.stderr
    assert "--home" in told.stderr


def test_a_service_that_is_not_named_beside_others_is_asked_for(
    app: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERCROFT_SEARCH_TARGET", NOBODY)
    told = CliRunner().invoke(app, ["projects", "list"])
    assert told.exit_code == 1
    assert "UNDERCROFT_INGEST_TARGET is not set while others are (UNDERCROFT_SEARCH_TARGET)" in told.stderr


@pytest.mark.parametrize("command", [["status"], ["search", "anything"], ["models", "remove", "m"]])
def test_a_name_that_is_no_address_is_refused_in_words(
    app: typer.Typer, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERCROFT_SEARCH_TARGET", "localhost")
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 1
    assert "UNDERCROFT_SEARCH_TARGET must be host:port" in told.stderr


@pytest.mark.parametrize("command", [["status"], ["search", "anything"]])
def test_a_data_directory_that_is_named_is_meant(
    app: typer.Typer, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERCROFT_SEARCH_TARGET", NOBODY)
    told = CliRunner().invoke(app, [*command, "--home", str(tmp_path / "home")])
    assert told.exit_code == (3 if command == ["status"] else 1)
    assert str(tmp_path / "home") in told.output
    assert NOBODY not in told.output
