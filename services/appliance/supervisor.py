"""The process that keeps Postgres and the services running, and takes them down in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from services.appliance.child import Limits, ServiceSpec, SupervisedService
from services.appliance.home import Home
from services.appliance.logs import rotate
from services.appliance.ports import LOOPBACK, free_ports
from services.appliance.postgres import ConnectionInfo, EmbeddedPostgres
from services.appliance.process import ProcessIdentity, identify
from services.appliance.record import ApplianceRecord, ApplianceState, read_record, write_record
from services.core.errors import Conflict, NotReady, UndercroftError

_log = logging.getLogger(__name__)

EXIT_FAILED = 1
EXIT_HELD = 75  # EX_TEMPFAIL: another supervisor was faster

_ROTATE_INTERVAL_S = 5.0
_KILL_LIMIT_S = 10.0


def default_services() -> tuple[ServiceSpec, ...]:
    """Return the four services in the order of their start; they stop in the opposite order."""
    names = ("embed", "ingest", "search", "decisions")
    return tuple(ServiceSpec(name, (sys.executable, "-m", f"services.{name}")) for name in names)


def migrate_database(conninfo: str) -> None:
    """Bring the schema to this release."""
    from services.core.db import migrate

    migrate(conninfo)


class Supervisor:
    """Runs one appliance in ``home`` until cancelled.

    ``services`` are started side by side once ``migrate`` has returned; ``on_phase`` hears what is being done.
    """

    def __init__(
        self,
        home: Home,
        *,
        services: Sequence[ServiceSpec] | None = None,
        migrate: Callable[[str], None] = migrate_database,
        postgres: EmbeddedPostgres | None = None,
        limits: Limits | None = None,
        on_phase: Callable[[str], None] | None = None,
    ) -> None:
        self._home = home
        self._specs = default_services() if services is None else tuple(services)
        self._migrate = migrate
        self._postgres = postgres or EmbeddedPostgres(home.postgres, log=home.logs / "postgres.log")
        self._limits = limits or Limits()
        self._on_phase = on_phase or (lambda phase: None)
        self._services: list[SupervisedService] = []
        self._state = ApplianceState.STARTING
        self._phase = ""
        self._failure: UndercroftError | None = None
        self._postgres_port: int | None = None
        self._identity = _own_identity()
        self._lock: int | None = None

    async def run(self) -> None:
        """Start everything, watch it, and on cancellation stop everything.

        Raises: Conflict when another supervisor holds the directory; NotReady when something does not start.
        """
        self._home.create()
        with self._home.lock("supervisor") as self._lock:
            end_leftovers(self._home, self._limits.drain_s)
            try:
                await self._start()
                await self._watch()
            except UndercroftError as error:
                self._failure = error
                raise
            except Exception as error:
                self._failure = UndercroftError(
                    f"The appliance failed while {self._phase}: {type(error).__name__}: {error}.",
                    remedy=f"{log_path(self._home)} has the details; then run `undercroft up` again.",
                )
                raise self._failure from error
            finally:
                await asyncio.shield(self._stop())

    async def _start(self) -> None:
        self._enter("starting Postgres")
        connection = await asyncio.to_thread(self._postgres.ensure_running)
        self._postgres_port = connection.port
        self._enter("migrating the database")
        await asyncio.to_thread(self._migrate, connection.url)
        self._services = self._plan(connection)
        self._enter(f"starting {', '.join(service.spec.name for service in self._services)}")
        async with _together() as group:
            for service in self._services:
                group.create_task(service.start())
        self._state = ApplianceState.READY
        self._enter("ready")

    async def _watch(self) -> None:
        async with _together() as group:
            for service in self._services:
                group.create_task(service.keep())
            group.create_task(self._keep_lock())
            group.create_task(self._keep_postgres())
            group.create_task(self._rotate_logs())

    async def _stop(self) -> None:
        self._state = ApplianceState.STOPPING
        for service in reversed(self._services):
            self._enter(f"stopping {service.spec.name}")
            await service.stop()
        self._enter("stopping Postgres")
        try:
            await asyncio.to_thread(self._postgres.stop if self._holds_home() else self._postgres.abandon)
        except UndercroftError as error:
            _log.error("%s", error)
            self._failure = self._failure or error
        if self._failure is None and self._holds_home():
            self._home.record.unlink(missing_ok=True)
            return
        self._state = ApplianceState.FAILED
        self._enter("failed")

    async def _keep_lock(self) -> None:
        """End the appliance once its directory is gone: nobody finds it any more, and the next one would fight it."""
        while True:
            if not self._holds_home():
                raise NotReady(
                    f"The data directory {self._home.root} was removed or moved while its appliance ran: it ends.",
                    remedy="Run `undercroft up` to start again, and `undercroft down` before you move a directory.",
                    reason="HOME_LOST",
                )
            await asyncio.sleep(self._limits.health_interval_s)

    def _holds_home(self) -> bool:
        return self._lock is not None and self._home.holds(self._lock)

    async def _keep_postgres(self) -> None:
        while True:
            await asyncio.sleep(self._limits.health_interval_s)
            try:
                # Where the directory is gone this would begin an empty one.
                if self._postgres.is_running() or not self._holds_home():
                    continue
                _log.warning("Postgres has ended; it starts again")
                connection = await asyncio.to_thread(self._postgres.ensure_running)
            except (UndercroftError, OSError) as error:
                _log.error("%s", error)
                continue
            if connection.port != self._postgres_port:
                # Its port was taken meanwhile: the services hold the old address.
                self._postgres_port = connection.port
                for service in self._services:
                    await service.restart({"UNDERCROFT_DATABASE_URL": connection.url})
            self._write()

    async def _rotate_logs(self) -> None:
        while True:
            for log in sorted(self._home.logs.glob("*.log")):
                try:
                    rotate(log, max_bytes=self._limits.log_max_bytes, keep=self._limits.log_keep)
                except OSError as error:
                    _log.error("The log %s cannot be rotated: %s", log, error)
            await asyncio.sleep(_ROTATE_INTERVAL_S)

    def _plan(self, connection: ConnectionInfo) -> list[SupervisedService]:
        ports = free_ports(2 * len(self._specs), owner=str(self._home.root))
        targets = {spec.name: f"{LOOPBACK}:{ports[2 * n]}" for n, spec in enumerate(self._specs)}
        environment = self._environment(connection, targets)
        return [
            SupervisedService(
                spec,
                target=targets[spec.name],
                metrics_target=f"{LOOPBACK}:{ports[2 * n + 1]}",
                environment=environment,
                directory=self._home.run,
                log=self._home.logs / f"{spec.name}.log",
                limits=self._limits,
                on_change=self._write,
            )
            for n, spec in enumerate(self._specs)
        ]

    def _environment(self, connection: ConnectionInfo, targets: Mapping[str, str]) -> dict[str, str]:
        # libpq would read the user's PG* variables beside our URL.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return {
            "UNDERCROFT_LOG_LEVEL": "INFO",
            "UNDERCROFT_WHEELS_DIR": str(self._home.wheels),
            **inherited,
            "PYTHONUNBUFFERED": "1",
            "no_grpc_proxy": LOOPBACK,
            "UNDERCROFT_HOME": str(self._home.root),
            "UNDERCROFT_DATABASE_URL": connection.url,
            "UNDERCROFT_SIDECAR_DIR": str(self._home.sidecars),
            "UNDERCROFT_LOCAL_DIR": str(self._home.local),
            "UNDERCROFT_MODELS_DIR": str(self._home.models),
            "UNDERCROFT_SECRETS_DIR": str(self._home.secrets),
            **{f"UNDERCROFT_{name.upper()}_TARGET": target for name, target in targets.items()},
        }

    def _enter(self, phase: str) -> None:
        self._phase = phase
        _log.info("%s", phase)
        self._on_phase(phase)
        self._write()

    def _write(self) -> None:
        if not self._holds_home():
            return
        failure = self._failure
        record = ApplianceRecord(
            state=self._state,
            supervisor=self._identity,
            phase=self._phase,
            message=failure.message if failure else "",
            remedy=failure.remedy if failure else "",
            postgres_port=self._postgres_port,
            services=tuple(service.record for service in self._services),
        )
        try:
            write_record(self._home.record, record)
        except OSError as error:
            # A full disk must not take the services down.
            _log.error("The record %s cannot be written: %s", self._home.record, error)


def end_leftovers(home: Home, drain_s: float) -> tuple[str, ...]:
    """End services that outlived a killed supervisor; the caller holds the lock. Returns their names."""
    record = read_record(home.record)
    if record is None:
        return ()
    left = [(service.name, service.process) for service in record.services if service.process is not None]
    alive = [(name, process) for name, process in left if process.is_alive()]
    for _, process in alive:
        process.send(signal.SIGTERM)
    for name, process in alive:
        if not process.wait(drain_s):
            _log.warning("%s of an earlier supervisor does not drain and is killed", name)
            process.send_group(signal.SIGKILL)
            process.wait(_KILL_LIMIT_S)
    return tuple(name for name, _ in alive)


def run_supervisor(supervisor: Supervisor) -> None:
    """Run a supervisor in this process until SIGTERM or SIGINT. Raises what ``Supervisor.run`` raises."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(supervisor.run())
        stopping = False

        def stop() -> None:
            # A second signal must not break off the shutdown that the first one began.
            nonlocal stopping
            if not stopping:
                stopping = True
                task.cancel()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())


def run_detached(supervisor: Supervisor) -> int:
    """Run a supervisor whose output is its log; return the exit code that ``control.start`` understands."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        run_supervisor(supervisor)
    except Conflict as error:
        _log.error("%s", error)
        return EXIT_HELD
    except UndercroftError as error:
        # Whoever started us reads it from the record, or, when it is too early for that, from the log.
        _log.error("%s", error)
        return EXIT_FAILED
    return 0


@contextlib.asynccontextmanager
async def _together() -> AsyncIterator[asyncio.TaskGroup]:
    """Open a task group whose first error comes out as itself."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


def _own_identity() -> ProcessIdentity:
    identity = identify(os.getpid())
    if identity is None:
        raise NotReady("/proc does not show this process.", remedy="Mount /proc and try again.")
    return identity


def log_path(home: Home) -> Path:
    """Return the log of a detached supervisor."""
    return home.logs / "supervisor.log"
