"""Finding the services: those of the appliance on this machine, or those that the environment names."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import grpc
from google.protobuf.message import Message
from rich.console import Console
from undercroft.client import Client, explain

from services.appliance.discovery import require
from services.appliance.home import Home
from services.cli.options import fail
from services.core.errors import UndercroftError

SERVICES = ("ingest", "embed", "search", "decisions")


def connect(home: Path | None) -> Client:
    """Open a client; ends the command with the next step when there is nothing to connect to.

    ``UNDERCROFT_<SERVICE>_TARGET`` names services of another machine.
    """
    named = {name: os.environ.get(f"UNDERCROFT_{name.upper()}_TARGET", "") for name in SERVICES}
    if any(named.values()):
        return Client(**named)
    try:
        endpoints = require(Home.locate(home))
    except UndercroftError as error:
        fail(error)
    return Client(**{name: endpoints[name] for name in SERVICES})


def print_json(message: Message) -> None:
    """Print a message as one JSON object, with the field names of its proto."""
    from google.protobuf import json_format

    print(json_format.MessageToJson(message, preserving_proto_field_name=True))


def fail_call(error: grpc.RpcError) -> None:
    """Print what a failed call says, and end with 1."""
    told = explain(error)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(told.message or told.code, style="red", markup=False)
    if told.remedy:
        console.print(told.remedy, markup=False)
    sys.exit(1)
