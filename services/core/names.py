"""Resource names, as AIP-122 wants them."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from services.core.errors import InvalidArgument

_PACKAGE = re.compile(r"[^\W_][\w.@-]{0,127}")
# ASCII, for names of models are names of folders, and some volumes change other letters.
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# For remedies of services, which don't know how their folder of models came to be where they see it.
MODELS_FOLDER = (
    "the models folder of the embed service (`undercroft models install` for an appliance of this machine; the folder"
    " that UNDERCROFT_MODELS of ops/compose/undercroft names; the chart's claim of models)"
)
_MOST_CHARS = 200
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def check_id(value: str, what: str) -> str:
    """Return ``value`` if it is a valid resource id."""
    if not _ID.fullmatch(value):
        raise InvalidArgument(
            f"{value!r} is no valid {what} id.",
            remedy="Use 1 to 63 of a-z, 0-9, '-', '_' and '.', starting with a letter or digit.",
            reason="INVALID_RESOURCE_ID",
        )
    return value


def check_package(value: str) -> str:
    """Return ``value`` if it is a valid package name. Chunk keys begin with it and a colon."""
    if not _PACKAGE.fullmatch(value):
        raise InvalidArgument(
            f"{value[:80]!r} is no valid package name.",
            remedy="Use 1 to 128 of letters, digits, '-', '_', '.' and '@', starting with a letter or digit.",
            reason="INVALID_PACKAGE",
        )
    return value


def check_model(value: str) -> str:
    """Return ``value`` if it can be the name of a model below the models directory; empty for none."""
    if value and not MODEL_NAME.fullmatch(value):
        raise InvalidArgument(
            f"{value[:80]!r} is no name of a model.",
            remedy="Use up to 128 of A-Z, a-z, 0-9, '-', '_' and '.', a letter or digit first;"
            " `undercroft models list` shows the names that there are.",
            reason="INVALID_MODEL_NAME",
        )
    return value


def check_text(value: str, what: str) -> str:
    """Return a free text of one line if it is short enough to be shown."""
    if len(value) > _MOST_CHARS or any(ord(character) < 32 for character in value):
        raise InvalidArgument(f"The {what} is not one line of at most {_MOST_CHARS} characters.", remedy="Shorten it.")
    return value


def project_name(project: str) -> str:
    return f"projects/{project}"


def source_name(project: str, source: str) -> str:
    return f"projects/{project}/sources/{source}"


def upload_name(project: str, upload: str) -> str:
    return f"projects/{project}/uploads/{upload}"


def operation_name(project: str, operation: int) -> str:
    return f"projects/{project}/operations/{operation}"


def decision_name(project: str, path: str) -> str:
    return f"projects/{project}/decisions/{quote(path, safe='')}"


def parse_project(name: str) -> str:
    """Return the project's id of ``projects/{project}``."""
    return _parse(name, "projects/{project}")[0]


def parse_source(name: str) -> tuple[str, str]:
    """Return the ids of ``projects/{project}/sources/{source}``."""
    project, source = _parse(name, "projects/{project}/sources/{source}")
    return project, source


def parse_upload(name: str) -> tuple[str, str]:
    """Return the ids of ``projects/{project}/uploads/{upload}``."""
    project, upload = _parse(name, "projects/{project}/uploads/{upload}")
    return project, upload


def parse_operation(name: str) -> tuple[str, int]:
    """Return the ids of ``projects/{project}/operations/{operation}``."""
    project, operation = _parse(name, "projects/{project}/operations/{operation}")
    if not operation.isascii() or not operation.isdigit() or len(operation) > 18:
        raise InvalidArgument(f"{name!r} is no name of an operation.", reason="INVALID_RESOURCE_NAME")
    return project, int(operation)


def parse_decision(name: str) -> tuple[str, str]:
    """Return the project's id and the path of ``projects/{project}/decisions/{decision}``."""
    project, decision = _parse(name, "projects/{project}/decisions/{decision}")
    return project, unquote(decision)


def _parse(name: str, pattern: str) -> list[str]:
    parts, wanted = name.split("/"), pattern.split("/")
    if len(parts) != len(wanted) or any(
        (not part) if want.startswith("{") else part != want for part, want in zip(parts, wanted, strict=True)
    ):
        raise InvalidArgument(
            f"{name!r} is no valid resource name.", remedy=f"It has the form {pattern}.", reason="INVALID_RESOURCE_NAME"
        )
    return [part for part, want in zip(parts, wanted, strict=True) if want.startswith("{")]
