"""Finding the services: those of the appliance on this machine, or those that the environment names."""

from __future__ import annotations

import os
from pathlib import Path

from undercroft.client import Client

from services.appliance.discovery import require
from services.appliance.home import Home
from services.cli.output import fail
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
