"""Starting, stopping and looking at an appliance from outside its supervisor."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from services.appliance.home import Home
from services.appliance.logs import described_tail, size
from services.appliance.postgres import EmbeddedPostgres, PostgresStatus
from services.appliance.process import ProcessIdentity, reap, spawn_detached
from services.appliance.record import ApplianceRecord, ApplianceState, Health, ServiceRecord, read_record
from services.appliance.supervisor import EXIT_HELD, end_leftovers, log_path
from services.core.errors import NotReady
from services.core.probe import probe

_POLL_S = 0.05
_CLEANUP_LOCK_LIMIT_S = 10.0
_KILL_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Started:
    """An appliance that is ready; ``already`` when it was so before."""

    record: ApplianceRecord
    already: bool


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """A service now; ``uptime_s`` is None while it has no process."""

    record: ServiceRecord
    health: Health
    uptime_s: float | None


@dataclass(frozen=True, slots=True)
class ApplianceStatus:
    """What runs in a data directory, whoever started it."""

    home: Path
    state: str
    phase: str
    message: str
    remedy: str
    supervisor_pid: int | None
    uptime_s: float | None
    postgres: PostgresStatus
    services: tuple[ServiceStatus, ...]
    size_bytes: int

    @property
    def healthy(self) -> bool:
        """True while everything serves."""
        serving = all(service.health is Health.SERVING for service in self.services)
        return self.state == ApplianceState.READY and self.postgres.ready and serving


def start(
    home: Home,
    *,
    limit_s: float = 600.0,
    on_phase: Callable[[str], None] = lambda phase: None,
    command: tuple[str, ...] | None = None,
) -> Started:
    """Start a detached supervisor and wait until the appliance is ready, or find it so.

    Raises: NotReady with the cause, Conflict, PermissionDenied, InvalidArgument.
    """
    home.create()
    deadline = time.monotonic() + limit_s
    spoken = _Spoken(on_phase)
    while (holder := home.supervisor()) is not None:
        record = _current(home, holder)
        if record is not None and record.state is ApplianceState.READY:
            return Started(record, already=not spoken.anything)
        # Somebody else is starting it, or it is on its way down: wait for either to come to its end.
        spoken(record.phase if record else "")
        _expect(deadline, limit_s, home)
        time.sleep(_POLL_S)
    log = log_path(home)
    log_start = size(log)
    pid = spawn_detached(
        command or (sys.executable, "-m", "services.appliance", "--home", str(home.root)),
        environment=os.environ,
        directory=home.run,
        log=log,
    )
    while (code := reap(pid)) is None:
        record = read_record(home.record)
        if record is not None and record.supervisor.pid == pid and record.is_alive():
            if record.state is ApplianceState.READY:
                return Started(record, already=False)
            spoken(record.phase)
        _expect(deadline, limit_s, home)
        time.sleep(_POLL_S)
    if code == EXIT_HELD:
        return start(home, limit_s=max(0.0, deadline - time.monotonic()), on_phase=on_phase, command=command)
    record = read_record(home.record)
    if record is not None and record.supervisor.pid == pid and record.message:
        raise NotReady(record.message, remedy=record.remedy, reason="APPLIANCE_FAILED")
    raise NotReady(
        f"The supervisor ended with code {code}.{described_tail(log, since_byte=log_start)}",
        remedy="Remove the cause that the log names, then run `undercroft up` again.",
        reason="APPLIANCE_FAILED",
    )


def stop(
    home: Home,
    *,
    limit_s: float = 180.0,
    leftover_drain_s: float = 30.0,
    on_phase: Callable[[str], None] = lambda phase: None,
) -> tuple[str, ...]:
    """Stop whatever runs in ``home``, leftovers of a killed supervisor included; return what was stopped.

    Raises: NotReady when something cannot be stopped, Conflict when the directory is held by somebody else.
    """
    if not home.exists():
        return ()
    # An unknown format is not ours to touch, not even to stop.
    home.create()
    stopped: list[str] = []
    supervisor = home.supervisor()
    if supervisor is not None:
        _stop_supervisor(home, supervisor, limit_s, on_phase)
        stopped.append("supervisor")
    with home.lock("undercroft down", _CLEANUP_LOCK_LIMIT_S):
        stopped += end_leftovers(home, leftover_drain_s)
        postgres = EmbeddedPostgres(home.postgres, log=home.logs / "postgres.log")
        if postgres.stop():
            stopped.append("postgres")
        home.record.unlink(missing_ok=True)
    return tuple(stopped)


def inspect(home: Home) -> ApplianceStatus:
    """Look at the appliance without changing anything. Raises NotReady for a later format."""
    if home.exists():
        home.check_format()
    record = read_record(home.record)
    holder = home.supervisor()
    alive = record is not None and record.is_alive()
    postgres = EmbeddedPostgres(home.postgres, log=home.logs / "postgres.log").status()
    services = _service_statuses(record, alive) if record else ()
    if record is not None and (alive or record.state is ApplianceState.FAILED):
        state = str(record.state)
    else:
        state = str(ApplianceState.STARTING) if holder else "stopped"
    message, remedy = _said(record), _remedy(record)
    if any(service.health is Health.NO_DATABASE for service in services):
        message = "The database does not answer the services."
        remedy = f"{home.logs / 'postgres.log'} and the services' own logs beside it tell why."
    left_behind = not alive and holder is None and (postgres.running or any(s.uptime_s is not None for s in services))
    return ApplianceStatus(
        home=home.root,
        state=state,
        phase=record.phase if record and alive else "",
        message="The supervisor was killed and left processes behind." if left_behind else message,
        remedy="`undercroft up` takes them over, `undercroft down` stops them." if left_behind else remedy,
        supervisor_pid=holder.pid if holder else None,
        uptime_s=holder.uptime_s() if holder else None,
        postgres=postgres,
        services=services,
        size_bytes=directory_size_bytes(home.root),
    )


def directory_size_bytes(root: Path) -> int:
    """Return the disk space that a directory tree takes; what vanishes meanwhile counts nothing."""
    total = 0
    for folder, _, files in os.walk(root, onerror=None):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except OSError:
                continue
    return total


class _Spoken:
    """Passes on each phase once."""

    def __init__(self, on_phase: Callable[[str], None]) -> None:
        self._on_phase = on_phase
        self._last = ""
        self.anything = False

    def __call__(self, phase: str) -> None:
        self.anything = True
        if phase and phase != self._last:
            self._last = phase
            self._on_phase(phase)


def _current(home: Home, holder: ProcessIdentity) -> ApplianceRecord | None:
    record = read_record(home.record)
    return record if record is not None and record.supervisor == holder else None


def _expect(deadline: float, limit_s: float, home: Home) -> None:
    if time.monotonic() >= deadline:
        raise NotReady(
            f"The appliance is not ready after {limit_s:.0f} s; it goes on starting.",
            remedy=f"`undercroft status` shows how far it is, {log_path(home)} what it does.",
            reason="APPLIANCE_SLOW",
        )


def _stop_supervisor(home: Home, supervisor: ProcessIdentity, limit_s: float, on_phase: Callable[[str], None]) -> None:
    spoken = _Spoken(on_phase)
    supervisor.send(signal.SIGTERM)
    deadline = time.monotonic() + limit_s
    while supervisor.is_alive() and time.monotonic() < deadline:
        record = _current(home, supervisor)
        if record is not None and record.state is ApplianceState.STOPPING:
            spoken(record.phase)
        time.sleep(_POLL_S)
    if supervisor.is_alive():
        on_phase(f"killing the supervisor, which did not end within {limit_s:.0f} s")
        supervisor.send(signal.SIGKILL)
        if not supervisor.wait(_KILL_LIMIT_S):
            raise NotReady(
                f"The supervisor (process {supervisor.pid}) does not end, not even when killed.",
                remedy="It probably waits for a disk or a network file system: see to the storage.",
            )


def _service_statuses(record: ApplianceRecord, supervised: bool) -> tuple[ServiceStatus, ...]:
    with ThreadPoolExecutor() as pool:
        return tuple(pool.map(lambda service: _service_status(service, supervised), record.services))


def _service_status(service: ServiceRecord, supervised: bool) -> ServiceStatus:
    alive = service.process is not None and service.process.is_alive()
    health = service.health if supervised and (alive or service.process is None) else Health.STOPPED
    # What keeps a service up does not ask for its database, which no restart would bring back.
    if health is Health.SERVING and probe(service.target, "database") == "NOT_SERVING":
        health = Health.NO_DATABASE
    uptime_s = service.process.uptime_s() if alive and service.process is not None else None
    return ServiceStatus(service, health, uptime_s)


def _said(record: ApplianceRecord | None) -> str:
    return record.message if record else ""


def _remedy(record: ApplianceRecord | None) -> str:
    return record.remedy if record else "Start it with `undercroft up`."
