"""Settings of the embed service, from ``UNDERCROFT_…`` in the environment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field, ValidationInfo, field_validator

from services.core.settings import DAY_S, MOST_MESSAGE_BYTES, MOST_THREADS, ServiceSettings


class EmbedSettings(ServiceSettings):
    """What the embed service is told."""

    # No model at all.
    empty_means: ClassVar[frozenset[str]] = frozenset({"preload_models"})

    models_dir: Path = Field(description="absolute folder whose subfolders are prepared models; only read")
    preload_models: str = Field(
        "*",
        description="models to load before serving: comma-separated names; *: all that fit into memory; empty: none",
    )
    max_loaded_models: int = Field(
        4, ge=1, le=1_000, description="models in memory; the least recently used one gives way"
    )
    inference_threads: int = Field(
        0, ge=0, le=MOST_THREADS, description="threads of inference; 0 takes the CPU quota of the container"
    )
    queue_capacity: int = Field(
        4096, ge=1, le=10_000_000, description="texts that may wait per model, for each purpose"
    )
    # Below queue_capacity, which its check reads.
    max_texts: int = Field(1024, validate_default=True, ge=1, le=10_000_000, description="most texts in one request")
    max_text_chars: int = Field(
        262_144, ge=1, le=MOST_MESSAGE_BYTES, description="longest text of a request in characters"
    )
    load_timeout_s: float = Field(120.0, gt=0, le=DAY_S, description="how long a call waits for a model that loads")

    @field_validator("models_dir")
    @classmethod
    def _is_absolute(cls, value: Path) -> Path:
        if not value.is_absolute():
            raise ValueError("must be an absolute path")
        return value

    @field_validator("max_texts")
    @classmethod
    def _fits_into_the_queue(cls, value: int, info: ValidationInfo) -> int:
        if value > info.data.get("queue_capacity", value):
            raise ValueError("must not be above UNDERCROFT_QUEUE_CAPACITY, or such a request would never be served")
        return value

    def preloaded(self, known: Sequence[str]) -> list[str]:
        """Return the models to load before serving; ``known`` are those that the models directory holds."""
        if self.preload_models.strip() == "*":
            return list(known[: self.max_loaded_models])
        return [name.strip() for name in self.preload_models.split(",") if name.strip()]
