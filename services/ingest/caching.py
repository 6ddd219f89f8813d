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

from services.core.db import Connection, Database
from services.core.errors import NotFound, NotReady
from services.ingest.cache import Header, VectorBlock, Writer, incompatible, read_blocks, spooled, verify
from services.ingest.cache.format import block_rows
from services.ingest.fingerprint import EMBEDDING_FORMAT
from services.ingest.store import cache as rows
from services.ingest.store.cache import CachedModel

log = structlog.get_logger(__name__)

_FORMAT = EMBEDDING_FORMAT.decode()
# Rows of one transaction.
_PAGE_ROWS = 5_000


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
    """Use cases of the embedding cache. ``local_dir`` takes an import while it is checked."""

    def __init__(self, database: Database, local_dir: Path, retention_s: float) -> None:
        self._database = database
        self._local = local_dir
        self.retention_s = retention_s

    async def models(self) -> list[CachedModel]:
        """Tell what the cache holds, by digest of the model."""
        async with self._database.snapshot() as connection:
            return await rows.list_models(connection)

    async def export(self, digest: str) -> AsyncGenerator[bytes, None]:
        """Yield the cache as one file, or what it has of one model, in parts of at most 1 MiB.

        All of it is of one moment. NotFound when the cache has nothing of the model.
        """
        async with self._database.snapshot() as connection:
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

    async def take_in(self, parts: AsyncIterator[bytes]) -> Imported:
        """Import an exported file: all of it or nothing.

        InvalidArgument with the reason CACHE_DAMAGED or CACHE_INCOMPATIBLE when it can't be taken in, NotReady when
        the disk is full; then nothing has changed.
        """
        async with spooled(parts, self._local) as file:
            header = await asyncio.to_thread(verify, file, _FORMAT)

            async def work(connection: Connection) -> int:
                return await _take_in(connection, file, header)

            try:
                added = await self._database.retry(work)
            except psycopg.errors.DiskFull as error:
                raise NotReady(
                    "The disk of the database is full.",
                    remedy="Nothing has changed. Free space there, then import again.",
                    reason="DATABASE_DISK_FULL",
                ) from error
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
