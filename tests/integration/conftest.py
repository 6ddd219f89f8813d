"""A real Postgres for the tests that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import PostgresForTests, start_test_postgres


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresForTests]:
    server = start_test_postgres(tmp_path_factory.mktemp("postgres"))
    yield server
    server.stop()
