"""Settings from the environment: ``UNDERCROFT_`` and the field's name in upper case.

A service's own settings are a subclass in its package; what several share is here.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServiceSettings(BaseSettings):
    """What every service is told."""

    model_config = SettingsConfigDict(env_prefix="UNDERCROFT_", extra="ignore", frozen=True)

    listen: str = Field("127.0.0.1:0", description="host:port of the gRPC server; port 0 takes a free one")
    metrics_listen: str = Field("", description="host:port of the Prometheus endpoint; empty for none")
    log_level: str = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")
    drain_s: float = Field(0.0, ge=0, description="time between NOT_SERVING and refusing calls after SIGTERM")
    shutdown_grace_s: float = Field(20.0, ge=0, description="time that running calls get to end after SIGTERM")
    max_message_bytes: int = Field(16 * 1024 * 1024, gt=0, description="largest message in either direction")


class StoreSettings(ServiceSettings):
    """What a service with a database is told besides."""

    database_url: SecretStr = Field(description="libpq connection string")
    database_pool_size: int = Field(8, gt=0, description="connections per service")
    database_prepare: bool = Field(
        True, description="use prepared statements; false behind a pooler that does not keep them (psycopg/psycopg#280)"
    )
    secrets_dir: Path | None = Field(None, description="folder with page-token.key; a key of this process when unset")
