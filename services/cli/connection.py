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


def named_targets() -> dict[str, str]:
    """Return ``host:port`` by service of those that ``UNDERCROFT_<SERVICE>_TARGET`` names.

    Where one is named, commands call those services, and no appliance of this machine.
    """
    targets = {name: os.environ.get(f"UNDERCROFT_{name.upper()}_TARGET", "") for name in SERVICES}
    return {name: target for name, target in targets.items() if target}


def connect(home: Path | None) -> Client:
    """Open a client of the named services, or of the appliance of this machine.

    Ends the command with the next step when there is nothing to connect to.
    """
    if named := named_targets():
        return Client(**named)
    try:
        endpoints = require(Home.locate(home))
    except UndercroftError as error:
        fail(error)
    return Client(**{name: endpoints[name] for name in SERVICES})
