"""What a run reports while it goes on and when it is done."""

from __future__ import annotations

import dataclasses
import enum
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from services.core.errors import UndercroftError


class Stage(enum.StrEnum):
    """Stages in the order in which they follow each other."""

    QUEUED = "queued"
    DISCOVER = "discover"
    EXTRACT = "extract"
    DECISIONS = "decisions"
    EMBED = "embed"
    SIDECARS = "sidecars"
    PUBLISH = "publish"
    DONE = "done"


@dataclasses.dataclass(slots=True)
class StageCount:
    items: int = 0
    wall_ms: int = 0


@dataclasses.dataclass(slots=True)
class RunReport:
    """Counters of one run; what they mean is said once, in ``index_run.proto``."""

    stage: str = Stage.QUEUED
    generation: int = 0
    published: bool = False
    renewal_reason: str = ""
    warnings: list[str] = dataclasses.field(default_factory=list)
    files_new: int = 0
    files_changed: int = 0
    files_unchanged: int = 0
    files_deleted: int = 0
    files_skipped: int = 0
    files_read: int = 0
    files_resumed: int = 0
    chunks_kept: int = 0
    chunks_moved: int = 0
    chunks_added: int = 0
    chunks_removed: int = 0
    model: str = ""
    texts: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    embedded: int = 0
    embed_calls: int = 0
    embed_ms: int = 0
    truncated: int = 0
    degraded: list[dict[str, str]] = dataclasses.field(default_factory=list)
    stages: dict[str, StageCount] = dataclasses.field(default_factory=dict)

    @contextmanager
    def timed(self, stage: Stage) -> Iterator[StageCount]:
        """Enter a stage and add up the time spent in it."""
        self.stage = stage
        count = self.stages.setdefault(stage, StageCount())
        start = time.monotonic()
        try:
            yield count
        finally:
            count.wall_ms += round((time.monotonic() - start) * 1000)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> RunReport:
        """Read a stored report; fields that it lacks, from an earlier release, have their defaults."""
        known = {field.name for field in dataclasses.fields(cls)}
        report = cls(**{name: value for name, value in stored.items() if name in known})
        report.stages = {name: StageCount(**count) for name, count in stored.get("stages", {}).items()}
        return report


def failure(error: UndercroftError) -> dict[str, str]:
    """Return what is stored of the error that ended a run."""
    return {
        "kind": type(error).__name__,
        "reason": error.reason,
        "message": error.message,
        "remedy": error.remedy,
    }
