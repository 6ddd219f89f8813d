"""``run/appliance.json``: what runs, where it listens, how it is. It holds no secret."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import cast

from services.appliance.process import ProcessIdentity

_FORMAT = 1


class ApplianceState(StrEnum):
    """Where the appliance is in its life."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    FAILED = "failed"


class Health(StrEnum):
    """What a service says of itself, or what its silence says."""

    STARTING = "starting"
    SERVING = "serving"
    NOT_SERVING = "not serving"
    NO_DATABASE = "without database"
    UNREACHABLE = "unreachable"
    RESTARTING = "restarting"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """One supervised service; targets are ``host:port``."""

    name: str
    target: str
    metrics_target: str
    health: Health
    restarts: int
    process: ProcessIdentity | None


@dataclass(frozen=True, slots=True)
class ApplianceRecord:
    """The appliance as its supervisor last saw it."""

    state: ApplianceState
    supervisor: ProcessIdentity
    phase: str = ""
    message: str = ""
    remedy: str = ""
    postgres_port: int | None = None
    services: tuple[ServiceRecord, ...] = ()

    def is_alive(self) -> bool:
        """Tell whether the supervisor that wrote this still runs."""
        return self.supervisor.is_alive()


def write_record(path: Path, record: ApplianceRecord) -> None:
    """Replace the record; a reader sees the old one or the new one."""
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    text = json.dumps({"format": _FORMAT, **dataclasses.asdict(record)}, indent=1)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{text}\n")
    temporary.replace(path)


def read_record(path: Path) -> ApplianceRecord | None:
    """Return the record, or None when there is none that can be read."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return _appliance(fields) if fields["format"] == _FORMAT else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _appliance(fields: dict[str, object]) -> ApplianceRecord:
    services = cast("list[dict[str, object]]", fields["services"])
    port = fields["postgres_port"]
    supervisor = _process(fields["supervisor"])
    if supervisor is None:
        raise ValueError("a record without a supervisor")
    return ApplianceRecord(
        state=ApplianceState(str(fields["state"])),
        supervisor=supervisor,
        phase=str(fields["phase"]),
        message=str(fields["message"]),
        remedy=str(fields["remedy"]),
        postgres_port=None if port is None else int(str(port)),
        services=tuple(_service(service) for service in services),
    )


def _service(fields: dict[str, object]) -> ServiceRecord:
    return ServiceRecord(
        name=str(fields["name"]),
        target=str(fields["target"]),
        metrics_target=str(fields["metrics_target"]),
        health=Health(str(fields["health"])),
        restarts=int(str(fields["restarts"])),
        process=_process(fields["process"]),
    )


def _process(value: object) -> ProcessIdentity | None:
    if value is None:
        return None
    fields = cast("dict[str, object]", value)
    return ProcessIdentity(int(str(fields["pid"])), int(str(fields["start_ticks"])), str(fields["boot_id"]))
