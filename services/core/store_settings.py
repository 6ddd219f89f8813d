"""Settings of services with a database; apart, since the image of embed, which reads settings too, has no psycopg."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from services.core.conninfo import check_conninfo
from services.core.settings import ServiceSettings


def _check(value: SecretStr) -> SecretStr:
    return SecretStr(check_conninfo(value.get_secret_value().strip()))


DatabaseUrl = Annotated[SecretStr, AfterValidator(_check)]


class StoreSettings(ServiceSettings):
    """What a service with a database is told besides."""

    database_url: DatabaseUrl = Field(description="libpq connection string")
    database_pool_size: int = Field(8, ge=1, le=1_000, description="connections per service")
    database_prepare: bool = Field(
        True, description="use prepared statements; false behind a pooler that does not keep them (psycopg/psycopg#280)"
    )
    secrets_dir: Path | None = Field(None, description="folder with page-token.key; a key of this process when unset")
