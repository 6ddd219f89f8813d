"""A folder as an index run would take it, without services, a database or a model: for those who want to see first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from services.ingest.discovery import Found, discover, read
from services.ingest.extraction.pool import ExtractionPool, PoolSettings
from services.ingest.extraction.worker import Job, Outcome, WorkerSettings
from services.ingest.manifests import Manifests
from services.ingest.modules import ModuleRoots
from services.ingest.pipeline import Pipeline
from services.ingest.skips import Skipped

# Chunks are cut for a model of the usual size where none is named.
BUDGET_WITHOUT_MODEL_TOKENS = 254


def validate(
    root: Path,
    pipeline: Pipeline,
    *,
    budget_tokens: int,
    tokenizer: Path | None,
    workers: int,
    data_dir: Path | None = None,
    wanted: Callable[[str], bool] = lambda path: True,
) -> tuple[Iterator[Outcome], Manifests]:
    """Discover and extract a folder as a run does: what becomes of each file, in the order of the paths.

    The manifests know which of their rules fit nothing once the outcomes were drawn.

    ``root`` is resolved; ``wanted`` chooses the files to extract by their paths. Chunks are cut for ``budget_tokens``
    of ``tokenizer``, estimated where there is none. Raises as ``discover``.
    """
    root = root.resolve()
    entries = list(discover(root, pipeline.discovery, data_dir=data_dir))
    roots = ModuleRoots.of((one.path for one in entries if isinstance(one, Found)), root.name)
    worker = WorkerSettings(
        budget_tokens=min(budget_tokens, pipeline.budget_tokens or budget_tokens),
        tokenizer_path=tokenizer,
        file_timeout_s=pipeline.time_limit_s,
        memory_limit_bytes=pipeline.memory_limit_bytes,
    )
    manifests = Manifests.of(root, (one.path for one in entries if isinstance(one, Found)))
    ready: dict[str, Skipped] = {one.path: one for one in entries if isinstance(one, Skipped)}
    # Listed, and indexed as the text that they are all the same.
    problems = {one.path: one for one in manifests.problems}

    def jobs() -> Iterator[Job]:
        for one in entries:
            if one.path in ready or not wanted(one.path):
                continue
            body = read(root, one.path, max_bytes=pipeline.discovery.caps.of(one.path))
            if isinstance(body, Skipped):
                ready[one.path] = body
            else:
                yield Job(one.path, body.data, roots.module(one.path), manifests.settings(one.path))

    def outcomes() -> Iterator[Outcome]:
        with ExtractionPool(PoolSettings(worker, workers)) as pool:
            extracted: dict[str, Outcome] = {}
            drawn = pool.extract(jobs())
            for one in entries:
                if not wanted(one.path):
                    continue
                while one.path not in ready and one.path not in extracted:
                    # Drawing may also find that this one can't be read.
                    outcome = next(drawn, None)
                    if outcome is not None:
                        extracted[outcome.path] = outcome
                yield ready.pop(one.path) if one.path in ready else extracted.pop(one.path)
                if one.path in problems:
                    yield problems[one.path]

    return outcomes(), manifests
