"""A service that can't start ends with what is wrong as the last lines of its log, and with no password in any."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from services.core import db
from services.core.db import Database, migrate
from services.core.errors import Unavailable
from services.core.starting import FAILED, WRONG_SETTINGS
from tests.support.postgres import PostgresForTests

AWAY = "postgresql://undercroft:do-not-show@127.0.0.1:1/undercroft"


def run(service: str, folder: Path, **given: str) -> tuple[int, list[dict[str, str]]]:
    """Start a service until it ends; its exit code and its log."""
    settings = {
        "UNDERCROFT_DATABASE_URL": AWAY,
        **{f"UNDERCROFT_{name}_DIR": str(folder) for name in ("SIDECAR", "LOCAL", "MODELS")},
        **{f"UNDERCROFT_{name}": value for name, value in given.items()},
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("UNDERCROFT_", "PG"))}
    command = [sys.executable, "-m", f"services.{service}"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env={**inherited, **settings}, timeout=60
    )
    assert "do-not-show" not in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "Warning" not in done.stdout + done.stderr
    return done.returncode, [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("service", ["decisions", "embed", "ingest", "search"])
def test_each_wrong_setting_has_a_line(service: str, tmp_path: Path) -> None:
    code, log = run(service, tmp_path, LISTEN="everywhere", DRAIN_S="-1", MODELS_DIR="")
    assert code == WRONG_SETTINGS
    named = {"UNDERCROFT_LISTEN", "UNDERCROFT_DRAIN_S"} | (
        {"UNDERCROFT_MODELS_DIR"} if service in {"embed", "ingest"} else set()
    )
    assert {line["setting"] for line in log} == named
    for line in log:
        assert (line["reason"], line["service"]) == ("WRONG_SETTING", service)
        assert line["cause"].startswith(line["setting"])
        assert line["setting"] in line["remedy"]


def test_a_password_that_libpq_would_take_for_a_port_is_not_shown(tmp_path: Path) -> None:
    code, log = run("search", tmp_path, DATABASE_URL="postgresql://u:do-not-show/@h/d")
    assert code == WRONG_SETTINGS
    assert [line["setting"] for line in log] == ["UNDERCROFT_DATABASE_URL"]


@pytest.mark.parametrize("setting", ["LISTEN", "METRICS_LISTEN"])
def test_an_address_that_is_taken_is_told_with_its_setting(setting: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, log = run("embed", tmp_path, **{setting: f"127.0.0.1:{taken.getsockname()[1]}"})
    assert code == FAILED
    assert log[-1]["reason"] == "ADDRESS_NOT_AVAILABLE"
    assert log[-1]["cause"].startswith(f"UNDERCROFT_{setting}: nothing can listen on 127.0.0.1:")


@pytest.mark.parametrize(
    ("service", "setting"),
    [("search", "PRESETS_DIR"), ("search", "DEFAULT_PRESET"), ("search", "SECRETS_DIR"), ("ingest", "PIPELINE_FILE")],
)
def test_what_is_not_there_is_told_with_its_setting(
    service: str, setting: str, tmp_path: Path, postgres: PostgresForTests
) -> None:
    url = postgres.create_database()
    migrate(url)
    code, log = run(service, tmp_path, DATABASE_URL=url, **{setting: str(tmp_path / "none" / "x")})
    assert code in {FAILED, WRONG_SETTINGS}
    assert log[-1]["event"] == f"{service} does not run"
    assert f"UNDERCROFT_{setting}" in log[-1]["remedy"]


def test_a_role_without_rights_is_told(tmp_path: Path, postgres: PostgresForTests) -> None:
    url = postgres.create_database()
    migrate(url)
    with psycopg.connect(url) as session:
        session.execute("CREATE ROLE without_rights LOGIN PASSWORD 'do-not-show'")
    try:
        narrow = psycopg.conninfo.make_conninfo(url, user="without_rights", password="do-not-show")
        code, log = run("decisions", tmp_path, DATABASE_URL=narrow)
        assert (code, log[-1]["reason"]) == (FAILED, "DATABASE_PERMISSION")
        assert "permission denied for" in log[-1]["said"]
        code, log = run("core.migrations", tmp_path, DATABASE_URL=narrow)
        assert (code, log[-1]["event"]) == (FAILED, "not migrated")
        assert "permission denied for" in log[-1]["cause"]
    finally:
        with psycopg.connect(url) as session:
            session.execute("DROP ROLE without_rights")


@pytest.mark.parametrize(
    ("change", "said", "remedy"),
    [
        ({"port": "1"}, "onnection refused", "Check host, port and TLS"),
        ({"dbname": "another"}, 'database "another" does not exist', "the name of the database"),
        ({"user": "nobody_known"}, "nobody_known", "Check user and password"),
    ],
    ids=["port", "database", "user"],
)
async def test_why_the_database_takes_no_connection(
    change: dict[str, str],
    said: str,
    remedy: str,
    postgres: PostgresForTests,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(db, "_OPEN_S", 0.1)
    monkeypatch.setattr(db, "_OPEN_INTERVAL_S", 0.05)
    url = psycopg.conninfo.make_conninfo(postgres.create_database(), **change)
    with pytest.raises(Unavailable) as told:
        await Database(url).open()
    assert said in told.value.message
    assert remedy in told.value.remedy
