"""How a client on this machine finds the running appliance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from services.appliance.home import Home
from services.appliance.record import ApplianceState, read_record
from services.core.errors import NotReady


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the services of a running appliance listen: ``host:port`` by service name."""

    targets: Mapping[str, str]

    def __getitem__(self, service: str) -> str:
        return self.targets[service]

    @property
    def embed(self) -> str:
        """The target of the embed service."""
        return self.targets["embed"]

    @property
    def ingest(self) -> str:
        """The target of the ingest service."""
        return self.targets["ingest"]

    @property
    def search(self) -> str:
        """The target of the search service."""
        return self.targets["search"]

    @property
    def decisions(self) -> str:
        """The target of the decisions service."""
        return self.targets["decisions"]


def running(home: Home) -> Endpoints | None:
    """Return the endpoints of the appliance in ``home``, or None when it is not up."""
    record = read_record(home.record)
    if record is None or record.state is not ApplianceState.READY or not record.is_alive():
        return None
    return Endpoints({service.name: service.target for service in record.services})


def require(home: Home) -> Endpoints:
    """Return the endpoints of the appliance in ``home``.

    Raises: NotReady, saying whether it is down, starting or stopping, and what to do.
    """
    endpoints = running(home)
    if endpoints is not None:
        return endpoints
    record = read_record(home.record)
    if record is not None and record.is_alive():
        raise NotReady(
            f"The appliance in {home.root} is {record.state}.",
            remedy="`undercroft up` waits until it is ready.",
            reason="APPLIANCE_NOT_READY",
        )
    raise NotReady(
        f"The appliance in {home.root} is not running.",
        remedy="Start it with `undercroft up`.",
        reason="APPLIANCE_NOT_RUNNING",
    )
