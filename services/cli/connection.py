"""Finding the services: those of the appliance on this machine, or those that the environment names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import grpc
from undercroft.client import Client

from services.appliance.discovery import require
from services.appliance.home import Home
from services.cli.output import fail, is_silence
from services.core.addresses import check_target
from services.core.errors import InvalidArgument, NotReady, Unavailable, UndercroftError

SERVICES = ("ingest", "embed", "search", "decisions")

_STUBS = {
    "ingest": ("projects", "index", "operations"),
    "embed": ("embed", "models"),
    "search": ("search",),
    "decisions": ("decisions",),
}
_HERE = "for the appliance of this machine unset such variables, or name its data directory with --home."
# What the health protocol says; all else is a service that is not there.
_THERE = ("SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_PROBE_LIMIT_S = 2.0


def variable(service: str) -> str:
    """Return the variable that names a service."""
    return f"UNDERCROFT_{service.upper()}_TARGET"


def named_targets(home: Path | None) -> dict[str, str]:
    """Return ``host:port`` by service of those that ``UNDERCROFT_<SERVICE>_TARGET`` names.

    Where one is named, commands call those services, and no appliance of this machine, unless ``home`` is given. Ends
    the command where one is no address.
    """
    targets = {name: os.environ.get(variable(name), "") for name in SERVICES if home is None}
    for name, target in targets.items():
        try:
            check_target(target)
        except ValueError as error:
            fail(InvalidArgument(f"{variable(name)} {error}.", remedy=f"Correct it; {_HERE}"))
    return {name: target for name, target in targets.items() if target}


@contextlib.contextmanager
def connect(home: Path | None) -> Iterator[Client]:
    """Open a client of the named services, or of the appliance of this machine.

    Ends the command with the next step when there is nothing to connect to.
    """
    if named := named_targets(home):
        with Client(**named) as client:
            for name in SERVICES:
                if name not in named:
                    for stub in _STUBS[name]:
                        setattr(client, stub, _NotNamed(name, named))
            try:
                yield client
            except grpc.RpcError as error:
                if is_silence(error):
                    _fail_silent(named)
                raise
        return
    try:
        endpoints = require(Home.locate(home))
    except UndercroftError as error:
        fail(error)
    with Client(**{name: endpoints[name] for name in SERVICES}) as client:
        yield client


class _NotNamed:
    """Stands for a service that the environment does not name, while it names others."""

    def __init__(self, service: str, named: Mapping[str, str]) -> None:
        self._service = service
        self._named = named

    def __getattr__(self, method: str) -> NoReturn:
        others = ", ".join(map(variable, self._named))
        fail(
            NotReady(
                f"{method} is a call of {self._service}, and {variable(self._service)} is not set while others are"
                f" ({others}).",
                remedy=f"Set it too; {_HERE}",
            )
        )


def _fail_silent(named: Mapping[str, str]) -> None:
    """End the command with what does not answer, if that is so still."""
    # Imported here, as no other command needs it.
    from services.core.probe import probe

    with ThreadPoolExecutor(len(named)) as pool:
        answers = pool.map(lambda target: probe(target, timeout_s=_PROBE_LIMIT_S), named.values())
    silent = [name for name, answer in zip(named, answers, strict=True) if answer not in _THERE]
    if silent:
        where = "; ".join(f"{name} at {named[name]} ({variable(name)})" for name in silent)
        fail(Unavailable(f"No answer from {where}.", remedy=f"Check address and service; {_HERE}"))
