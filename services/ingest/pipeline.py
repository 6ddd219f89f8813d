"""The ingestion pipeline as data: ``ingestion.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

import pydantic
import yaml

from services.core.budget import MIN_BUDGET_TOKENS
from services.core.errors import InvalidArgument
from services.ingest.discovery import DEFAULT_MAX_DOCUMENT_BYTES, DiscoverySettings, SizeCaps


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class _Discovery(_Model):
    max_file_bytes: int = pydantic.Field(gt=0)
    max_document_bytes: int = pydantic.Field(default=DEFAULT_MAX_DOCUMENT_BYTES, gt=0)
    honour_gitignore: bool
    ignore: tuple[str, ...]


class _Extraction(_Model):
    budget_tokens: int = pydantic.Field(ge=0)

    @pydantic.field_validator("budget_tokens")
    @classmethod
    def _leaves_room(cls, value: int) -> int:
        if 0 < value < MIN_BUDGET_TOKENS:
            raise ValueError(f"0, or {MIN_BUDGET_TOKENS} or more")
        return value

    time_limit_s: float = pydantic.Field(gt=0)
    memory_limit_mb: int = pydantic.Field(ge=64)


class _File(_Model):
    version: Literal[1]
    discovery: _Discovery
    extraction: _Extraction


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A read ``ingestion.yaml``; ``raw`` are its bytes, which the pipeline hash covers."""

    raw: bytes
    discovery: DiscoverySettings
    budget_tokens: int
    time_limit_s: float
    memory_limit_bytes: int


def load_pipeline(path: Path | None) -> Pipeline:
    """Read a pipeline file; that of the package when ``path`` is None. InvalidArgument names the wrong field."""
    try:
        raw = path.read_bytes() if path else resources.files("services.ingest").joinpath("ingestion.yaml").read_bytes()
    except OSError as error:
        raise InvalidArgument(
            f"The pipeline {path} can't be read: {error.strerror}.",
            remedy="Have UNDERCROFT_PIPELINE_FILE name a file that the service may read, or leave it out.",
        ) from error
    try:
        file = _File.model_validate(yaml.safe_load(raw))
    except (yaml.YAMLError, pydantic.ValidationError) as error:
        raise InvalidArgument(
            f"{path or 'ingestion.yaml'} is no valid pipeline: {error}", remedy="Correct the field that is named."
        ) from error
    return Pipeline(
        raw=raw,
        discovery=DiscoverySettings(
            caps=SizeCaps(file.discovery.max_file_bytes, file.discovery.max_document_bytes),
            honour_gitignore=file.discovery.honour_gitignore,
            ignore=file.discovery.ignore,
        ),
        budget_tokens=file.extraction.budget_tokens,
        time_limit_s=file.extraction.time_limit_s,
        memory_limit_bytes=file.extraction.memory_limit_mb * 1024 * 1024,
    )
