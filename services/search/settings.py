"""Settings of the search service."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from services.core.settings import DAY_S, MOST_THREADS, Target
from services.core.store_settings import StoreSettings


class SearchSettings(StoreSettings):
    """What the search service is told."""

    sidecar_dir: Path = Field(description="the shared volume")
    local_dir: Path = Field(description="local disk for copies of sidecars")
    embed_target: Target = Field("", description="host:port of the embed service; empty: no dense retrieval")
    ingest_target: Target = Field("", description="host:port of the ingest service, for FRESHNESS_WAIT and repair")
    query_cache_entries: int = Field(10_000, ge=0, le=100_000_000, description="query vectors kept; 0 keeps none")
    query_cache_bytes: int = Field(
        32 * 1024 * 1024,
        ge=0,
        le=1 << 40,
        description="memory of the query vectors kept, their texts included; 0 keeps none",
    )
    presets_dir: Path | None = Field(None, description="folder of presets besides those of the package")
    default_preset: str = Field("hybrid", description="preset of requests that name none")
    poll_s: float = Field(
        2.0, gt=0, le=3_600.0, description="how often to look for generations when no notification comes"
    )
    lease_s: float = Field(
        60.0, gt=0, le=DAY_S, description="how long a generation is kept after this reader last renewed"
    )
    threads: int = Field(
        0, ge=0, le=MOST_THREADS, description="threads that search indexes; 0: one per CPU of the quota"
    )
