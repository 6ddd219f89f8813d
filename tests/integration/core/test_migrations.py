"""G22 and trap 32: migrations are run once, by one at a time, and a later schema is refused."""

from __future__ import annotations

import threading

import psycopg
import pytest

from services.core.authorization import Visible
from services.core.db import Database, check_schema, migrate
from services.core.errors import NotReady
from services.ingest.changes import Hint
from services.ingest.store import hints, projects
from services.ingest.tiers import Tier
from tests.support.postgres import PostgresForTests


def revision(url: str) -> str:
    with psycopg.connect(url) as session:
        row = session.execute("SELECT version_num FROM alembic_version").fetchone()
    assert row is not None
    return str(row[0])


async def check(url: str) -> None:
    database = Database(url, size=1)
    await database.open()
    try:
        await check_schema(database)
    finally:
        await database.close()


async def test_an_empty_database_is_refused_by_services_until_it_is_migrated(postgres: PostgresForTests) -> None:
    url = postgres.create_database()
    with pytest.raises(NotReady) as told:
        await check(url)
    assert told.value.reason == "SCHEMA_OUTDATED"
    migrate(url)
    await check(url)
    migrate(url)
    await check(url)


def test_migrators_that_race_run_each_migration_once(postgres: PostgresForTests) -> None:
    url = postgres.create_database()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            migrate(url)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert revision(url)


async def test_a_database_of_the_previous_release_is_migrated_with_what_it_holds(postgres: PostgresForTests) -> None:
    url = postgres.create_database()
    migrate(url, "0001")
    with psycopg.connect(url) as session:
        session.execute("INSERT INTO projects (name, display_name, generation) VALUES ('old', 'Old', 1)")
        session.execute(
            """
            INSERT INTO sources (project_id, name, package, origin_kind, origin_location)
            SELECT id, 'code', 'code', 'folder', '/srv/code' FROM projects
            """
        )
        session.execute(
            "INSERT INTO vectors (fingerprint, model_digest, embedding) VALUES ('f', 'digest', '[1,0]'::halfvec)"
        )
        session.execute(
            """
            INSERT INTO file_hints (source_id, path, size_bytes, mtime_ns, content_hash)
            SELECT id, 'a.py', 1, 2, 'hash' FROM sources
            """
        )
    with pytest.raises(NotReady) as told:
        await check(url)
    assert told.value.reason == "SCHEMA_OUTDATED"
    migrate(url)
    await check(url)
    database = Database(url, size=1)
    await database.open()
    try:
        async with database.transaction() as connection:
            project = await projects.get_project(connection, "old", Visible())
            (source,) = await projects.list_sources(connection, project.id)
            known = await hints.read_hints(connection, source.id)
            cursor = await connection.execute("SELECT id, fingerprint FROM readable_vectors")
            vectors = await cursor.fetchall()
    finally:
        await database.close()
    assert (project.generation, project.tiers, project.index_dependencies) == (1, (), False)
    assert (source.indexed_tier, source.managed, source.indexed, source.revision) == (Tier.FULL, False, None, "")
    assert known == {"a.py": Hint(1, 2, b"hash")}
    assert vectors == [{"id": 1, "fingerprint": b"f"}]


async def test_a_later_schema_is_refused_in_words_and_not_touched(postgres: PostgresForTests) -> None:
    url = postgres.create_database()
    migrate(url)
    with psycopg.connect(url) as session:
        session.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(NotReady) as told:
        migrate(url)
    assert told.value.reason == "SCHEMA_LATER"
    assert "9999" in told.value.message
    assert told.value.remedy
    with pytest.raises(NotReady):
        await check(url)
    assert revision(url) == "9999"


def test_text_orders_by_bytes(postgres: PostgresForTests) -> None:
    url = postgres.create_database()
    migrate(url)
    with psycopg.connect(url) as session:
        rows = session.execute(
            """
            SELECT table_name || '.' || column_name FROM information_schema.columns
            WHERE table_schema = 'public' AND table_name <> 'alembic_version' AND data_type = 'text'
              AND column_name IN ('path', 'key', 'name', 'package', 'qualified_name', 'target_symbol', 'source_symbol')
              AND collation_name IS DISTINCT FROM 'C' AND table_name <> 'contents'
            """
        ).fetchall()
    assert rows == []
