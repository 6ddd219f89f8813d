"""Settings of the ingest service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from services.core.names import MODEL_NAME
from services.core.settings import DAY_S, MOST_THREADS, TEN_YEARS_S, Target, Wait
from services.core.store_settings import StoreSettings


def _check_model(value: str) -> str:
    if value and not MODEL_NAME.fullmatch(value):
        raise ValueError("must be the name of a folder of the models directory, without a path")
    return value


class IngestSettings(StoreSettings):
    """What the ingest service is told."""

    # Projects without vectors, unless they name a model.
    empty_means: ClassVar[frozenset[str]] = frozenset({"default_model"})

    sidecar_dir: Path = Field(description="the shared volume")
    local_dir: Path = Field(description="local disk for copies and work in progress")
    models_dir: Path = Field(description="side-loaded model directories, for their tokenizers")
    embed_target: Target = Field("", description="host:port of the embed service; empty: no dense retrieval")
    decisions_target: Target = Field("", description="host:port of the decisions service; empty: no decisions")
    default_model: Annotated[str, AfterValidator(_check_model)] = Field(
        "all-minilm-l6-v2", description="embedding model of new projects that name none; empty: no dense retrieval"
    )
    pipeline_file: Path | None = Field(None, description="an ingestion.yaml in place of the one in the package")
    data_dir: Path | None = Field(
        None, validation_alias="UNDERCROFT_HOME", description="the appliance's own state, never indexed"
    )
    extraction_workers: int = Field(
        0, ge=0, le=MOST_THREADS, description="processes that extract; 0: one per CPU of the quota, at most 4"
    )
    embed_batch_texts: int = Field(64, ge=1, le=10_000_000, description="texts per call to the embed service")
    embed_patience_s: Wait = Field(30.0, description="how long to wait for an embed service that is away")
    embed_concurrency: int = Field(2, ge=1, le=MOST_THREADS, description="calls to the embed service at a time")
    run_concurrency: int = Field(2, ge=1, le=MOST_THREADS, description="runs at a time, each of another project")
    wheels_dir: Path | None = Field(None, description="wheels and sdists of dependencies; they are read, never run")
    verify_interval_s: float = Field(
        DAY_S, ge=0, le=TEN_YEARS_S, description="how often every file is read whatever its size and time say; 0: never"
    )
    housekeeping_interval_s: float = Field(600.0, gt=0, le=DAY_S, description="how often to look for what is due")
    orphan_grace_s: float = Field(
        3600.0, ge=0, le=TEN_YEARS_S, description="age at which sidecars that no row names are removed"
    )
    upload_max_bytes: int = Field(1 << 30, ge=1, le=1 << 50, description="bytes of an archive that is sent")
    upload_max_files: int = Field(50_000, ge=1, le=100_000_000, description="members of an archive that is sent")
    upload_max_unpacked_bytes: int = Field(
        2 << 30, ge=1, le=1 << 50, description="bytes that an archive that is sent unpacks to"
    )
    git_hosts: str = Field("", description="hosts, with commas between, that git may fetch from; none: paths alone")
    git_config_file: Path | None = Field(None, description="a git configuration for credentials and certificates")
    git_timeout_s: float = Field(1800.0, gt=0, le=DAY_S, description="how long git may take to bring a commit")
    retention_s: float = Field(
        900.0, ge=0, le=TEN_YEARS_S, description="how long a superseded generation is kept for readers"
    )
    cache_retention_s: float = Field(
        30 * DAY_S, ge=0, le=TEN_YEARS_S, description="how long vectors are kept that no project uses"
    )
    poll_s: float = Field(2.0, gt=0, le=3_600.0, description="how often to look for runs when no notification comes")
