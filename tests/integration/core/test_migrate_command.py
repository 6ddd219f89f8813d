"""The command of the migrate image: brings a schema up, again and again, and says why where it can't."""

from __future__ import annotations

import os
import subprocess
import sys

import psycopg

from tests.support.postgres import PostgresForTests


def migrate(url: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "UNDERCROFT_DATABASE_URL": url, **settings}
    command = [sys.executable, "-m", "services.core.migrations"]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)


def test_an_empty_database_is_brought_up_and_the_second_time_changes_nothing(postgres: PostgresForTests) -> None:
    url = postgres.create_database()
    for _ in range(2):
        done = migrate(url)
        assert done.returncode == 0, done.stderr
    with psycopg.connect(url) as session:
        assert session.execute("SELECT count(*) FROM projects").fetchone() == (0,)


def test_a_later_schema_is_refused_in_words(postgres: PostgresForTests) -> None:
    url = postgres.create_database()
    assert migrate(url).returncode == 0
    with psycopg.connect(url) as session:
        session.execute("UPDATE alembic_version SET version_num = '9999'")
    done = migrate(url)
    assert done.returncode == 1
    assert "SCHEMA_LATER" in done.stderr


def test_a_server_that_refuses_is_not_waited_for(postgres: PostgresForTests) -> None:
    done = migrate(f"{postgres.create_database()}?sslmode=require", UNDERCROFT_DATABASE_WAIT_S="300")
    assert done.returncode == 1
    assert "SSL" in done.stderr
    assert "waiting" not in done.stderr


def test_a_server_that_stays_away_is_told_after_the_wait_without_the_password() -> None:
    url = "postgresql://undercroft:do-not-show@127.0.0.1:1/undercroft"
    done = migrate(url, UNDERCROFT_DATABASE_WAIT_S="1")
    assert done.returncode == 1
    assert "waiting for the database" in done.stderr
    assert "UNDERCROFT_DATABASE_URL" in done.stderr
    assert "do-not-show" not in done.stderr + done.stdout
