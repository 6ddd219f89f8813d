"""Settings from the environment: ``UNDERCROFT_`` and the field's name in upper case.

A service's own settings are a subclass in its package; what several share is here. A value that could only fail later
is refused when it is read; an empty one is not set, unless the field says what empty means.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.core.addresses import check_listen, check_target

ENV_PREFIX = "UNDERCROFT_"
# Postgres and timers take more, but nobody means it; and timers of some libraries don't take infinity.
DAY_S = 86_400.0
TEN_YEARS_S = 3_650 * DAY_S
MOST_THREADS = 512
# gRPC takes an int of C.
MOST_MESSAGE_BYTES = 2**31 - 1
# Vectors and lists of hits are cut to this less some 64 KiB.
_LEAST_MESSAGE_BYTES = 128 * 1024

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def _check_level(value: str) -> str:
    if value.upper() not in _LEVELS:
        raise ValueError(f"must be one of {', '.join(_LEVELS)}")
    return value.upper()


LogLevel = Annotated[str, AfterValidator(_check_level)]
ListenAddress = Annotated[str, AfterValidator(check_listen)]
Target = Annotated[str, AfterValidator(check_target)]
# Seconds that are slept or waited, and never reach a table.
Wait = Annotated[float, Field(ge=0, le=DAY_S)]


class Settings(BaseSettings):
    """How the environment is read."""

    # An error must not show its input: the environment holds passwords.
    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        extra="ignore",
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        str_strip_whitespace=True,
    )

    # Fields that take an empty text for an answer which is not their default.
    empty_means: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _empty_is_not_set(cls, values: dict[str, object]) -> dict[str, object]:
        # Charts and compose files pass the variables that nobody has set as empty ones.
        return {
            name: value
            for name, value in values.items()
            if name in cls.empty_means or not isinstance(value, str) or value.strip()
        }


class ServiceSettings(Settings):
    """What every service is told."""

    listen: ListenAddress = Field("127.0.0.1:0", description="host:port of the gRPC server; port 0 takes a free one")
    metrics_listen: ListenAddress = Field("", description="host:port of the Prometheus endpoint; empty for none")
    log_level: LogLevel = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")
    drain_s: Wait = Field(0.0, description="time between NOT_SERVING and refusing calls after SIGTERM")
    shutdown_grace_s: Wait = Field(20.0, description="time that running calls get to end after SIGTERM")
    max_message_bytes: int = Field(
        16 * 1024 * 1024,
        ge=_LEAST_MESSAGE_BYTES,
        le=MOST_MESSAGE_BYTES,
        description="largest message in either direction",
    )
