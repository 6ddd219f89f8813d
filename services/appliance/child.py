"""One supervised service: started, watched, started again, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.appliance.account import launcher
from services.appliance.logs import described_tail, size
from services.appliance.process import ProcessIdentity, identify
from services.appliance.record import Health, ServiceRecord
from services.core.errors import NotReady

_log = logging.getLogger(__name__)

_CHANNEL_OPTIONS = (
    # A proxy of the environment must not see calls to loopback.
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
_START_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """A service to supervise; ``command`` reads its settings from the environment."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """How patient the supervisor is."""

    start_s: float = 120.0
    drain_s: float = 30.0
    health_interval_s: float = 2.0
    health_timeout_s: float = 2.0
    backoff_first_s: float = 0.5
    backoff_max_s: float = 10.0
    stable_after_s: float = 5.0
    log_max_bytes: int = 10 * 1024 * 1024
    log_keep: int = 3


class SupervisedService:
    """A child process that serves grpc.health.v1 on ``target`` of loopback.

    ``on_change`` is called whenever ``record`` has changed.
    """

    def __init__(
        self,
        spec: ServiceSpec,
        *,
        target: str,
        metrics_target: str,
        environment: Mapping[str, str],
        directory: Path,
        log: Path,
        limits: Limits,
        on_change: Callable[[], None],
    ) -> None:
        self.spec = spec
        self.target = target
        self.metrics_target = metrics_target
        self.log = log
        self._environment = {
            **environment,
            "UNDERCROFT_LISTEN": target,
            "UNDERCROFT_METRICS_LISTEN": metrics_target,
        }
        self._directory = directory
        self._limits = limits
        self._on_change = on_change
        self._process: asyncio.subprocess.Process | None = None
        self._identity: ProcessIdentity | None = None
        self._health = Health.STOPPED
        self._restarts = 0
        self._backoff_s = limits.backoff_first_s
        self._started_s = 0.0

    @property
    def record(self) -> ServiceRecord:
        """The service as it was last seen."""
        return ServiceRecord(
            self.spec.name, self.target, self.metrics_target, self._health, self._restarts, self._identity
        )

    async def start(self) -> None:
        """Start the process and wait until it serves.

        Raises: NotReady with the last lines of its log.
        """
        log_start = size(self.log)
        process = await self._spawn(Health.STARTING)
        async with self._health_stub() as stub:
            while time.monotonic() - self._started_s < self._limits.start_s:
                if process.returncode is not None:
                    self._gone(Health.STOPPED)
                    raise self._failure(f"ended with code {process.returncode} while it started", log_start)
                if await self._check(stub) is Health.SERVING:
                    self._set(Health.SERVING)
                    return
                await asyncio.sleep(_START_POLL_S)
        raise self._failure(f"did not serve within {self._limits.start_s:.0f} s", log_start)

    async def keep(self) -> None:
        """Watch the service and start it again whenever it ends, until cancelled."""
        async with self._health_stub() as stub:
            while True:
                process = self._process
                if process is None or await _ended(process, self._limits.health_interval_s):
                    await self._restart(process.returncode if process else None)
                    continue
                health = await self._check(stub)
                # A restarted service that does not serve yet is starting, not broken.
                young = time.monotonic() - self._started_s < self._limits.start_s
                if health is not Health.SERVING and self._health in {Health.STARTING, Health.RESTARTING} and young:
                    continue
                self._set(health)

    async def stop(self) -> None:
        """Ask the service to drain, and end it and what it started when it has not after the limit."""
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            if not await _ended(process, self._limits.drain_s):
                _log.warning("%s did not drain within %.0f s and is killed", self.spec.name, self._limits.drain_s)
                self._end_group(process.pid)
                await process.wait()
        self._end_group(process.pid)
        self._gone(Health.STOPPED)

    async def restart(self, environment: Mapping[str, str]) -> None:
        """Stop the service, so that ``keep`` starts it again with changed settings."""
        self._environment |= environment
        self._backoff_s = self._limits.backoff_first_s
        await self.stop()

    async def _restart(self, code: int | None) -> None:
        if self._identity is not None:
            self._end_group(self._identity.pid)
        if time.monotonic() - self._started_s > self._limits.stable_after_s:
            self._backoff_s = self._limits.backoff_first_s
        self._gone(Health.RESTARTING)
        _log.warning("%s ended with code %s; it starts again in %.1f s", self.spec.name, code, self._backoff_s)
        await asyncio.sleep(self._backoff_s)
        self._backoff_s = min(self._backoff_s * 2, self._limits.backoff_max_s)
        self._restarts += 1
        try:
            await self._spawn(Health.RESTARTING)
        except OSError as error:
            _log.error("%s cannot be started: %s", self.spec.name, error)

    async def _spawn(self, health: Health) -> asyncio.subprocess.Process:
        # The kernel signals the death of the thread that started a child: this must be the main thread.
        command = [
            *launcher(),
            f"--die-with-parent={os.getpid()}:{signal.SIGTERM.value}",
            "--",
            *self.spec.command,
        ]
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=self._environment,
                cwd=self._directory,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                start_new_session=True,
            )
        finally:
            os.close(descriptor)
        self._process = process
        self._identity = identify(process.pid)
        self._started_s = time.monotonic()
        self._set(health, changed=True)
        return process

    @contextlib.asynccontextmanager
    async def _health_stub(self) -> AsyncIterator[health_pb2_grpc.HealthAsyncStub]:
        async with grpc.aio.insecure_channel(self.target, options=_CHANNEL_OPTIONS) as channel:
            yield health_pb2_grpc.HealthStub(channel)

    async def _check(self, stub: health_pb2_grpc.HealthAsyncStub) -> Health:
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=self._limits.health_timeout_s)
        except grpc.aio.AioRpcError:
            return Health.UNREACHABLE
        serving = answer.status == health_pb2.HealthCheckResponse.SERVING
        return Health.SERVING if serving else Health.NOT_SERVING

    def _set(self, health: Health, *, changed: bool = False) -> None:
        if changed or health is not self._health:
            self._health = health
            self._on_change()

    def _gone(self, health: Health) -> None:
        self._process, self._identity = None, None
        self._set(health, changed=True)

    def _end_group(self, pid: int) -> None:
        # The service leads its group: workers that it started and left behind end with it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)

    def _failure(self, what: str, log_start: int) -> NotReady:
        return NotReady(
            f"The service {self.spec.name} {what}.{described_tail(self.log, since_byte=log_start)}",
            remedy="Remove the cause that the log names, then run `undercroft up` again.",
            reason="SERVICE_FAILED",
            metadata={"service": self.spec.name},
        )


async def _ended(process: asyncio.subprocess.Process, limit_s: float) -> bool:
    try:
        await asyncio.wait_for(process.wait(), limit_s)
    except TimeoutError:
        return False
    return True
