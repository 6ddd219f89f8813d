"""The one directory that holds all state of an appliance."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from services.appliance.process import ProcessIdentity, identify
from services.core.errors import Conflict, DataLoss, InvalidArgument, NotReady, PermissionDenied

FORMAT_VERSION = 1

_FOLDERS = ("postgres", "sidecars", "models", "wheels", "local", "run", "logs", "secrets")
_FORMAT_FILE = "format"
_LOCK_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Home:
    """The layout of a data directory; ``root`` is absolute."""

    root: Path

    @classmethod
    def locate(cls, path: Path | None = None, environment: Mapping[str, str] = os.environ) -> Home:
        """Return the directory that is named, or else configured, or else the user's default.

        The order is ``path``, ``$UNDERCROFT_HOME``, ``$XDG_DATA_HOME/undercroft``, ``~/.local/share/undercroft``.
        """
        if path is None:
            if named := environment.get("UNDERCROFT_HOME"):
                path = Path(named)
            elif (data_home := environment.get("XDG_DATA_HOME")) and Path(data_home).is_absolute():
                path = Path(data_home) / "undercroft"
            else:
                path = Path("~/.local/share/undercroft")
        # Links stay as they are: the user may want to move what is behind them.
        return cls(Path(os.path.abspath(path.expanduser())))

    @property
    def postgres(self) -> Path:
        """The database server: its cluster, password and port."""
        return self.root / "postgres"

    @property
    def sidecars(self) -> Path:
        """The shared volume of published index files."""
        return self.root / "sidecars"

    @property
    def models(self) -> Path:
        """Side-loaded model directories."""
        return self.root / "models"

    @property
    def wheels(self) -> Path:
        """Wheels and sdists of dependencies, which are read and never run."""
        return self.root / "wheels"

    @property
    def local(self) -> Path:
        """Local copies of sidecars that search serves from."""
        return self.root / "local"

    @property
    def run(self) -> Path:
        """What runs now: the lock and the record of the appliance."""
        return self.root / "run"

    @property
    def logs(self) -> Path:
        """One log per process."""
        return self.root / "logs"

    @property
    def secrets(self) -> Path:
        """Keys that the services make for themselves."""
        return self.root / "secrets"

    @property
    def record(self) -> Path:
        """The record of the running appliance."""
        return self.run / "appliance.json"

    def exists(self) -> bool:
        """Tell whether an appliance was ever set up here."""
        return (self.root / _FORMAT_FILE).is_file()

    def create(self) -> None:
        """Create what is missing, with mode 0700, and check that what exists is ours and of a format we know.

        Permissions of directories that exist are left as they are.

        Raises: InvalidArgument, PermissionDenied, NotReady (a later format), DataLoss.
        """
        try:
            self._make(self.root)
            self._check_owner()
            if not self.exists():
                self._check_unused()
                self._write_format()
            self.check_format()
            for folder in _FOLDERS:
                self._make(self.root / folder)
        except OSError as error:
            raise NotReady(
                f"The data directory {self.root} cannot be used: {error.strerror or error}.",
                remedy="Make it writable, or name another one with --home or UNDERCROFT_HOME.",
                reason="HOME_UNUSABLE",
            ) from error

    def check_format(self) -> None:
        """Refuse a data directory that a later release wrote."""
        text = (self.root / _FORMAT_FILE).read_text(encoding="utf-8", errors="replace").strip()
        try:
            version = int(text)
        except ValueError:
            raise DataLoss(
                f"The file {self.root / _FORMAT_FILE} should hold a format number and holds {text[:40]!r}.",
                remedy=f"Write {FORMAT_VERSION} into it if this release made the directory, or restore a backup.",
            ) from None
        if version > FORMAT_VERSION:
            raise NotReady(
                f"The data directory {self.root} has format {version}, written by a later release; "
                f"this release reads formats up to {FORMAT_VERSION}. Nothing was changed.",
                remedy="Use the release that wrote it, or name another directory with --home.",
                reason="FORMAT_TOO_NEW",
            )

    def supervisor(self) -> ProcessIdentity | None:
        """Return the live process that supervises this directory, or None."""
        role, identity = self._holder()
        return identity if role == "supervisor" else None

    @contextlib.contextmanager
    def lock(self, role: str, limit_s: float = 1.0) -> Iterator[int]:
        """Hold the directory: one supervisor at a time. The kernel releases the lock of a process that dies.

        ``role`` says what the holder is; "supervisor" is what ``supervisor()`` reports. Yields the descriptor of the
        lock, for ``holds``.

        Raises: Conflict after ``limit_s``, naming the holder.
        """
        descriptor = os.open(self.run / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + limit_s
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise self._held() from None
                    time.sleep(_LOCK_POLL_S)
            _write_holder(descriptor, role)
            try:
                yield descriptor
            finally:
                os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def holds(self, lock: int) -> bool:
        """Tell whether a lock that was taken still guards this directory: not once that is removed, moved or new."""
        try:
            return os.path.samestat(os.fstat(lock), os.stat(self.run / "lock"))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            # A disk that fails for a moment says nothing about the lock.
            return True

    def _holder(self) -> tuple[str, ProcessIdentity | None]:
        try:
            fields = json.loads((self.run / "lock").read_text(encoding="ascii"))
            identity = ProcessIdentity(int(fields["pid"]), int(fields["start_ticks"]), str(fields["boot_id"]))
            role = str(fields["role"])
        except (OSError, ValueError, KeyError, TypeError):
            return "", None
        return (role, identity) if identity.is_alive() else ("", None)

    def _held(self) -> Conflict:
        role, identity = self._holder()
        name = f"process {identity.pid} ({role})" if identity else "another process"
        return Conflict(
            f"The data directory {self.root} is held by {name}.",
            remedy="`undercroft status` shows it and `undercroft down` stops it.",
            reason="HOME_LOCKED",
        )

    def _check_owner(self) -> None:
        owner, user = self.root.stat().st_uid, os.geteuid()
        if owner != user:
            raise PermissionDenied(
                f"The data directory {self.root} belongs to user {owner}, and this is user {user}.",
                remedy="Run as its owner, or name another directory with --home or UNDERCROFT_HOME.",
            )

    def _check_unused(self) -> None:
        foreign = sorted(
            entry.name
            for entry in self.root.iterdir()
            if entry.name not in _FOLDERS and not entry.name.startswith(f".{_FORMAT_FILE}-")
        )
        if foreign:
            raise InvalidArgument(
                f"{self.root} is not a data directory of Undercroft and is not empty (it holds {foreign[0]!r}).",
                remedy="Name an empty or a new directory with --home or UNDERCROFT_HOME.",
            )

    def _write_format(self) -> None:
        temporary = self.root / f".{_FORMAT_FILE}-{os.getpid()}"
        temporary.write_text(f"{FORMAT_VERSION}\n", encoding="ascii")
        temporary.chmod(0o600)
        temporary.replace(self.root / _FORMAT_FILE)

    @staticmethod
    def _make(path: Path) -> None:
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        for folder in reversed(missing):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)


def _write_holder(descriptor: int, role: str) -> None:
    identity = identify(os.getpid())
    if identity is None:
        raise NotReady("/proc does not show this process.", remedy="Mount /proc and try again.")
    fields = {
        "role": role,
        "pid": identity.pid,
        "start_ticks": identity.start_ticks,
        "boot_id": identity.boot_id,
    }
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(fields).encode("ascii"), 0)
