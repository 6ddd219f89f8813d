"""The embedded Postgres server: started, found again, and stopped."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from services.appliance.account import Account, current_account
from services.appliance.cluster import DATABASE, USER, Binaries, Cluster, server_environment
from services.appliance.logs import described_tail, size, tail
from services.appliance.ports import LOOPBACK
from services.appliance.process import ProcessIdentity, command_line, identify, reap, spawn_detached
from services.core.errors import NotReady, UndercroftError

_POLL_S = 0.03
_CONNECT_LIMIT_S = 5
_ATTEMPTS = 5
_ORPHANS_PAUSE_S = 1.0
_UNREACHABLE_STOP_LIMIT_S = 30.0
# A server that says that it is ready and that nobody hears on its port lives in another network namespace.
_HOPELESS = ("password authentication failed", "Connection refused", "unreachable")
# Positions in postmaster.pid (LOCK_FILE_LINE_* in Postgres' miscadmin.h).
_PID_LINE, _DIRECTORY_LINE, _PORT_LINE, _STATUS_LINE = 0, 1, 3, 7


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """How to reach the server; the password stays out of ``repr``."""

    host: str
    port: int
    user: str
    database: str
    password: str = field(repr=False)

    @property
    def url(self) -> str:
        """A libpq URL with the password: for psycopg and for the environment of services, not for arguments or logs."""
        return f"postgresql://{self.user}:{self.password}@{self.host}:{self.port}/{self.database}"


@dataclass(frozen=True, slots=True)
class PostgresStatus:
    """What a look at the server shows; ``running`` is true while its process lives, ``ready`` once it answers."""

    running: bool
    ready: bool
    pid: int | None = None
    port: int | None = None
    uptime_s: float | None = None
    version: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _Postmaster:
    """A live server process and what its pid file says."""

    process: ProcessIdentity
    port: int
    ready: bool


class EmbeddedPostgres:
    """A Postgres server whose files live in ``data_dir`` and which outlives the process that starts it.

    ``settings`` override the server's configuration; ``log`` is where its output goes.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        log: Path | None = None,
        settings: Mapping[str, str] | None = None,
        binaries: Binaries | None = None,
        account: Account | None = None,
        start_limit_s: float = 300.0,
    ) -> None:
        self.data_dir = Path(os.path.abspath(data_dir))
        self.log = log or self.data_dir / "postgres.log"
        self._settings = dict(settings or {})
        self._binaries = binaries
        self._account = account
        self._start_limit_s = start_limit_s
        self._process: ProcessIdentity | None = None

    @property
    def cluster(self) -> Cluster:
        """The files of the server."""
        if self._binaries is None:
            self._binaries = Binaries.of_wheel()
        return Cluster(self.data_dir, self._binaries)

    def initialise(self) -> None:
        """Make the files of a new server, or clean up what an interrupted attempt left; start nothing.

        Raises: NotReady, DataLoss, PermissionDenied.
        """
        with self._locked():
            self._prepare()

    def ensure_running(self) -> ConnectionInfo:
        """Start the server, or find it running, and wait until it answers.

        Raises: NotReady with the last lines of the log, DataLoss, PermissionDenied.
        """
        with self._locked():
            self._prepare()
            postmaster = self._find()
            deadline = time.monotonic() + self._start_limit_s
            if postmaster is None:
                self._start(deadline)
            else:
                self._wait_ready(postmaster.process, deadline, size(self.log))
            connection = self.connection()
            self._ensure_database(connection)
            return connection

    def connection(self) -> ConnectionInfo:
        """Return how to reach the running server. Raises NotReady when it does not run."""
        postmaster = self._find()
        if postmaster is None or not postmaster.ready:
            raise NotReady(
                f"The Postgres server of {self.data_dir} is not running.",
                remedy="Run `undercroft up`.",
                reason="POSTGRES_NOT_RUNNING",
            )
        return ConnectionInfo(LOOPBACK, postmaster.port, USER, DATABASE, self.cluster.password())

    def stop(self, *, fast_limit_s: float = 30.0, immediate_limit_s: float = 10.0) -> bool:
        """Shut the server down: fast, then without a checkpoint, then by force; False when none ran.

        No committed transaction is lost in any of the three.
        """
        if not self.data_dir.is_dir():
            return False
        with self._locked():
            postmaster = self._find()
            if postmaster is None:
                return False
            _end(postmaster.process, fast_limit_s, immediate_limit_s)
            return True

    def abandon(self, *, fast_limit_s: float = 30.0, immediate_limit_s: float = 10.0) -> None:
        """Shut down the server that was started or found, and touch no files: they are gone, or another's by now."""
        if self._process is not None:
            _end(self._process, fast_limit_s, immediate_limit_s)

    def is_running(self) -> bool:
        """Tell whether the server's process lives, even without its files; one look at /proc, no connection."""
        return self._find() is not None or (self._process is not None and self._process.is_alive())

    def status(self) -> PostgresStatus:
        """Look at the server without changing anything."""
        if not self.cluster.exists():
            return PostgresStatus(running=False, ready=False, detail="no database yet")
        postmaster = self._find()
        if postmaster is None:
            return PostgresStatus(running=False, ready=False)
        version, detail = None, "" if postmaster.ready else "starting"
        if postmaster.ready:
            try:
                with self._connect(self.connection(), "postgres") as session:
                    version = str(session.info.parameter_status("server_version"))
            except (psycopg.Error, UndercroftError) as error:
                detail = str(error).strip()
        return PostgresStatus(
            running=True,
            ready=version is not None,
            pid=postmaster.process.pid,
            port=postmaster.port,
            uptime_s=postmaster.process.uptime_s(),
            version=version,
            detail=detail,
        )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one process at a time start or stop the server, and turn a failing disk into words."""
        try:
            if not self.data_dir.exists():
                self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)
        except OSError as error:
            raise NotReady(
                f"The database files in {self.data_dir} cannot be used: {error.strerror or error}"
                + (f" ({error.filename})." if error.filename else "."),
                remedy="See that the disk has room and permits it, then run `undercroft up` again.",
                reason="POSTGRES_FILES",
            ) from error

    def _prepare(self) -> None:
        if self._account is None:
            self._account = current_account()
        self.cluster.create(self._account, durable=self._settings.get("fsync") != "off")
        self.cluster.check_version()

    def _find(self) -> _Postmaster | None:
        """Return the live server of these files, or None.

        The pid file alone proves nothing: its process may be gone, or the pid may belong to something else by now, or
        the whole directory may be a copy of one whose server lives.
        """
        lines = self._pid_lines()
        if lines is None:
            return None
        process = identify(int(lines[_PID_LINE]))
        if process is None or not self._is_ours(process.pid, lines[_DIRECTORY_LINE]):
            return None
        status = lines[_STATUS_LINE].strip() if len(lines) > _STATUS_LINE else ""
        return _Postmaster(process, int(lines[_PORT_LINE]), status == "ready")

    def _pid_lines(self) -> list[str] | None:
        try:
            lines = self.cluster.pid_file.read_bytes().decode("utf-8", errors="surrogateescape").splitlines()
        except FileNotFoundError:
            return None
        # Postgres writes the first lines at once: a file without them is damaged.
        whole = len(lines) > _PORT_LINE and lines[_PID_LINE].isdecimal() and lines[_PORT_LINE].isdecimal()
        return lines if whole and int(lines[_PID_LINE]) > 0 else None

    def _is_ours(self, pid: int, recorded: str) -> bool:
        command = command_line(pid)
        if not command or Path(command[0]).name != "postgres" or recorded not in command:
            return False
        try:
            return os.path.samefile(recorded, self.cluster.path)
        except OSError:
            # The directory was renamed under the running server; the server's own working directory moved with it.
            return True

    def _start(self, deadline: float) -> None:
        cluster, account = self.cluster, self._account or current_account()
        self._remove_foreign_pid_file()
        account.claim(cluster.path)
        cluster.renew_password(account)
        for attempt in range(1, _ATTEMPTS + 1):
            cluster.configure(cluster.port(), self._settings)
            log_start = size(self.log)
            command = account.command([cluster.binaries.path("postgres"), "-D", str(cluster.path)])
            pid = spawn_detached(command, environment=server_environment(), directory=self.data_dir, log=self.log)
            process = identify(pid)
            try:
                if process is None:
                    raise self._failure("ended at once", log_start)
                self._wait_ready(process, deadline, log_start)
            except NotReady as error:
                said = tail(self.log, since_byte=log_start)
                if error.reason == "POSTGRES_UNREACHABLE" and process is not None:
                    process.send(signal.SIGINT)
                    process.wait(_UNREACHABLE_STOP_LIMIT_S)
                if attempt == _ATTEMPTS or process is None or error.reason != "POSTGRES_FAILED":
                    raise
                if "shared memory block" in said:
                    # Orphans of a killed server are still ending.
                    time.sleep(_ORPHANS_PAUSE_S)
                elif "Address already in use" not in said:
                    raise
            else:
                return

    def _remove_foreign_pid_file(self) -> None:
        """Remove a pid file that Postgres would believe or choke on: a pid that is another process now, or no pid.

        One whose process is gone is left to Postgres, which also looks for orphaned backends of that server.
        """
        lines = self._pid_lines()
        if lines is None or identify(int(lines[_PID_LINE])) is not None:
            self.cluster.pid_file.unlink(missing_ok=True)

    def _wait_ready(self, process: ProcessIdentity, deadline: float, log_start: int) -> None:
        self._process = process
        problem = "it is still starting or recovering"
        while process.is_alive():
            postmaster = self._find()
            if postmaster is not None and postmaster.process == process and postmaster.ready:
                connection = ConnectionInfo(LOOPBACK, postmaster.port, USER, "postgres", self.cluster.password())
                try:
                    self._connect(connection, "postgres").close()
                    return
                except psycopg.OperationalError as error:
                    problem = str(error).strip()
                    if any(words in problem for words in _HOPELESS):
                        raise self._unreachable(postmaster, problem) from error
            if time.monotonic() >= deadline:
                raise NotReady(
                    f"The Postgres server (process {process.pid}) is not ready after {self._start_limit_s:.0f} s: "
                    f"{problem}.{described_tail(self.log, since_byte=log_start)}",
                    remedy="Run `undercroft up` again to wait longer, or `undercroft down` to stop it.",
                    reason="POSTGRES_SLOW",
                )
            time.sleep(_POLL_S)
        code = reap(process.pid)
        raise self._failure("ended" if code is None else f"ended with code {code}", log_start)

    def _failure(self, what: str, log_start: int) -> NotReady:
        return NotReady(
            f"The Postgres server {what} while it started.{described_tail(self.log, since_byte=log_start)}",
            remedy="Remove the cause that the log names, then run `undercroft up` again.",
            reason="POSTGRES_FAILED",
        )

    def _unreachable(self, postmaster: _Postmaster, problem: str) -> NotReady:
        return NotReady(
            f"A Postgres server (process {postmaster.process.pid}) runs on {self.data_dir} but cannot be used at "
            f"{LOOPBACK}:{postmaster.port}: {problem}. Either the loopback interface is down, or the server "
            "was started in another network namespace, or its password file was changed.",
            remedy="See to the loopback interface; else run `undercroft down` to stop it, then `undercroft up`.",
            reason="POSTGRES_UNREACHABLE",
        )

    @staticmethod
    def _connect(connection: ConnectionInfo, database: str) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host=connection.host,
            port=connection.port,
            user=connection.user,
            password=connection.password,
            dbname=database,
            connect_timeout=_CONNECT_LIMIT_S,
            application_name="undercroft appliance",
            autocommit=True,
        )

    def _ensure_database(self, connection: ConnectionInfo) -> None:
        with self._connect(connection, "postgres") as session:
            found = session.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
            if found is None:
                session.execute(f"CREATE DATABASE {DATABASE} TEMPLATE template0")


def _end(process: ProcessIdentity, fast_limit_s: float, immediate_limit_s: float) -> None:
    for number, limit_s in (
        (signal.SIGINT, fast_limit_s),
        (signal.SIGQUIT, immediate_limit_s),
        (signal.SIGKILL, immediate_limit_s),
    ):
        process.send(number)
        if process.wait(limit_s):
            return
    raise NotReady(
        f"The Postgres server (process {process.pid}) does not end, not even when killed: "
        "it probably waits for a disk or a network file system.",
        remedy="See to the storage, then run `undercroft down` again.",
        reason="POSTGRES_STUCK",
    )
