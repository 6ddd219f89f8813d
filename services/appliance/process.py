"""Processes that are known by more than their pid."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_POLL_S = 0.02
# Field 22 of /proc/PID/stat is the start time; the fields after the command's name begin with field 3.
_STATE_FIELD, _START_TICKS_FIELD = 0, 19

# Started and meant to outlive us: held here so that they can be reaped while we live.
_detached: dict[int, subprocess.Popen[bytes]] = {}


@atexit.register
def _reap_all() -> None:
    for process in _detached.values():
        process.poll()


@cache
def boot_id() -> str:
    """Return the id of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command's name stands in parentheses and may hold spaces and parentheses itself.
    return text.rpartition(")")[2].split()


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process for good: a pid that was used again has other start ticks, or another boot."""

    pid: int
    start_ticks: int
    boot_id: str

    def is_alive(self) -> bool:
        """Tell whether exactly this process still runs; a zombie does not."""
        if self.boot_id != boot_id():
            return False
        reap(self.pid)
        fields = _stat(self.pid)
        return (
            fields is not None
            and fields[_STATE_FIELD] not in "ZX"
            and int(fields[_START_TICKS_FIELD]) == (self.start_ticks)
        )

    def uptime_s(self) -> float:
        """Return the seconds since the process started."""
        with open("/proc/uptime", encoding="ascii") as file:
            machine_s = float(file.read().split()[0])
        return max(0.0, machine_s - self.start_ticks / os.sysconf("SC_CLK_TCK"))

    def send(self, number: signal.Signals) -> None:
        """Send a signal if the process still lives."""
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def send_group(self, number: signal.Signals) -> None:
        """Send a signal to the process group that this process leads."""
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def wait(self, limit_s: float) -> bool:
        """Wait until the process is gone; False when it still lives after ``limit_s``."""
        deadline = time.monotonic() + limit_s
        while self.is_alive():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of the live process ``pid``, or None."""
    reap(pid)
    fields = _stat(pid)
    if fields is None or fields[_STATE_FIELD] in "ZX":
        return None
    return ProcessIdentity(pid, int(fields[_START_TICKS_FIELD]), boot_id())


def command_line(pid: int) -> tuple[str, ...]:
    """Return the arguments of a process, empty when it is gone."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(os.fsdecode(part) for part in raw.split(b"\0")[:-1])


def spawn_detached(command: Sequence[str], *, environment: Mapping[str, str], directory: Path, log: Path) -> int:
    """Start a process in a session of its own that outlives this one; its output is appended to ``log``."""
    # O_APPEND, so that the log can be cut to nothing while the process writes.
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    _detached[process.pid] = process
    return process.pid


def reap(pid: int) -> int | None:
    """Collect a process that ``spawn_detached`` started here: its exit code, None when it runs or is not ours."""
    process = _detached.get(pid)
    return None if process is None else process.poll()
