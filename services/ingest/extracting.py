"""From files to what a run stages: extraction in the pool's workers, and the hashes of what it found."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.ingest.changes import Candidate, Changes
from services.ingest.chunks import Chunk, embedded_title, model_input
from services.ingest.embedder import EmbeddingModel
from services.ingest.extraction.pool import ExtractionPool, PoolSettings
from services.ingest.extraction.worker import Extracted, Job, Outcome, WorkerSettings
from services.ingest.file_settings import FileSettings
from services.ingest.fingerprint import content_hash, embedding_fingerprint
from services.ingest.keys import fitted
from services.ingest.pipeline import Pipeline
from services.ingest.projects import Source
from services.ingest.skips import Skipped
from services.ingest.sniffing import split_lines
from services.ingest.store.kinds import CHUNK_KINDS
from services.ingest.store.staging import StagedChunk, StagedFile
from services.ingest.tiers import Tier, embedded_keys

_POLL_S = 0.5
# Chunks of a project without a model are cut for one of the usual size.
_BUDGET_WITHOUT_MODEL_TOKENS = 254


@dataclass(frozen=True, slots=True)
class ExtractedBatch:
    """Files in order, and by path those that could not be extracted."""

    files: Sequence[StagedFile]
    skipped: Mapping[str, Skipped]


class Extracting:
    """Keeps a pool of workers warm for each tokenizer and budget; mostly there is one."""

    def __init__(self, pipeline: Pipeline, models_dir: Path, workers: int) -> None:
        self._pipeline = pipeline
        self._models_dir = models_dir
        self._workers = workers
        self._pools: dict[tuple[Path | None, int], ExtractionPool] = {}

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    async def extract(
        self,
        source: Source,
        tier: Tier,
        changes: Changes,
        batch: Sequence[Candidate],
        model: EmbeddingModel | None,
        pipeline: bytes,
        on_wait: Callable[[], Awaitable[None]],
    ) -> ExtractedBatch:
        """Extract files of one source, and hash their chunks as ``pipeline`` makes them.

        ``on_wait`` is called meanwhile, and raises to stop it.
        """
        pool = self._pool(model)
        settings = [changes.manifests.settings(one.path) for one in batch]
        jobs = [
            Job(one.path, one.data, changes.roots.module(one.path), said)
            for one, said in zip(batch, settings, strict=True)
        ]
        outcomes = await _extracted(pool, jobs, on_wait)
        digest = model.digest if model else ""
        files: list[StagedFile] = []
        skipped: dict[str, Skipped] = {}
        for candidate, outcome, said in zip(batch, outcomes, settings, strict=True):
            if isinstance(outcome, Skipped):
                skipped[candidate.path] = outcome
            else:
                files.append(_staged(source, tier, candidate, outcome, said, digest, pipeline))
        return ExtractedBatch(files, skipped)

    def _pool(self, model: EmbeddingModel | None) -> ExtractionPool:
        tokenizer = self._models_dir / model.name / "tokenizer.json" if model else None
        if tokenizer is not None and not tokenizer.exists():
            tokenizer = None
        budget = model.budget_tokens if model else _BUDGET_WITHOUT_MODEL_TOKENS
        if self._pipeline.budget_tokens:
            budget = min(budget, self._pipeline.budget_tokens)
        key = (tokenizer, budget)
        if key not in self._pools:
            worker = WorkerSettings(
                budget_tokens=budget,
                tokenizer_path=tokenizer,
                file_timeout_s=self._pipeline.time_limit_s,
                memory_limit_bytes=self._pipeline.memory_limit_bytes,
            )
            self._pools[key] = ExtractionPool(PoolSettings(worker, self._workers))
        return self._pools[key]


async def _extracted(
    pool: ExtractionPool, jobs: Sequence[Job], on_wait: Callable[[], Awaitable[None]]
) -> list[Outcome]:
    stop = threading.Event()
    work = asyncio.ensure_future(asyncio.to_thread(lambda: list(pool.extract(jobs, stop))))
    try:
        while not (await asyncio.wait({work}, timeout=_POLL_S))[0]:
            await on_wait()
    finally:
        stop.set()
        await asyncio.wait({work})
    return work.result()


def _staged(
    source: Source,
    tier: Tier,
    candidate: Candidate,
    outcome: Extracted,
    said: FileSettings,
    digest: str,
    pipeline: bytes,
) -> StagedFile:
    extraction = outcome.extraction
    embedded = embedded_keys(extraction, tier) if digest else frozenset()
    return StagedFile(
        source=source,
        path=candidate.path,
        language=extraction.language,
        module=extraction.module,
        content_hash=candidate.content_hash,
        size_bytes=len(candidate.data),
        text=outcome.file.text,
        text_hash=hashlib.sha256(outcome.file.text.encode()).digest(),
        lines=split_lines(outcome.file.text),
        chunks=list(_staged_chunks(source, tier, extraction.chunks, embedded, digest, pipeline)),
        symbols=extraction.symbols,
        references=extraction.references,
        notes=extraction.notes,
        settings=said.canonical(),
        metadata=extraction.metadata,
    )


def _staged_chunks(
    source: Source, tier: Tier, chunks: Sequence[Chunk], embedded: Collection[str], digest: str, pipeline: bytes
) -> Iterator[StagedChunk]:
    for chunk in chunks:
        title = embedded_title(chunk)
        yield StagedChunk(
            key=f"{source.package}:{fitted(chunk.key)}",
            kind=CHUNK_KINDS[chunk.kind],
            language=chunk.language,
            name=fitted(chunk.name),
            qualified_name=fitted(chunk.qualified_name),
            title=chunk.title,
            embedded_title=title,
            text=chunk.text,
            start_line=chunk.start_line,
            end_line=chunk.end_line,
            content_hash=content_hash(
                source.package, chunk.module, chunk.title, chunk.text, chunk.language, pipeline, tier.value
            ),
            text_hash=hashlib.sha256(chunk.text.encode()).digest(),
            fingerprint=embedding_fingerprint(digest, model_input(title, chunk.text))
            if chunk.key in embedded
            else None,
        )
