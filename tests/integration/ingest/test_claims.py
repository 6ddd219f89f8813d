"""I4 and G21: one writer of a project; who has been overtaken writes, ends and drops nothing any more."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from services.core.db import Database, migrate
from services.core.errors import Conflict
from services.ingest.store import operations, staging
from services.ingest.store.operations import Claims
from tests.support.postgres import PostgresForTests


class Store:
    def __init__(self, url: str) -> None:
        self.url = url
        self.database = Database(url, size=4)

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as session:
            cursor = session.execute(statement)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
async def store(postgres: PostgresForTests) -> AsyncIterator[Store]:
    url = postgres.create_database()
    migrate(url)
    made = Store(url)
    await made.database.open()
    made.sql("INSERT INTO projects (name, display_name) VALUES ('one', 'One'), ('two', 'Two')")
    yield made
    await made.database.close()


async def enqueue(store: Store, project_id: int) -> int:
    async with store.database.transaction() as connection:
        return (await operations.enqueue(connection, project_id, {})).id


async def test_a_project_is_claimed_once_and_others_meanwhile(store: Store) -> None:
    first, other, third = (Claims(store.url, name) for name in ("a", "b", "c"))
    await enqueue(store, 1)
    await enqueue(store, 2)
    async with first.next() as one, other.next() as two, third.next() as none:
        assert one is not None
        assert two is not None
        assert {one.operation.project, two.operation.project} == {"one", "two"}
        assert none is None
    for claims in (first, other, third):
        await claims.close()


async def test_a_claim_ends_with_its_block_and_the_session_serves_again(store: Store) -> None:
    claims, other = Claims(store.url, "a"), Claims(store.url, "b")
    for _ in range(3):
        await enqueue(store, 1)
        async with claims.next() as claim:
            assert claim is not None
            async with store.database.transaction() as connection:
                await operations.end(connection, claim, "done", {}, None)
    assert store.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]
    await enqueue(store, 1)
    async with other.next() as claim:
        assert claim is not None
    await claims.close()
    await other.close()


async def test_a_lost_session_frees_the_project_and_is_opened_anew(store: Store) -> None:
    claims, other = Claims(store.url, "a"), Claims(store.url, "b")
    operation = await enqueue(store, 1)
    with pytest.raises(psycopg.OperationalError):  # noqa: PT012 - raised when the block ends
        async with claims.next() as claim:
            assert claim is not None
            store.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'undercroft-claim'"
            )
            async with other.next() as taken:
                assert taken is not None
                assert (taken.operation.id, taken.operation.attempts) == (operation, 2)
                assert taken.fence == claim.fence + 1
    async with claims.next() as again:
        assert again is not None
        assert again.operation.id == operation
    await claims.close()
    await other.close()


async def test_who_was_overtaken_drops_nothing_of_the_successor(store: Store) -> None:
    claims, other = Claims(store.url, "a"), Claims(store.url, "b")
    await enqueue(store, 1)
    with pytest.raises(psycopg.OperationalError):  # noqa: PT012 - raised when the block ends
        async with claims.next() as before:
            assert before is not None
            store.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'undercroft-claim'"
            )
            async with other.next() as after:
                assert after is not None
                async with store.database.transaction() as connection:
                    await staging.stage_deleted(connection, after.operation.id, 1, ["a.py"])
                for state in ("done", "failed", "cancelled"):
                    with pytest.raises(Conflict):
                        async with store.database.transaction() as connection:
                            await operations.end(connection, before, state, {}, None)
                with pytest.raises(Conflict):
                    async with store.database.transaction() as connection:
                        await operations.hold(connection, before)
                assert store.sql("SELECT state FROM operations") == [("running",)]
                assert store.sql("SELECT path FROM staged_files") == [("a.py",)]
                async with store.database.transaction() as connection:
                    await operations.end(connection, after, "done", {}, None)
    assert store.sql("SELECT count(*) FROM staged_files") == [(0,)]
    await claims.close()
    await other.close()


async def test_a_run_that_is_asked_for_twice_is_one_until_it_begins(store: Store) -> None:
    first = await enqueue(store, 1)
    assert await enqueue(store, 1) == first
    async with store.database.transaction() as connection:
        clear = await operations.enqueue(connection, 1, {}, kind=operations.CLEAR)
        # What is asked for after a clear is not what was asked for before it.
        after = await operations.enqueue(connection, 1, {})
    assert len({first, clear.id, after.id}) == 3
