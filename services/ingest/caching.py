"""What admins can ask of the embedding cache: export, import, status, prune; and its retention (DESIGN I7).

The cache belongs to no project: whoever may handle it handles the vectors of all.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import psycopg
import structlog
from psycopg.rows import dict_row

from services.core.db import Connection, Database
from services.core.errors import NotFound, Overloaded, Unavailable
from services.ingest.cache import Header, VectorBlock, Writer, incompatible, read_blocks, verify
from services.ingest.cache.format import block_rows
from services.ingest.fingerprint import EMBEDDING_FORMAT
from services.ingest.spool import spooled
from services.ingest.store import cache as rows
from services.ingest.store.cache import CachedModel

log = structlog.get_logger(__name__)

_FORMAT = EMBEDDING_FORMAT.decode()
# Rows of one transaction.
_PAGE_ROWS = 5_000
# Exports at a time. Each has a connection for as long as its reader takes.
_MOST_EXPORTS = 2


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import brought: vectors that were not there before, and those that were."""

    added: int
    known: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """Vectors that were removed and those that are left."""

    removed: int
    kept: int


class EmbeddingCache:
    """Use cases of the embedding cache. ``local_dir`` takes an import while it is checked.

    An export has a connection to ``url`` of its own, as its reader says how long it takes: the pool is for everybody.
    A reader that takes nothing for ``stall_s`` loses it.
    """

    def __init__(
        self,
        database: Database,
        local_dir: Path,
        retention_s: float,
        *,
        url: str,
        prepare: bool = True,
        stall_s: float = 60.0,
    ) -> None:
        self._database = database
        self._local = local_dir
        self.retention_s = retention_s
        self._url = url
        self._prepare = prepare
        self._stall_s = stall_s
        self._exports: set[_Export] = set()

    async def models(self) -> list[CachedModel]:
        """Tell what the cache holds, by digest of the model."""
        async with self._database.snapshot() as connection:
            return await rows.list_models(connection)

    async def export(self, digest: str) -> AsyncGenerator[bytes, None]:
        """Yield the cache as one file, or what it has of one model, in parts of at most 1 MiB.

        All of it is of one moment. NotFound when the cache has nothing of the model, Overloaded when others are being
        exported, Unavailable with the reason EXPORT_STALLED when the reader took no part for too long.
        """
        if len(self._exports) >= _MOST_EXPORTS:
            raise Overloaded(
                f"{_MOST_EXPORTS} exports of the embedding cache are under way, which is as many as there may be.",
                remedy="Try again when one of them has ended; one that nobody reads is ended by itself.",
                retry_after_s=10.0,
                reason="TOO_MANY_EXPORTS",
            )
        export = _Export(self._stall_s, self._exports.discard)
        self._exports.add(export)
        try:
            connection = await export.connect(self._url, self._prepare)
            async with contextlib.aclosing(_parts(connection, digest)) as parts:
                async for part in parts:
                    with export.offering():
                        yield part
        finally:
            await export.end()

    async def take_in(self, parts: AsyncIterator[bytes]) -> Imported:
        """Import an exported file: all of it or nothing.

        InvalidArgument with the reason CACHE_DAMAGED or CACHE_INCOMPATIBLE when it can't be taken in; then, as when the
        disk of the database is full, nothing has changed.
        """
        async with spooled(parts, self._local, "export") as file:
            header = await asyncio.to_thread(verify, file, _FORMAT)

            async def work(connection: Connection) -> int:
                return await _take_in(connection, file, header)

            added = await self._database.retry(work)
        log.info("cache imported", added=added, known=header.vectors - added)
        return Imported(added, header.vectors - added)

    async def prune(self, unused_for_s: float | None = None) -> Pruned:
        """Remove vectors that no project has used for so long, the retention when None; 0 takes all unused ones."""
        removed = await _prune(self._database, self.retention_s if unused_for_s is None else unused_for_s)
        async with self._database.transaction() as connection:
            return Pruned(removed, await rows.count_vectors(connection))


async def keep_house(database: Database, retention_s: float) -> int:
    """Hold the retention: note what came out of use, and remove what was so for too long; return how many.

    To be called now and then, by several replicas at once if need be. Works in short transactions.
    """
    removed = await _prune(database, retention_s)
    return removed + await _in_pages(database, rows.prune_superseded)


async def _prune(database: Database, unused_for_s: float) -> int:
    await _in_pages(database, rows.mark_used)
    after: bytes | None = b""
    while after is not None:
        after = await database.retry(_marking(after))
    return await _in_pages(database, lambda connection, limit: rows.prune(connection, unused_for_s, limit))


async def _in_pages(database: Database, work: Callable[[Connection, int], Awaitable[int]]) -> int:
    """Repeat work, a transaction for each page, until a page is not full."""
    total = 0
    while True:
        done = await database.retry(lambda connection: work(connection, _PAGE_ROWS))
        total += done
        if done < _PAGE_ROWS:
            return total


def _marking(after: bytes) -> Callable[[Connection], Awaitable[bytes | None]]:
    return lambda connection: rows.mark_unused(connection, after, _PAGE_ROWS)


async def _take_in(connection: Connection, file: BinaryIO, header: Header) -> int:
    """Add what a verified file holds, in the caller's transaction; return how many vectors were not there."""
    for model in header.models:
        for known in await rows.count_models(connection, model.digest):
            if known.dimensions != model.dimensions:
                raise incompatible(
                    f"its vectors of the model {model.digest[:12]} have {model.dimensions} dimensions, those here"
                    f" {known.dimensions}",
                    "One of the two was not made by that model: export from another appliance, or index without it.",
                )
    await rows.begin_intake(connection)
    added = 0
    blocks = read_blocks(file)
    while block := await asyncio.to_thread(_next, blocks):
        digest = header.models[block.model].digest
        added += await rows.take_in(connection, digest, block.fingerprints, block.vectors)
    return added


def _next(blocks: Iterator[VectorBlock]) -> VectorBlock | None:
    return next(blocks, None)


class _Export:
    """A connection that shows one moment, until it is ended or a reader stalls.

    What waits for its reader can't time out by itself. So a timer ends it then, from outside; the reader is told so
    when it goes on.
    """

    def __init__(self, stall_s: float, ended: Callable[[_Export], None]) -> None:
        self._stall_s = stall_s
        self._ended = ended
        self._connection: Connection | None = None
        self._ending: asyncio.Task[None] | None = None

    async def connect(self, url: str, prepare: bool) -> Connection:
        self._connection = connection = await psycopg.AsyncConnection.connect(
            url, row_factory=dict_row, application_name="undercroft-export", connect_timeout=30
        )
        if not prepare:
            connection.prepare_threshold = None
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await connection.set_read_only(True)
        return connection

    @contextlib.contextmanager
    def offering(self) -> Iterator[None]:
        """Let the block take the time of a reader; Unavailable when that was too much."""
        timer = asyncio.get_running_loop().call_later(self._stall_s, self._stall)
        try:
            yield
        finally:
            timer.cancel()
        if self._ending is not None:
            raise Unavailable(
                f"The export was ended, as its reader took no part of it for {self._stall_s:g} s.",
                remedy="Export again, to a place that takes in the file without a pause.",
                reason="EXPORT_STALLED",
            )

    async def end(self) -> None:
        self._ended(self)
        if self._connection is not None:
            await self._connection.close()

    def _stall(self) -> None:
        log.warning("export stalled", stall_s=self._stall_s)
        self._ending = asyncio.create_task(self.end())


async def _parts(connection: Connection, digest: str) -> AsyncGenerator[bytes, None]:
    models = await rows.count_models(connection, digest or None)
    if digest and not models:
        raise NotFound(
            f"The embedding cache has no vectors of a model {digest[:80]!r}.",
            remedy="`undercroft cache status` lists the models that it has vectors of.",
            reason="MODEL_NOT_CACHED",
        )
    writer = Writer(Header(_FORMAT, f"undercroft {importlib.metadata.version('undercroft')}", models))
    yield writer.head()
    for index, model in enumerate(models):
        blocks = rows.read_blocks(connection, index, model, block_rows(model.dimensions))
        async with contextlib.aclosing(blocks):
            async for block in blocks:
                yield await asyncio.to_thread(writer.block, block)
    yield writer.tail()
