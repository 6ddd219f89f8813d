"""Containers of one run, restricted as far as a cluster would restrict them; all of them go in the end."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from ops.images import sinks
from ops.images.sinks import Sink
from services.core.errors import DataLoss, NotReady

_RESTRICTED = (
    "--read-only",
    # Podman would mount writable folders besides.
    "--read-only-tmpfs=false",
    "--tmpfs=/tmp:rw,mode=1777,size=512m,noexec,nosuid,nodev",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    "--pull=never",
)


@dataclass
class Containers:
    """Containers in the namespace of a sink, each with a user id of its own that no system knows, and group 0."""

    sink: Sink
    reference: Callable[[str], str]
    name: str = field(default_factory=lambda: f"undercroft-check-{os.getpid()}")
    names: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)

    def __enter__(self) -> Containers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for name in reversed(self.names):
            podman("rm", "--force", "--time=5", "--ignore", name)
        for name in self.volumes:
            podman("volume", "rm", "--force", name)

    def volume(self, name: str) -> str:
        """Make a volume; returns its name."""
        volume = podman("volume", "create", f"{self.name}-{name}").strip()
        self.volumes.append(volume)
        return volume

    def start(self, image: str, *options: str) -> str:
        """Start a container that stays; returns its name."""
        name = self._new_name(image)
        podman("run", "--detach", f"--name={name}", *self._options(), *options, self.reference(image))
        return name

    def run(self, image: str, *options: str, arguments: Sequence[str] = ()) -> str:
        """Run a container to its end; returns what it wrote."""
        name = self._new_name(image)
        return podman("run", f"--name={name}", *self._options(), *options, self.reference(image), *arguments)

    def kill_and_start(self, name: str) -> None:
        """Kill a container, whatever it is at, and start it again on what it left."""
        podman("kill", "--signal=KILL", name)
        podman("start", name)

    def inside(self, name: str, code: str) -> str:
        """Run Python in a container that stays; returns what it wrote."""
        return podman("exec", name, "/usr/bin/python3", "-c", code)

    def await_success(self, name: str, what: str, limit_s: float, *command: str) -> None:
        """Wait until a command in a container succeeds. Raises ``DataLoss`` with its log where that does not."""
        end = time.monotonic() + limit_s
        while subprocess.run(["podman", "exec", name, *command], check=False, capture_output=True).returncode:
            state = podman("inspect", "--format={{.State.Status}}", name).strip()
            if state != "running" or time.monotonic() > end:
                raise DataLoss(f"{what} is {state}, and does not serve.\n{self.log(name)[-3000:]}")
            time.sleep(0.3)

    def log(self, name: str) -> str:
        """Return what a container has logged."""
        done = subprocess.run(["podman", "logs", name], check=False, capture_output=True, text=True)
        return done.stdout + done.stderr

    def _new_name(self, image: str) -> str:
        self.names.append(f"{self.name}-{image}-{len(self.names)}")
        return self.names[-1]

    def _options(self) -> tuple[str, ...]:
        user = random.randint(100_000, 2_000_000_000)
        return (f"--network=ns:{self.sink.path}", f"--dns={sinks.RESOLVER}", f"--user={user}:0", *_RESTRICTED)


def podman(*command: str) -> str:
    """Run podman; returns what it wrote. Raises ``NotReady`` with what it said where it fails."""
    done = subprocess.run(["podman", *command], check=False, capture_output=True, text=True)
    if done.returncode:
        raise NotReady(
            f"podman {command[0]} failed: {(done.stderr or done.stdout).strip()[-3000:]}", reason="PODMAN_FAILED"
        )
    return done.stdout
