from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from services.appliance import control
from services.appliance.home import Home
from services.cli import down, status, up
from tests.integration.appliance.conftest import is_alive
from tests.integration.appliance.test_supervisor import _command, _pid, _up


@pytest.fixture
def app() -> typer.Typer:
    application = typer.Typer()
    for module in (up, down, status):
        module.register(application)
    return application


def test_commands_follow_the_life_of_an_appliance(app: typer.Typer, home: Home) -> None:
    place = ["--home", str(home.root)]
    runner = CliRunner()
    stopped = runner.invoke(app, ["status", *place, "--json"])
    assert stopped.exit_code == 3
    assert json.loads(stopped.stdout)["state"] == "stopped"

    _up(home, embed="serve")
    again = runner.invoke(app, ["up", *place])
    assert again.exit_code == 0
    assert "already running" in again.stdout
    assert "--home" not in again.stdout
    elsewhere = runner.invoke(app, ["up", *place], env={"UNDERCROFT_SEARCH_TARGET": "elsewhere"})
    assert elsewhere.exit_code == 0
    assert "only with --home, or once you unset UNDERCROFT_SEARCH_TARGET" in elsewhere.stdout
    shown = runner.invoke(app, ["status", *place])
    assert shown.exit_code == 0
    assert "serving" in shown.stdout
    found = json.loads(runner.invoke(app, ["status", *place, "--json"]).stdout)
    assert found["healthy"] is True
    assert found["postgres"]["version"].startswith("18.")
    assert found["size_bytes"] > 0
    assert [(service["name"], service["health"]) for service in found["services"]] == [("embed", "serving")]
    assert found["services"][0]["pid"] == _pid(home, "embed")

    ended = runner.invoke(app, ["down", *place])
    assert ended.exit_code == 0
    assert "is stopped" in ended.stdout
    assert not is_alive(found["postgres"]["pid"])
    assert "Nothing is running" in runner.invoke(app, ["down", *place]).stdout


def test_status_tells_trouble_from_rest(app: typer.Typer, home: Home) -> None:
    record = control.start(home, command=_command(home, embed="serve")).record
    os.kill(record.supervisor.pid, signal.SIGKILL)
    assert record.supervisor.wait(5)
    shown = CliRunner().invoke(app, ["status", "--home", str(home.root)])
    assert shown.exit_code == 1
    assert "undercroft down" in shown.stdout
    ended = CliRunner().invoke(app, ["down", "--home", str(home.root)])
    assert ended.exit_code == 0
    assert "postgres" in ended.stdout


def test_status_says_that_the_database_does_not_answer_the_services(app: typer.Typer, home: Home) -> None:
    _up(home, embed="serve", ingest="cut-off")
    shown = CliRunner().invoke(app, ["status", "--home", str(home.root)])
    assert shown.exit_code == 1
    assert "not all of it serves" in shown.stdout
    assert "postgres.log" in shown.stdout
    found = json.loads(CliRunner().invoke(app, ["status", "--home", str(home.root), "--json"]).stdout)
    assert found["healthy"] is False
    assert [service["health"] for service in found["services"]] == ["serving", "without database"]


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_a_later_format_is_refused_in_words(app: typer.Typer, tmp_path: Path, command: str) -> None:
    Home(tmp_path / "home").create()
    (tmp_path / "home" / "format").write_text("99\n")
    result = CliRunner().invoke(app, [command, "--home", str(tmp_path / "home")])
    assert result.exit_code == 1
    assert "later release" in result.stderr
    assert (tmp_path / "home" / "format").read_text() == "99\n"
