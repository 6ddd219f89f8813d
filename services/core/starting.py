"""Start a program of the appliance: settings, logs, and an end in words when it can't.

A wrong setting ends it with 2, anything else that is known by its cause with 1; the log ends with what to do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar, get_args

import grpc
import structlog
from annotated_types import Ge, Gt, Le
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from services.core.errors import InvalidArgument
from services.core.grpc import as_undercroft_error, status_code
from services.core.settings import ENV_PREFIX, ServiceSettings, Settings
from services.core.telemetry import configure_logging

log = structlog.get_logger(__name__)

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", Path: "a path"}
WRONG_SETTINGS = 2
FAILED = 1

Kind = TypeVar("Kind", bound=Settings)
Service = TypeVar("Service", bound=ServiceSettings)


def read_settings(name: str, kind: type[Kind]) -> Kind:
    """Read the settings of the program ``name``; ends it when some are wrong, with one line in the log for each."""
    try:
        return kind()
    except ValidationError as error:
        configure_logging(name, "INFO")
        for setting, cause in wrong_settings(kind, error).items():
            log.error(
                "a setting is wrong",
                setting=setting,
                cause=f"{setting} {cause}",
                remedy=f"Correct {setting} in the environment of {name}, then start it again.",
                reason="WRONG_SETTING",
            )
        sys.exit(WRONG_SETTINGS)


def wrong_settings(kind: type[Settings], error: ValidationError) -> dict[str, str]:
    """Return what each wrong setting must be, by its environment variable. Values are left out: they may be secrets."""
    found: dict[str, str] = {}
    for detail in error.errors(include_url=False, include_input=False):
        name = str(detail["loc"][0]) if detail["loc"] else ""
        fields = kind.model_fields
        variable = f"{ENV_PREFIX}{name.upper()}" if name in fields else name
        field = fields.get(name) or next((one for one in fields.values() if one.validation_alias == name), None)
        found.setdefault(variable, _cause(detail, field))
    return found


def start(name: str, kind: type[Service], run: Callable[[Service], Coroutine[object, object, None]]) -> None:
    """Run a service with settings from the environment until it is stopped."""
    import uvloop

    settings = read_settings(name, kind)
    configure_logging(name, settings.log_level)
    try:
        uvloop.run(run(settings))
    except Exception as raised:
        error = as_undercroft_error(raised)
        if status_code(error) is grpc.StatusCode.INTERNAL:
            raise
        said = {} if error is raised else {"said": str(raised).strip()}
        log.error(f"{name} does not run", cause=error.message, remedy=error.remedy, reason=error.reason, **said)
        sys.exit(WRONG_SETTINGS if isinstance(error, InvalidArgument) else FAILED)


def _cause(detail: ErrorDetails, field: FieldInfo | None) -> str:
    about = f" It means: {field.description}." if field is not None and field.description else ""
    if detail["type"] == "missing":
        return f"is needed, and is not set or empty.{about}"
    if detail["type"] == "value_error":
        return f"{str(detail['ctx']['error']).removesuffix('.')}.{about}"
    return f"must be {_wanted(field) if field is not None else 'another value'}.{about}"


def _wanted(field: FieldInfo) -> str:
    kinds = {field.annotation, *get_args(field.annotation)}
    what = next((words for kind, words in _KINDS.items() if kind in kinds), "text")
    bounds = []
    for one in field.metadata:
        match one:
            case Ge(ge=least):
                bounds.append(f"at least {least:.15g}")
            case Gt(gt=least):
                bounds.append(f"above {least:.15g}")
            case Le(le=most):
                bounds.append(f"at most {most:.15g}")
    return ", ".join([what, " and ".join(bounds)] if bounds else [what])
