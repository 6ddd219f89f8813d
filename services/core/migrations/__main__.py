"""Bring the database's schema up to this release, and end: ``python -m services.core.migrations``.

What the migrate image runs before the services of a release start. Waits for a server that is not up yet, since an
orchestrator starts both at once.
"""

from __future__ import annotations

import re
import sys
import time

import psycopg
import sqlalchemy.exc
import structlog
from pydantic import Field

from services.core.db import migrate
from services.core.errors import UndercroftError
from services.core.settings import LogLevel, Settings, Wait
from services.core.starting import FAILED, read_settings
from services.core.store_settings import DatabaseUrl
from services.core.telemetry import configure_logging

log = structlog.get_logger(__name__)

_INTERVAL_S = 1.0
# What the server or its certificate says of a connection that no waiting makes good. libpq has no codes for these.
_REFUSED = re.compile(r"authentication failed|pg_hba\.conf|certificate|does not support SSL")


class MigrateSettings(Settings):
    """What the migration is told."""

    database_url: DatabaseUrl = Field(description="libpq connection string of the role that owns the schema")
    database_wait_s: Wait = Field(60.0, description="how long to wait for a server that does not answer")
    log_level: LogLevel = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")


def wait_for_server(url: str, wait_s: float) -> None:
    """Return once the server takes connections.

    Raises psycopg's error when it does not within ``wait_s``, and at once when it refuses who asks or how.
    """
    end = time.monotonic() + wait_s
    told = ""
    while True:
        try:
            psycopg.connect(url, connect_timeout=5, application_name="undercroft-migrate").close()
        except psycopg.OperationalError as error:
            if time.monotonic() >= end or _REFUSED.search(str(error)):
                raise
            said = " ".join(str(error).split())
            if said != told:
                log.info("waiting for the database", said=said)
                told = said
            time.sleep(_INTERVAL_S)
        else:
            return


def main() -> None:
    """Migrate; ends with 1 and the cause in the log when that fails, with 2 when a setting is wrong."""
    settings = read_settings("migrate", MigrateSettings)
    configure_logging("migrate", settings.log_level)
    url = settings.database_url.get_secret_value()
    try:
        wait_for_server(url, settings.database_wait_s)
        migrate(url)
    except UndercroftError as error:
        log.error("not migrated", cause=error.message, remedy=error.remedy, reason=error.reason)
        sys.exit(FAILED)
    except (psycopg.Error, sqlalchemy.exc.DBAPIError) as error:
        cause = error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) else error
        log.error(
            "not migrated",
            cause=str(cause).strip(),
            remedy="Check UNDERCROFT_DATABASE_URL, its user with its rights and its TLS, and the server.",
        )
        sys.exit(FAILED)
    log.info("migrated")


if __name__ == "__main__":
    main()
