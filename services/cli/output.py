"""How commands speak: consoles, JSON, and failures with their next step."""

from __future__ import annotations

import sys
from typing import NoReturn

import grpc
import typer
from google.protobuf.message import Message
from rich.console import Console
from undercroft.client import explain

from services.core.errors import UndercroftError

# What is not a terminal has no width; 80 columns would cut code.
_WIDTH_OF_FILES = 120


def console(*, stderr: bool = False) -> Console:
    """Return a console that breaks no line of its own."""
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=None if terminal else _WIDTH_OF_FILES)


def print_json(message: Message) -> None:
    """Print a message as one JSON object, with the field names of its proto."""
    from google.protobuf import json_format

    print(json_format.MessageToJson(message, preserving_proto_field_name=True))


def fail(error: UndercroftError) -> NoReturn:
    """Print the cause and the next step, and end with 1."""
    _tell(error.message.rstrip(), error.remedy)
    raise typer.Exit(1)


def is_silence(error: grpc.RpcError) -> bool:
    """Tell whether a call failed because nobody answered it."""
    told = explain(error)
    return told.code == "UNAVAILABLE" and not told.remedy


def fail_call(error: grpc.RpcError) -> NoReturn:
    """Print what a failed call says, and end with 1."""
    told = explain(error)
    if is_silence(error):
        # What gRPC says of a broken connection helps nobody.
        _tell(
            "The service does not answer now.",
            "It may be starting again: `undercroft status` tells. A run that was under way goes on by itself.",
        )
        sys.exit(1)
    _tell(told.message or told.code, told.remedy)
    sys.exit(1)


def fail_undecodable() -> NoReturn:
    """Say that an argument is not text, and end with 1."""
    _tell(
        "An argument is not valid UTF-8.", "Give it in UTF-8; such a folder can be indexed as a part of the one above."
    )
    sys.exit(1)


def _tell(cause: str, remedy: str) -> None:
    out = console(stderr=True)
    out.print(cause, style="red", markup=False)
    if remedy:
        out.print(remedy, markup=False)
