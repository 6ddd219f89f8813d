"""Wake waiting tasks when Postgres says that something happened; they poll besides, so a lost message only delays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import psycopg
import structlog

log = structlog.get_logger(__name__)

GENERATIONS = "undercroft_generations"
OPERATIONS = "undercroft_operations"

_RECONNECT_S = 1.0


class Notifications:
    """Listens on one channel with a connection of its own and wakes everybody who waits."""

    def __init__(self, url: str, channel: str) -> None:
        self._url = url
        self._channel = channel
        self._changed = asyncio.Condition()
        self._count = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listen while the block runs."""
        task = asyncio.create_task(self._listen())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @property
    def count(self) -> int:
        """Messages so far: take it before looking at the database, and give it to ``wait``."""
        return self._count

    async def wait(self, seen: int, timeout_s: float) -> None:
        """Return at the first message after the ``seen``-th, or after ``timeout_s``."""
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait_for(lambda: self._count > seen), timeout_s)

    async def _listen(self) -> None:
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._url, autocommit=True, application_name="undercroft-listen"
                ) as connection:
                    await connection.execute(f"LISTEN {self._channel}")
                    await self._wake()
                    async for _ in connection.notifies():
                        await self._wake()
            except psycopg.OperationalError as error:
                log.warning("listening was interrupted", channel=self._channel, error=str(error))
                await asyncio.sleep(_RECONNECT_S)

    async def _wake(self) -> None:
        async with self._changed:
            self._count += 1
            self._changed.notify_all()
