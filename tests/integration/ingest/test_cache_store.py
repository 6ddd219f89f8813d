"""G36 and G37 against a real Postgres: the cache is exported from one state, taken in whole or not, pruned safely."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import grpc
import grpc.aio
import numpy as np
import psycopg
import pytest
from google.protobuf import duration_pb2
from undercroft.ingest.v1 import index_service_pb2, index_service_pb2_grpc

from services.core.authorization import AllowAll, Authorizer, Visible
from services.core.db import Database, migrate
from services.core.errors import DataLoss, InvalidArgument, NotFound, Overloaded, Unavailable
from services.core.grpc import ErrorInterceptor, error_reason, open_channel
from services.ingest import caching
from services.ingest.cache import Header, ModelVectors, VectorBlock, Writer, read_blocks, verify
from services.ingest.cache_server import CacheServicer
from services.ingest.caching import EmbeddingCache, Imported, Pruned, keep_house
from services.ingest.fingerprint import EMBEDDING_FORMAT
from services.ingest.store import cache as rows
from tests.support.postgres import PostgresForTests

FORMAT = EMBEDDING_FORMAT.decode()
MODEL, OTHER_MODEL = (hashlib.sha256(name).hexdigest() for name in (b"one", b"other"))
DAY_S = 86_400.0


def key(number: int) -> bytes:
    return hashlib.sha256(f"text {number}".encode()).digest()


@pytest.fixture(scope="module")
def template(postgres: PostgresForTests) -> str:
    url = postgres.create_database()
    migrate(url)
    return url.rpartition("/")[2]


class Store:
    """A database of its own, filled and looked at past the code under test."""

    def __init__(self, url: str, local: Path) -> None:
        self.url = url
        self.local = local
        self.database = Database(url, size=6)
        self.small = Database(url, size=1)
        self.cache = EmbeddingCache(self.database, local, 30 * DAY_S, url=url)
        self.session = psycopg.connect(url, autocommit=True)

    def sql(self, statement: str, *parameters: object) -> list[tuple[object, ...]]:
        cursor = self.session.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []

    def add_vectors(self, numbers: range | list[int], model: str = MODEL, dimensions: int = 8) -> None:
        for number in numbers:
            vector = np.random.default_rng(number).standard_normal(dimensions).astype(np.float16)
            self.sql(
                "INSERT INTO vectors (fingerprint, model_digest, embedding) VALUES (%s, %s, %s::halfvec)",
                key(number),
                model,
                str(vector.tolist()),
            )

    def add_project(self, name: str = "shop") -> int:
        ((project_id,),) = self.sql("INSERT INTO projects (name, display_name) VALUES (%s, '') RETURNING id", name)
        assert isinstance(project_id, int)
        return project_id

    def use(self, project_id: int, numbers: range | list[int]) -> None:
        """Give a project the texts of vectors."""
        for number in numbers:
            self.sql(
                """
                INSERT INTO contents (project_id, content_hash, text_hash, fingerprint, language, name, title,
                                      embedded_title, text)
                VALUES (%s, %s, '', %s, '', '', '', '', '')
                """,
                project_id,
                key(number),
                key(number),
            )

    def drop(self, numbers: range | list[int]) -> None:
        """Take the texts of vectors from all projects."""
        self.sql("DELETE FROM contents WHERE fingerprint = ANY(%s)", [key(number) for number in numbers])

    def vectors(self) -> dict[bytes, tuple[object, ...]]:
        """Return all vectors by fingerprint: model and exact bytes."""
        found = self.sql("SELECT fingerprint, model_digest, halfvec_send(embedding) FROM vectors")
        return {bytes(one[0]): one[1:] for one in found}  # type: ignore[call-overload]

    def state(self) -> list[tuple[object, ...]]:
        """Return everything about the rows of vectors."""
        return self.sql("SELECT id, fingerprint, created_at, unused_since, embedding::text FROM vectors ORDER BY id")

    def unused_since(self, number: int) -> object:
        ((moment,),) = self.sql("SELECT unused_since FROM vectors WHERE fingerprint = %s", key(number))
        return moment

    def age(self, numbers: range | list[int], seconds: float) -> None:
        """Make vectors unused for longer."""
        self.sql(
            """
            UPDATE vectors SET unused_since = unused_since - make_interval(secs => %s) WHERE fingerprint = ANY(%s)
            """,
            seconds,
            [key(number) for number in numbers],
        )

    def has(self, numbers: range | list[int]) -> bool:
        return self.vectors().keys() == {key(number) for number in numbers}

    async def export(self, model: str = "") -> bytes:
        return b"".join([part async for part in self.cache.export(model)])

    async def take_in(self, exported: bytes) -> Imported:
        async def parts() -> AsyncIterator[bytes]:
            for start in range(0, len(exported), 1000):
                yield exported[start : start + 1000]

        return await self.cache.take_in(parts())


@contextlib.asynccontextmanager
async def opened(postgres: PostgresForTests, template: str, local: Path) -> AsyncIterator[Store]:
    url = postgres.create_database(template)
    store = Store(url, local)
    await store.database.open()
    try:
        yield store
    finally:
        await store.database.close()
        store.session.close()
        postgres.drop_database(url)


@pytest.fixture
async def store(postgres: PostgresForTests, template: str, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(postgres, template, tmp_path / "local") as one:
        yield one


@pytest.fixture
async def elsewhere(postgres: PostgresForTests, template: str, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(postgres, template, tmp_path / "elsewhere") as other:
        yield other


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "_PAGE_ROWS", 3)


async def test_an_export_brings_every_vector_elsewhere_bit_for_bit(store: Store, elsewhere: Store) -> None:
    store.add_vectors(range(50))
    store.add_vectors(range(100, 120), OTHER_MODEL, 3)
    exported = await store.export()
    assert await elsewhere.take_in(exported) == Imported(added=70, known=0)
    assert elsewhere.vectors() == store.vectors()
    assert await elsewhere.export() == exported
    assert await store.export() == exported
    # Nobody uses them yet; they count as unused from the import on.
    assert elsewhere.sql("SELECT count(*) FROM vectors WHERE unused_since IS NOT NULL") == [(70,)]
    assert await elsewhere.take_in(exported) == Imported(added=0, known=70)


async def test_an_export_of_one_model_has_its_vectors_alone(store: Store) -> None:
    store.add_vectors(range(5))
    store.add_vectors(range(100, 103), OTHER_MODEL, 3)
    header = verify(io.BytesIO(await store.export(OTHER_MODEL)), FORMAT)
    assert header.models == (ModelVectors(OTHER_MODEL, 3, 3),)
    with pytest.raises(NotFound) as told:
        await store.export("0" * 64)
    assert told.value.reason == "MODEL_NOT_CACHED"


async def test_an_empty_cache_exports_and_imports(store: Store, elsewhere: Store) -> None:
    assert await elsewhere.take_in(await store.export()) == Imported(0, 0)


async def test_an_export_is_of_one_moment(store: Store) -> None:
    # Several blocks: 1,000 dimensions make a block of some 500 vectors.
    store.sql(
        """
        INSERT INTO vectors (fingerprint, model_digest, embedding)
        SELECT sha256(n::text::bytea), %s, array_fill(n, ARRAY[1000])::vector::halfvec FROM generate_series(1, 1500) n
        """,
        MODEL,
    )
    before = await store.export()
    parts = []
    async for part in store.cache.export(""):
        parts.append(part)
        if len(parts) == 2:
            store.sql("DELETE FROM vectors WHERE id %% 2 = 0")
            store.add_vectors(range(20), dimensions=1000)
    assert len(parts) > 4
    assert b"".join(parts) == before
    assert await store.export() != before


async def test_what_is_there_already_stays(store: Store, elsewhere: Store) -> None:
    store.add_vectors(range(10))
    elsewhere.add_vectors([3], dimensions=8)
    elsewhere.sql("UPDATE vectors SET embedding = '[1,0,0,0,0,0,0,0]'")
    before = elsewhere.state()
    assert await elsewhere.take_in(await store.export()) == Imported(added=9, known=1)
    assert elsewhere.state()[:1] == before


async def test_an_import_renews_the_retention_of_what_was_unused(store: Store, elsewhere: Store) -> None:
    store.add_vectors(range(4))
    elsewhere.add_vectors(range(4))
    elsewhere.use(elsewhere.add_project(), [0])
    await keep_house(elsewhere.database, 30 * DAY_S)
    elsewhere.age(range(1, 4), 29.9 * DAY_S)
    assert await elsewhere.take_in(await store.export()) == Imported(added=0, known=4)
    elsewhere.age(range(1, 4), 0.2 * DAY_S)
    assert await keep_house(elsewhere.database, 30 * DAY_S) == 0
    assert elsewhere.unused_since(0) is None


def _forged(model: str, dimensions: int, numbers: list[int], embedding_format: str = FORMAT) -> bytes:
    """Return an export by hand."""
    writer = Writer(Header(embedding_format, "p", (ModelVectors(model, dimensions, len(numbers)),)))
    keys = sorted(key(number) for number in numbers)
    block = VectorBlock(0, b"".join(keys), np.ones((len(keys), dimensions), dtype="<f2"))
    return writer.head() + writer.block(block) + writer.tail()


async def test_what_can_not_be_taken_in_changes_nothing_and_says_why(store: Store, tmp_path: Path) -> None:
    store.add_vectors(range(10))
    exported = await store.export()
    before = store.state()
    flipped = bytearray(exported)
    flipped[len(flipped) // 2] ^= 4
    refused = {
        "damaged": bytes(flipped),
        "ends after": exported[:-1],
        "follow its end": exported + b"\n",
        "empty": b"",
        "does not begin": b"SQLite format 3\0" + exported,
        "undercroft-embedding-0": _forged(MODEL, 8, [70, 71], "undercroft-embedding-0"),
        "4 dimensions, those here 8": _forged(MODEL, 4, [70, 71]),
    }
    reasons = []
    for words, wrong in refused.items():
        with pytest.raises(InvalidArgument) as told:
            await store.take_in(wrong)
        assert words in told.value.message
        assert told.value.remedy.startswith("Nothing has changed.")
        reasons.append(told.value.reason)
        assert store.state() == before
    assert reasons == ["CACHE_DAMAGED"] * 5 + ["CACHE_INCOMPATIBLE"] * 2
    assert list((tmp_path / "local").iterdir()) == []


async def test_an_import_that_fails_midway_takes_nothing_in(store: Store, elsewhere: Store) -> None:
    store.add_vectors(range(10))
    store.add_vectors(range(100, 110), max(MODEL, OTHER_MODEL) + "0", 3)
    exported = await store.export()
    last = max(key(number) for number in range(100, 110))
    elsewhere.sql(
        f"""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.fingerprint = '\\x{last.hex()}' THEN RAISE EXCEPTION 'refused'; END IF;
            RETURN NEW;
        END $$
        """
    )
    elsewhere.sql("CREATE TRIGGER refuse BEFORE INSERT ON vectors FOR EACH ROW EXECUTE FUNCTION refuse()")
    with pytest.raises(psycopg.errors.RaiseException):
        await elsewhere.take_in(exported)
    assert elsewhere.state() == []
    elsewhere.sql("DROP TRIGGER refuse ON vectors")
    assert await elsewhere.take_in(exported) == Imported(added=20, known=0)


async def test_vectors_that_do_not_fit_their_model_are_not_exported(store: Store) -> None:
    store.add_vectors(range(5))
    store.add_vectors(range(5, 8), dimensions=7)
    with pytest.raises(DataLoss) as told:
        await store.export()
    assert told.value.reason == "CACHE_INCONSISTENT"


async def test_status_counts_the_rows(store: Store) -> None:
    assert await store.cache.models() == []
    store.add_vectors(range(10))
    store.add_vectors(range(100, 104), OTHER_MODEL, 3)
    store.use(store.add_project(), range(7))
    one, other = sorted(
        [rows.CachedModel(MODEL, 8, 10, 3), rows.CachedModel(OTHER_MODEL, 3, 4, 4)], key=lambda model: model.digest
    )
    assert await store.cache.models() == [one, other]
    assert rows.CachedModel(MODEL, 8, 10, 3).size_bytes == 160


@pytest.mark.usefixtures("small_pages")
async def test_vectors_go_once_they_were_unused_for_the_retention(store: Store) -> None:
    store.add_vectors(range(20))
    project = store.add_project()
    store.use(project, range(12))
    assert await keep_house(store.database, 30 * DAY_S) == 0
    assert store.unused_since(3) is None
    since = store.unused_since(15)
    assert since is not None
    store.age(range(12, 16), 31 * DAY_S)
    assert await keep_house(store.database, 30 * DAY_S) == 4
    assert store.has([*range(12), *range(16, 20)])
    # A time that was noted stays; what is used again loses it.
    before = store.unused_since(17)
    store.use(project, [16])
    assert await keep_house(store.database, 30 * DAY_S) == 0
    assert store.unused_since(17) == before
    assert store.unused_since(16) is None
    # The corpus shrinks to nothing, and so does the cache in the end.
    store.drop(range(20))
    assert await keep_house(store.database, 30 * DAY_S) == 0
    store.age(range(20), 31 * DAY_S)
    assert await keep_house(store.database, 30 * DAY_S) == 16
    assert store.vectors() == {}


@pytest.mark.usefixtures("small_pages")
async def test_pruning_by_hand_takes_what_is_unused_and_nothing_else(store: Store) -> None:
    store.add_vectors(range(20))
    store.use(store.add_project(), range(8))
    assert await store.cache.prune() == Pruned(removed=0, kept=20)
    assert await store.cache.prune(1e15) == Pruned(removed=0, kept=20)
    store.age([8, 9], 3 * DAY_S)
    assert await store.cache.prune(2 * DAY_S) == Pruned(removed=2, kept=18)
    assert await store.cache.prune(0) == Pruned(removed=10, kept=8)
    assert store.has(range(8))


async def _run(store: Store, project_id: int, number: int) -> bool:
    """Use a text as a run does: commit its content, keep its vector, then look whether it is there."""
    async with store.database.transaction() as connection:
        await connection.execute(
            """
            INSERT INTO contents (project_id, content_hash, text_hash, fingerprint, language, name, title,
                                  embedded_title, text)
            VALUES (%s, %s, '', %s, '', '', '', '', '')
            """,
            (project_id, key(number), key(number)),
        )
    async with store.database.transaction() as connection:
        await connection.execute(
            "UPDATE vectors SET unused_since = NULL WHERE unused_since IS NOT NULL AND fingerprint = %s", (key(number),)
        )
    async with store.database.transaction() as connection:
        cursor = await connection.execute("SELECT FROM vectors WHERE fingerprint = %s", (key(number),))
        return await cursor.fetchone() is not None


async def test_a_vector_that_a_run_has_found_is_never_pruned_under_it(store: Store) -> None:
    """Runs take texts up while pruners remove all that is unused: what a run found is there as long as its text."""
    chosen = random.Random(7)
    store.add_vectors(range(600))
    project = store.add_project()
    ended = False
    found: list[int] = []

    async def prune() -> None:
        while not ended:
            await store.cache.prune(0)

    pruners = [asyncio.create_task(prune()) for _ in range(2)]
    order = list(range(600))
    chosen.shuffle(order)
    for start in range(0, 600, 4):
        batch = order[start : start + 4]
        kept = await asyncio.gather(*(_run(store, project, number) for number in batch))
        found += [number for number, there in zip(batch, kept, strict=True) if there]
        # The rest comes back as if it had been embedded, so that there is something to prune and to find.
        await asyncio.to_thread(
            store.sql,
            """
            INSERT INTO vectors (fingerprint, model_digest, embedding)
            SELECT f, %s, '[1,1,1,1,1,1,1,1]' FROM unnest(%s::bytea[]) f ON CONFLICT DO NOTHING
            """,
            MODEL,
            [key(number) for number in order[start + 4 :]],
        )
    ended = True
    await asyncio.gather(*pruners)
    await store.cache.prune(0)
    assert {key(number) for number in found} <= store.vectors().keys()
    assert 0 < len(found) < 600


async def test_pruning_passes_over_what_a_run_is_taking_up_and_deletes_it_for_nobody(store: Store) -> None:
    store.add_vectors(range(2))
    await keep_house(store.database, 30 * DAY_S)
    project = store.add_project()
    with psycopg.connect(store.url) as run:
        run.execute("UPDATE vectors SET unused_since = NULL WHERE fingerprint = %s", (key(0),))
        # Not committed, nor is there a content: pruning neither waits for the row nor takes it.
        assert await asyncio.wait_for(store.cache.prune(0), 10) == Pruned(removed=1, kept=1)
    store.use(project, [0])
    assert await store.cache.prune(0) == Pruned(removed=0, kept=1)


async def test_a_run_that_meets_a_deletion_waits_and_finds_the_vector_gone(store: Store) -> None:
    store.add_vectors([0])
    await keep_house(store.database, 30 * DAY_S)
    project = store.add_project()
    async with store.database.transaction() as connection:
        assert await rows.prune(connection, 0, 10) == 1
        run = asyncio.create_task(_run(store, project, 0))
        await _until_blocked(store, 1)
    assert not await run


async def _until_blocked(store: Store, sessions: int) -> None:
    """Wait until so many sessions wait for a lock."""
    async with asyncio.timeout(20):
        while True:
            waiting = store.sql(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            if waiting == [(sessions,)]:
                return
            await asyncio.sleep(0.01)


async def test_imports_prunes_and_runs_at_once_lose_nothing_that_was_imported(store: Store, elsewhere: Store) -> None:
    """Imports of overlapping files, runs of the same texts in no order, and housekeeping: no deadlock, all there."""
    store.add_vectors(range(400))
    store.add_vectors(range(1000, 1400), OTHER_MODEL, 3)
    whole, half = await store.export(), await store.export(OTHER_MODEL)
    elsewhere.add_vectors(range(0, 400, 2))
    elsewhere.add_vectors(range(1000, 1400, 3), OTHER_MODEL, 3)
    project = elsewhere.add_project()
    await keep_house(elsewhere.database, 30 * DAY_S)
    ended = False

    async def keep() -> None:
        while not ended:
            await keep_house(elsewhere.database, 30 * DAY_S)

    keepers = [asyncio.create_task(keep()) for _ in range(2)]
    for start in range(0, 40, 10):
        numbers = [*range(start, start + 10), *range(1000 + start, 1010 + start)]
        random.Random(start).shuffle(numbers)
        imports = [elsewhere.take_in(whole), elsewhere.take_in(half), elsewhere.take_in(whole)]
        used = asyncio.gather(*(_run(elsewhere, project, number) for number in numbers[:3]))
        for imported in await asyncio.gather(*imports):
            assert imported.added + imported.known in (800, 400)
        await used
    ended = True
    await asyncio.gather(*keepers)
    assert elsewhere.vectors().keys() == store.vectors().keys()


async def test_what_pruning_removes_during_an_import_is_there_after_it(store: Store, elsewhere: Store) -> None:
    store.add_vectors(range(6))
    exported = await store.export()
    elsewhere.add_vectors(range(3))
    await keep_house(elsewhere.database, 30 * DAY_S)
    async with elsewhere.database.transaction() as connection:
        assert await rows.prune(connection, 0, 100) == 3
        importing = asyncio.create_task(elsewhere.take_in(exported))
        await _until_blocked(elsewhere, 1)
    assert await importing == Imported(added=6, known=0)
    assert elsewhere.has(range(6))


class Superseded:
    """Projects with generations, told in SQL: which of them may read a vector that was superseded."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.number = 0

    def publish(self, project_id: int, began: str, published: str, state: str = "done") -> None:
        """Record a generation of a run; times are seconds before now."""
        self.number += 1
        ((run,),) = self.store.sql(
            """
            INSERT INTO operations (project_id, kind, options, state, started_at)
            VALUES (%s, 'index', '{}', %s, now() - %s::interval) RETURNING id
            """,
            project_id,
            state,
            began,
        )
        if state == "done":
            self.store.sql(
                """
                INSERT INTO generations (project_id, number, run_id, published_at, pipeline_hash, model_name,
                                         model_digest, model_dimensions, model_budget_tokens, counts, degraded)
                VALUES (%s, %s, %s, now() - %s::interval, '', '', '', 0, 0, '{}', '[]')
                """,
                project_id,
                self.number,
                run,
                published,
            )

    def supersede(self, number: int, age: str) -> None:
        self.store.sql(
            """
            INSERT INTO superseded_vectors (id, fingerprint, model_digest, embedding, superseded_at)
            VALUES (%s, %s, 'm', '[1]', now() - %s::interval)
            """,
            number,
            key(number),
            age,
        )

    def left(self) -> int:
        ((count,),) = self.store.sql("SELECT count(*) FROM superseded_vectors")
        assert isinstance(count, int)
        return count


async def test_a_superseded_vector_stays_while_a_generation_may_read_it(store: Store) -> None:
    told = Superseded(store)
    project, other = store.add_project(), store.add_project("other")
    store.use(project, [0])
    store.use(other, [0])
    told.publish(project, "3 hours", "3 hours")
    told.publish(other, "3 hours", "3 hours")
    told.supersede(0, "2 hours")
    await keep_house(store.database, 0)
    assert told.left() == 1
    # The project goes on, but its old generation is still kept, and the other project reads its own.
    told.publish(project, "1 hour", "59 minutes")
    await keep_house(store.database, 0)
    assert told.left() == 1
    store.sql("DELETE FROM generations WHERE project_id = %s AND number = 1", project)
    await keep_house(store.database, 0)
    assert told.left() == 1
    store.sql("DELETE FROM generations WHERE project_id = %s", other)
    # A run of it that began before the vector was superseded may have written the vector into its files.
    told.publish(other, "150 minutes", "", state="running")
    await keep_house(store.database, 0)
    assert told.left() == 1
    store.sql("UPDATE operations SET state = 'done'")
    told.publish(other, "150 minutes", "100 minutes")
    await keep_house(store.database, 0)
    assert told.left() == 1
    store.sql("DELETE FROM generations WHERE project_id = %s", other)
    told.publish(other, "90 minutes", "80 minutes")
    await keep_house(store.database, 0)
    assert told.left() == 0


async def test_a_superseded_vector_goes_with_its_text_or_the_generations_before(store: Store) -> None:
    told = Superseded(store)
    project = store.add_project()
    store.use(project, [0, 1])
    told.publish(project, "3 hours", "3 hours")
    told.supersede(0, "2 hours")
    told.supersede(1, "2 hours")
    store.drop([1])
    await keep_house(store.database, 0)
    assert told.left() == 1
    # The run that superseded it published in the same transaction, and reads what it put in its place.
    store.sql("DELETE FROM generations")
    told.publish(project, "150 minutes", "0")
    store.sql("UPDATE generations SET published_at = (SELECT superseded_at FROM superseded_vectors)")
    await keep_house(store.database, 0)
    assert told.left() == 0


async def test_what_is_read_of_the_database_at_a_time_is_one_block(store: Store) -> None:
    store.add_vectors(range(10))
    (whole,) = read_blocks(io.BytesIO(await store.export()))
    async with store.database.snapshot() as connection:
        blocks = [one async for one in rows.read_blocks(connection, 5, ModelVectors(MODEL, 8, 10), 4)]
    assert [(len(one), one.model) for one in blocks] == [(4, 5), (4, 5), (2, 5)]
    assert b"".join(one.fingerprints for one in blocks) == whole.fingerprints
    assert b"".join(one.vectors.tobytes() for one in blocks) == whole.vectors.tobytes()


async def test_an_export_that_is_broken_off_frees_its_connection(store: Store) -> None:
    store.add_vectors(range(10))
    for _ in range(20):
        parts = store.cache.export("")
        assert await anext(parts)
        assert await anext(parts)
        await parts.aclose()
    assert verify(io.BytesIO(await store.export()), FORMAT).vectors == 10


def exporting(store: Store) -> int:
    """Count the sessions of exports at the server."""
    ((count,),) = store.sql(
        """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'undercroft-export'
        """
    )
    assert isinstance(count, int)
    return count


async def _until_no_export(store: Store) -> None:
    async with asyncio.timeout(20):
        while exporting(store):
            await asyncio.sleep(0.01)


async def test_exports_take_no_connection_of_the_pool_and_are_few(store: Store) -> None:
    store.add_vectors(range(10))
    store.cache = EmbeddingCache(store.small, store.local, 30 * DAY_S, url=store.url)
    async with contextlib.AsyncExitStack() as stack:
        await store.small.open()
        stack.push_async_callback(store.small.close)
        running = []
        for _ in range(2):
            running.append(await stack.enter_async_context(contextlib.aclosing(store.cache.export(""))))
            assert await anext(running[-1])
        assert exporting(store) == 2
        with pytest.raises(Overloaded) as refused:
            await store.export()
        assert refused.value.reason == "TOO_MANY_EXPORTS"
        assert refused.value.remedy
        # The pool has one connection, and it is free.
        assert await asyncio.wait_for(store.cache.prune(), 10) == Pruned(removed=0, kept=10)
        assert [part async for part in running[0]]
        assert await store.export()
    await _until_no_export(store)


async def test_an_export_that_nobody_reads_is_ended_and_its_reader_told(store: Store) -> None:
    store.add_vectors(range(10))
    patient, store.cache = store.cache, EmbeddingCache(store.database, store.local, DAY_S, url=store.url, stall_s=0.2)
    stalled = []
    for parts_taken in (1, 2):
        stalled.append(store.cache.export(""))
        for _ in range(parts_taken):
            assert await anext(stalled[-1])
    await _until_no_export(store)
    # Nobody has come back to them; there is room for others all the same.
    assert await store.export() == b"".join([part async for part in patient.export("")])
    for parts in stalled:
        with pytest.raises(Unavailable) as told:
            await anext(parts)
        assert told.value.reason == "EXPORT_STALLED"
        assert "0.2 s" in told.value.message
    assert await store.export()


async def test_a_reader_that_is_slow_but_reads_gets_all(store: Store) -> None:
    store.sql(
        """
        INSERT INTO vectors (fingerprint, model_digest, embedding)
        SELECT sha256(n::text::bytea), %s, array_fill(n, ARRAY[1000])::vector::halfvec FROM generate_series(1, 3000) n
        """,
        MODEL,
    )
    store.cache = EmbeddingCache(store.database, store.local, DAY_S, url=store.url, stall_s=1.0)
    parts, started = [], asyncio.get_running_loop().time()
    async for part in store.cache.export(""):
        parts.append(part)
        await asyncio.sleep(0.2)
    assert asyncio.get_running_loop().time() - started > 1.0
    assert verify(io.BytesIO(b"".join(parts)), FORMAT).vectors == 3000


async def test_an_export_that_finds_no_database_takes_no_place(store: Store) -> None:
    nowhere = store.url.rpartition("/")[0] + "/none_such"
    cache = EmbeddingCache(store.database, store.local, DAY_S, url=nowhere)
    for _ in range(4):
        with pytest.raises(psycopg.OperationalError):
            await anext(cache.export(""))


async def _read_on(call: grpc.aio.UnaryStreamCall) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def test_clients_that_stall_do_not_keep_others_from_the_cache(store: Store) -> None:
    """Over gRPC: the transport's buffers are full, and the calls end by the service's doing."""
    store.sql(
        """
        INSERT INTO vectors (fingerprint, model_digest, embedding)
        SELECT sha256(n::text::bytea), %s, array_fill(n, ARRAY[1000])::vector::halfvec FROM generate_series(1, 8000) n
        """,
        MODEL,
    )
    store.cache = EmbeddingCache(store.database, store.local, DAY_S, url=store.url, stall_s=0.5)
    async with served(store, AllowAll()) as stub:
        calls = [stub.ExportCache(index_service_pb2.ExportCacheRequest()) for _ in range(2)]
        for call in calls:
            assert (await call.read()).data
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.ExportCache(index_service_pb2.ExportCacheRequest()).read()
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await stub.GetCacheStatus(index_service_pb2.GetCacheStatusRequest())).models[0].vectors == 8000
        await _until_no_export(store)
        size = sum([len(part.data) async for part in stub.ExportCache(index_service_pb2.ExportCacheRequest())])
        assert size > 16_000_000
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError) as told:
                await asyncio.wait_for(_read_on(call), 10)
            assert told.value.code() is grpc.StatusCode.UNAVAILABLE
            assert error_reason(told.value)[0] == "EXPORT_STALLED"


class SomeProjects:
    """An authorizer whose callers see one project."""

    async def visible(self, metadata: Mapping[str, str]) -> Visible:
        return Visible(frozenset({1}))


@contextlib.asynccontextmanager
async def served(store: Store, authorizer: Authorizer) -> AsyncIterator[index_service_pb2_grpc.IndexServiceAsyncStub]:
    server = grpc.aio.server(interceptors=[ErrorInterceptor()])
    index_service_pb2_grpc.add_IndexServiceServicer_to_server(CacheServicer(store.cache, authorizer), server)
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        async with open_channel(target) as channel:
            yield index_service_pb2_grpc.IndexServiceStub(channel)
    finally:
        await server.stop(None)


async def test_the_cache_is_for_callers_who_see_every_project(store: Store) -> None:
    store.add_vectors(range(3))
    before = store.state()
    async with served(store, SomeProjects()) as stub:
        for call in (
            lambda: stub.ExportCache(index_service_pb2.ExportCacheRequest()).read(),
            lambda: stub.ImportCache(iter([])),
            lambda: stub.GetCacheStatus(index_service_pb2.GetCacheStatusRequest()),
            lambda: stub.PruneCache(index_service_pb2.PruneCacheRequest(unused_for=duration_pb2.Duration())),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call()
            assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert error_reason(raised.value)[0] == "CACHE_NOT_VISIBLE"
    assert store.state() == before
    async with served(store, AllowAll()) as stub:
        status = await stub.GetCacheStatus(index_service_pb2.GetCacheStatusRequest())
        assert [(one.vectors, one.size_bytes) for one in status.models] == [(3, 48)]


async def test_a_caller_who_leaves_an_import_leaves_nothing_behind(store: Store, elsewhere: Store) -> None:
    store.add_vectors(range(10))
    exported = await store.export()
    started = asyncio.Event()

    async def parts() -> AsyncIterator[index_service_pb2.ImportCacheRequest]:
        yield index_service_pb2.ImportCacheRequest(data=exported[:-1])
        started.set()
        await asyncio.sleep(60)

    async with served(elsewhere, AllowAll()) as stub:
        call = stub.ImportCache(parts())
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert elsewhere.state() == []
        whole = await stub.ImportCache(iter([index_service_pb2.ImportCacheRequest(data=exported)]))
        assert whole.added == 10
