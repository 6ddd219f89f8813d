"""Postgres: pooled connections, transactions with the right isolation, and migrations.

A unit of work is one transaction. Work that may lose a race is retried on 40001 (serialization) and 40P01 (deadlock)
and on nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import alembic.command
import alembic.config
import alembic.script
import psycopg
import sqlalchemy
import structlog
from psycopg import sql
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from services.core.errors import InvalidArgument, NotReady, Unavailable
from services.core.grpc import tell_as

log = structlog.get_logger(__name__)

Connection = psycopg.AsyncConnection[DictRow]
T = TypeVar("T")

# What the database answers when something in the rows is at fault, not the database.
REFUSALS = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.StatementTooComplex,
)

DISK_FULL = NotReady(
    "The disk of the database is full.",
    remedy="What was under way is undone, all else is kept. Free space there or enlarge the volume, then try again.",
    reason="DATABASE_DISK_FULL",
)


def _unavailable(message: str, *, waited: bool = False) -> Unavailable:
    remedy = "Try again. If it stays so, the log of the database tells why; a full disk is the usual reason."
    return Unavailable(message, remedy=remedy, reason="DATABASE_UNAVAILABLE", waited=waited)


tell_as(
    psycopg.DataError,
    InvalidArgument(
        "A value can't be stored or looked up as it is.",
        remedy="Leave out NUL characters, odd globs and numbers out of range.",
    ),
)
tell_as(psycopg.errors.DiskFull, DISK_FULL)
tell_as(
    psycopg.errors.ReadOnlySqlTransaction,
    Unavailable(
        "The database takes no changes at present: it is a standby, or was set to read only.",
        remedy="Try again after its failover, or have UNDERCROFT_DATABASE_URL name the primary.",
        reason="DATABASE_READ_ONLY",
    ),
)
tell_as(
    psycopg.errors.InsufficientPrivilege,
    NotReady(
        "The database's role lacks a right.",
        remedy="The database's log names it: grant that right, or have UNDERCROFT_DATABASE_URL name another role.",
        reason="DATABASE_PERMISSION",
    ),
)
tell_as(psycopg.errors.QueryCanceled, _unavailable("The database did not answer in time.", waited=True))
tell_as(PoolTimeout, _unavailable("The database did not answer in time.", waited=True))
tell_as(psycopg.OperationalError, _unavailable("The database does not answer."))

_RETRIES = 5
_CHECK_INTERVAL_S = 1.0
_PING_S = 5.0
_OPEN_S = 30.0
_CONNECT_S = 5
_OPEN_INTERVAL_S = 1.0
# Any constant: one lock for all migrators of a database.
_MIGRATION_LOCK = 0x0C0FFEE0


class Database:
    """A pool of connections to the appliance's database."""

    def __init__(self, url: str, *, size: int = 8, prepare: bool = True) -> None:
        async def configure(connection: Connection) -> None:
            if not prepare:
                connection.prepare_threshold = None

        self._url = url
        self._checked: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=size,
            open=False,
            configure=configure,
            check=self._check,
            # Texts are of any script, whatever the database's URL or PGCLIENTENCODING says.
            kwargs={"row_factory": dict_row, "application_name": "undercroft", "client_encoding": "UTF8"},
        )

    async def _check(self, connection: Connection) -> None:
        """Look whether a connection still works, unless it did a moment ago: the look is a round trip."""
        now = time.monotonic()
        if now - self._checked.get(connection, -math.inf) > _CHECK_INTERVAL_S:
            # A server that hangs answers nothing and closes nothing.
            async with asyncio.timeout(_PING_S):
                await AsyncConnectionPool.check_connection(connection)
            self._checked[connection] = now

    async def open(self) -> None:
        """Connect; Unavailable says why that went wrong for 30 s, in the words of the server or of libpq."""
        # Before the pool, whose wait ends without a reason.
        await self._wait_for_server()
        await self._pool.open(wait=True, timeout=_OPEN_S)

    async def _wait_for_server(self) -> None:
        end = time.monotonic() + _OPEN_S
        told = ""
        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(
                    self._url, connect_timeout=_CONNECT_S, application_name="undercroft"
                )
            except psycopg.OperationalError as error:
                said = " ".join(str(error).split())
                if time.monotonic() >= end:
                    raise Unavailable(
                        f"The database took no connection for {_OPEN_S:.0f} s: {said}",
                        remedy=_connecting_remedy(said),
                        reason="DATABASE_UNAVAILABLE",
                        waited=True,
                    ) from error
                if said != told:
                    log.warning("waiting for the database", said=said)
                    told = said
                await asyncio.sleep(_OPEN_INTERVAL_S)
            else:
                await connection.close()
                return

    async def close(self) -> None:
        await self._pool.close()

    async def ping(self) -> None:
        """Have the database answer; raises when it does not within 5 s."""
        async with asyncio.timeout(_PING_S), self._pool.connection() as connection:
            await connection.execute("SELECT 1")

    @contextlib.asynccontextmanager
    async def transaction(self, timeout_s: float | None = None) -> AsyncIterator[Connection]:
        """Open a READ COMMITTED transaction that commits when the block ends without an exception."""
        async with self._pool.connection() as connection, connection.transaction():
            await _limit(connection, timeout_s)
            yield connection

    @contextlib.asynccontextmanager
    async def snapshot(self, timeout_s: float | None = None) -> AsyncIterator[Connection]:
        """Open a REPEATABLE READ, read-only transaction: all statements of the block see one state."""
        async with self._pool.connection() as connection:
            # Sent with the BEGIN of the next transaction, so neither costs a round trip.
            await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            await connection.set_read_only(True)
            try:
                async with connection.transaction():
                    await _limit(connection, timeout_s)
                    yield connection
            finally:
                if not connection.closed:
                    await connection.set_isolation_level(None)
                    await connection.set_read_only(None)

    async def retry(self, work: Callable[[Connection], Awaitable[T]], timeout_s: float | None = None) -> T:
        """Run ``work`` in a transaction of its own, again when it lost a race."""
        for attempt in range(_RETRIES):
            try:
                async with self.transaction(timeout_s) as connection:
                    return await work(connection)
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                if attempt == _RETRIES - 1:
                    raise
                await asyncio.sleep(random.uniform(0.01, 0.05) * 2**attempt)
        raise AssertionError("the loop returns or raises")


def _connecting_remedy(said: str) -> str:
    """Return the next step for what libpq or the server says; libpq has no codes for it."""
    if re.search(r"authentication failed|no password supplied|role .* does not exist", said):
        return "Check user and password in UNDERCROFT_DATABASE_URL; special characters are percent-encoded there."
    if re.search(r"database .* does not exist", said):
        return "Create it, or correct the name of the database in UNDERCROFT_DATABASE_URL."
    return "Check host, port and TLS in UNDERCROFT_DATABASE_URL, and whether the server runs and lets this host in."


async def _limit(connection: Connection, timeout_s: float | None) -> None:
    """Let the deadline of a call end its statements too."""
    if timeout_s is not None:
        limit_ms = max(1, int(timeout_s * 1000))
        await connection.execute(sql.SQL("SET LOCAL statement_timeout = {}").format(sql.Literal(limit_ms)))


def _config() -> alembic.config.Config:
    config = alembic.config.Config()
    config.set_main_option("script_location", str(Path(str(resources.files("services.core"))) / "migrations"))
    return config


def _engine(url: str) -> sqlalchemy.Engine:
    def connect() -> psycopg.Connection[Any]:
        return psycopg.connect(url, application_name="undercroft-migrate")

    return sqlalchemy.create_engine("postgresql+psycopg://", creator=connect, poolclass=sqlalchemy.NullPool)


def migrate(url: str, revision: str = "head") -> None:
    """Bring the schema of the database up to this release, or to an earlier revision, one migrator at a time.

    A schema of a later release is refused (NotReady): it is never misread and never touched.
    """
    config = _config()
    with _engine(url).connect() as connection:
        connection.execute(sqlalchemy.text("SELECT pg_advisory_lock(:lock)"), {"lock": _MIGRATION_LOCK})
        # The lock belongs to the session, so this ends only the transaction that took it.
        connection.commit()
        try:
            _refuse_later_schema(config, _revision(connection))
            config.attributes["connection"] = connection
            alembic.command.upgrade(config, revision)
            connection.commit()
        finally:
            connection.rollback()
            connection.execute(sqlalchemy.text("SELECT pg_advisory_unlock(:lock)"), {"lock": _MIGRATION_LOCK})
            connection.commit()


async def check_schema(database: Database) -> None:
    """Fail with NotReady unless the schema is this release's."""
    head = alembic.script.ScriptDirectory.from_config(_config()).get_current_head()
    async with database.transaction() as connection:
        exists = await (await connection.execute("SELECT to_regclass('alembic_version') AS name")).fetchone()
        row = None
        if exists and exists["name"]:
            row = await (await connection.execute("SELECT version_num FROM alembic_version")).fetchone()
    revision = row["version_num"] if row else None
    _refuse_later_schema(_config(), revision)
    if revision != head:
        raise NotReady(
            f"The database's schema is {revision or 'empty'}, this release needs {head}.",
            remedy="Run the migrations: `undercroft up` does so, as does the migrate image.",
            reason="SCHEMA_OUTDATED",
        )


def _revision(connection: sqlalchemy.Connection) -> str | None:
    if not sqlalchemy.inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(sqlalchemy.text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def _refuse_later_schema(config: alembic.config.Config, revision: str | None) -> None:
    known = {script.revision for script in alembic.script.ScriptDirectory.from_config(config).walk_revisions()}
    if revision is not None and revision not in known:
        raise NotReady(
            f"The database has schema {revision}, which is of a later release than this one.",
            remedy="Run that release, or restore the backup that was made before the upgrade.",
            reason="SCHEMA_LATER",
        )
