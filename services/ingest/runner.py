"""Taking up runs: each worker claims the next run of a project that nobody holds, and sees it through.

A run that this process leaves unfinished (a kill, a shutdown) stays ``running`` in Postgres; its claim ends with the
session, and whoever looks next takes it up again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator

import psycopg
import structlog

from services.core.db import DISK_FULL
from services.core.errors import Conflict, NotReady, Unavailable, UndercroftError
from services.core.notifications import Notifications
from services.ingest.reports import RunReport, failure
from services.ingest.run import Cancelled, IndexRun
from services.ingest.stages.context import Workshop
from services.ingest.store import operations
from services.ingest.store.operations import Claim
from services.ingest.sweeping import Sweeper

log = structlog.get_logger(__name__)

_REPORT_INTERVAL_S = 0.2
_RETRY_S = 2.0
_MOST_PAUSE_S = 60.0
# A run that was taken up this often is not stopped by chance.
_MOST_ATTEMPTS = 20


class Runner:
    """Works on runs, several at a time, each of another project."""

    def __init__(
        self,
        workshop: Workshop,
        url: str,
        sweeper: Sweeper,
        notifications: Notifications,
        *,
        concurrency: int,
        poll_s: float,
    ) -> None:
        self._shop = workshop
        self._url = url
        self._sweeper = sweeper
        self._notifications = notifications
        self._concurrency = concurrency
        self._poll_s = poll_s
        self._holder = f"{socket.gethostname()}:{os.getpid()}"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work while the block runs; runs under way then are left to be taken up again."""
        workers = [asyncio.create_task(self._work()) for _ in range(self._concurrency)]
        try:
            yield
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self) -> None:
        claims = operations.Claims(self._url, self._holder)
        pause_s = _RETRY_S
        try:
            while True:
                seen = self._notifications.count
                try:
                    if not await self._work_once(claims):
                        await self._notifications.wait(seen, self._poll_s)
                    pause_s = _RETRY_S
                except psycopg.Error as error:
                    log.warning("the database is away", error=str(error))
                    await asyncio.sleep(pause_s)
                    # One that fails each time it is asked for much must not use up a run's attempts within a minute.
                    pause_s = min(2 * pause_s, _MOST_PAUSE_S)
                except Exception:
                    # A worker that ends indexes nothing more while the service says that it serves.
                    log.exception("worker failed")
                    await asyncio.sleep(_RETRY_S)
        finally:
            await claims.close()

    async def _work_once(self, claims: operations.Claims) -> bool:
        async with self._shop.database.transaction() as connection:
            if not await operations.any_open(connection):
                return False
        async with claims.next() as claim:
            if claim is None:
                return False
            with structlog.contextvars.bound_contextvars(project=claim.operation.project, run=claim.operation.id):
                await self._run(claim)
            return True

    async def _run(self, claim: Claim) -> None:
        log.info("run begins", attempt=claim.operation.attempts)
        if claim.operation.attempts > _MOST_ATTEMPTS:
            given_up = Unavailable(
                f"The run was taken up {_MOST_ATTEMPTS} times; each time the service or the database ended meanwhile.",
                remedy="The logs of ingest and of the database tell why; mend that, then index again.",
                reason="RUN_GIVEN_UP",
            )
            await self._end(claim, "failed", RunReport.from_json(claim.operation.report), failure(given_up))
            return
        progress = _Progress(self._shop, claim)
        run = IndexRun(self._shop, claim, progress)
        state, error = "done", None
        try:
            await run.execute()
        except Cancelled:
            state = "cancelled"
        except UndercroftError as raised:
            if raised.reason == "RUN_FENCED_OFF":
                log.warning("run was taken over")
                return
            log.warning("run failed", reason=raised.message)
            state, error = "failed", failure(raised)
        except psycopg.errors.DiskFull:
            log.exception("run failed")
            state, error = "failed", failure(DISK_FULL)
        except (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction):
            # The database is away, was restarted or is another's standby: the run is neither done nor failed, and is
            # taken up again.
            if claim.operation.attempts < _MOST_ATTEMPTS:
                raise
            away = Unavailable("The database was away too often.", remedy="Its log tells why; then index again.")
            state, error = "failed", failure(away)
        except OSError as raised:
            log.exception("run failed")
            disk = NotReady(
                f"The local disk fails: {raised.strerror}.",
                remedy="Free space where UNDERCROFT_LOCAL_DIR is, or mend that disk; then index again.",
            )
            state, error = "failed", failure(disk)
        except Exception as raised:
            log.exception("run failed")
            internal = UndercroftError(
                f"Internal error: {type(raised).__name__}.", remedy="The log of the ingest service has the details."
            )
            state, error = "failed", failure(internal)
        await self._end(claim, state, run.report, error)

    async def _end(self, claim: Claim, state: str, report: RunReport, error: dict[str, str] | None) -> None:
        try:
            async with self._shop.database.transaction() as connection:
                await operations.end(connection, claim, state, report.to_json(), error)
        except Conflict:
            log.warning("run was taken over")
            return
        log.info("run ended", state=state, generation=report.generation, published=report.published)
        if report.published:
            try:
                await self._sweeper.sweep(claim.operation.project_id)
            except OSError as failed:
                # What is left is swept from time to time.
                log.warning("the sidecar volume can't be swept", error=str(failed))


class _Progress:
    """Stores the report when its stage changes and a few times a second besides; raises when the run is to stop."""

    def __init__(self, workshop: Workshop, claim: Claim) -> None:
        self._shop = workshop
        self._claim = claim
        self._stored_at = 0.0
        self._stage = ""

    async def __call__(self, report: RunReport) -> None:
        now = time.monotonic()
        if report.stage == self._stage and now - self._stored_at < _REPORT_INTERVAL_S:
            return
        self._stored_at, self._stage = now, report.stage
        async with self._shop.database.transaction() as connection:
            if await operations.report(connection, self._claim, report.to_json()):
                raise Cancelled()
