"""Taking evidence from an index run: mining it, and staging what is found under the run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import prometheus_client
import structlog

from services.core.db import Connection, Database
from services.decisions import store
from services.decisions.encoding import EncodedDecision, encode
from services.decisions.mining import mine
from services.decisions.mining.miner import MAX_CHARS
from services.decisions.store import Run

log = structlog.get_logger(__name__)

EVIDENCE_FILES = prometheus_client.Counter(
    "undercroft_evidence_files_total",
    "Files that were looked at for decisions, by outcome: record, other, too_large, failed, foreign.",
    ("outcome",),
)


@dataclass(frozen=True, slots=True)
class EvidenceFile:
    """A file that may be a decision record."""

    source_id: int
    path: str
    text: str


class Staging:
    """Use cases of evidence."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def stage(self, run: Run, files: Sequence[EvidenceFile]) -> list[tuple[int, str]]:
        """Stage the records among ``files`` in place of what the run had of them; return their (source id, path).

        Conflict when the run is not running under its fence.
        """
        # Of a file that is sent twice in one call, the later text counts, as it does of one sent in two calls.
        distinct = list({(file.source_id, file.path): file for file in files}.values())
        mined = await asyncio.to_thread(_mine_all, distinct)

        async def replace(connection: Connection) -> list[tuple[int, EncodedDecision]]:
            await store.hold_run(connection, run)
            own = await store.source_ids(connection, run.project_id)
            records = [(source_id, record) for source_id, record in mined if source_id in own]
            await store.replace_staged(connection, run, [(file.source_id, file.path) for file in distinct], records)
            return records

        records = await self._database.retry(replace)
        _report_foreign(run, len(mined) - len(records))
        EVIDENCE_FILES.labels("record").inc(len(records))
        return sorted((source_id, record.path) for source_id, record in records)


def _mine_all(files: Iterable[EvidenceFile]) -> list[tuple[int, EncodedDecision]]:
    found = []
    for file in files:
        record = _mine(file)
        if record is not None:
            found.append((file.source_id, record))
    return found


def _mine(file: EvidenceFile) -> EncodedDecision | None:
    if len(file.text) > MAX_CHARS:
        EVIDENCE_FILES.labels("too_large").inc()
        log.info("too large for a decision record", path=file.path, characters=len(file.text), limit=MAX_CHARS)
        return None
    try:
        decision = mine(file.path, file.text)
        record = encode(decision, file.text) if decision is not None else None
    except Exception:
        # One odd file never stops the rest.
        EVIDENCE_FILES.labels("failed").inc()
        log.exception("mining failed", path=file.path)
        return None
    if record is None:
        EVIDENCE_FILES.labels("other").inc()
    return record


def _report_foreign(run: Run, count: int) -> None:
    if count:
        # A source that was removed while its run went on, or one of another project, which must not be written to.
        EVIDENCE_FILES.labels("foreign").inc(count)
        log.warning("records of sources that the project does not have", project_id=run.project_id, records=count)
