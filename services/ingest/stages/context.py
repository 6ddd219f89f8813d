"""What the stages of a run share."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import structlog

from services.core.db import Connection, Database
from services.core.errors import UndercroftError
from services.ingest.declaring import Declarations
from services.ingest.embedder import Embedder
from services.ingest.evidence import EvidenceSink
from services.ingest.extracting import Extracting
from services.ingest.opening import Opener
from services.ingest.pipeline import Pipeline
from services.ingest.projects import Degradation
from services.ingest.reports import RunReport
from services.ingest.sidecars import SidecarBuilder
from services.ingest.store import operations
from services.ingest.store.operations import Claim
from services.ingest.uploads import Uploads

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EmbedSettings:
    """Texts per call to the embed service, and calls at a time."""

    batch_texts: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class Workshop:
    """What runs work with; one for the whole service."""

    database: Database
    embedder: Embedder
    evidence: EvidenceSink
    extracting: Extracting
    builder: SidecarBuilder
    pipeline: Pipeline
    data_dir: Path | None
    declarations: Declarations
    opener: Opener
    uploads: Uploads
    # Local disk for what archives hold while a run reads it.
    unpacked_dir: Path
    embed: EmbedSettings


@dataclass(slots=True)
class RunContext:
    """One claimed run: what it works with, and what it has to report. ``on_progress`` raises to stop the run."""

    shop: Workshop
    claim: Claim
    on_progress: Callable[[RunReport], Awaitable[None]]
    report: RunReport = field(default_factory=RunReport)
    # By method, what the run goes on without.
    degraded: dict[str, Degradation] = field(default_factory=dict)
    # When the sources were last compared with what is known of them.
    looked_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    # By name, sources whose files can't be listed: their files stay as they are.
    unlisted: dict[str, UndercroftError] = field(default_factory=dict)

    @property
    def id(self) -> int:
        return self.claim.operation.id

    @property
    def is_clear(self) -> bool:
        return self.claim.operation.kind == operations.CLEAR

    @property
    def attempt(self) -> str:
        """Name what this attempt makes on local disk: an overtaken one must not touch what its successor makes."""
        return f"run-{self.id}-{self.claim.fence}"

    @property
    def scratch(self) -> Path:
        """A folder of the attempt's own on local disk."""
        return self.shop.unpacked_dir / self.attempt

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Open a transaction that holds the project; Conflict when another worker has taken it over."""
        async with self.shop.database.transaction() as connection:
            await operations.hold(connection, self.claim)
            yield connection

    async def progress(self) -> None:
        await self.on_progress(self.report)

    def degrade(self, method: str, error: UndercroftError) -> None:
        """Go on without a method."""
        if method not in self.degraded:
            log.warning("run goes on without a method", method=method, reason=error.message)
        self.degraded.setdefault(method, Degradation(method, error.message, error.remedy))
