"""Workers under supervision: a file that hangs, crashes or eats memory costs itself and nothing else.

Processes are started by exec from a clean interpreter, never by a plain fork: the service that owns the pool holds gRPC
channels, and a fork of those can deadlock (grpc/grpc#22624). They start when the first file comes, stay warm between
runs, and are replaced after a number of files.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import IO, Self

from services.core.errors import NotReady, Unavailable
from services.ingest.extraction.worker import (
    HEADER,
    WALL_FACTOR,
    Extracted,
    Job,
    Outcome,
    Ready,
    WorkerSettings,
    decode,
    encode,
)
from services.ingest.skips import Skipped, SkipReason

_START_TIMEOUT_S = 60.0
_STOP_LOOK_S = 0.5
# What a file is skipped for that may be plain text all the same.
_BEYOND_LIMITS = frozenset(
    {
        SkipReason.EXTRACTION_TIMEOUT,
        SkipReason.EXTRACTION_CRASHED,
        SkipReason.EXTRACTION_MEMORY,
        SkipReason.EXTRACTION_FAILED,
    }
)
_START = "from services.ingest.extraction.worker import main; main()"
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "SYSTEMROOT")
_FORCED = {
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "MALLOC_ARENA_MAX": "2",  # each arena reserves address space, which the memory limit counts
}


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """``files_per_worker`` bounds what a leak in a parser can grow to."""

    worker: WorkerSettings
    workers: int = 2
    files_per_worker: int = 2000


class ExtractionPool:
    """A long-lived set of extraction workers, to be used from any number of threads."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self._slots = threading.BoundedSemaphore(settings.workers)
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def warm(self) -> None:
        """Start one worker now, so that the first file does not wait for it. Raises ``NotReady``."""
        with self._slots:
            self._put(self._take())

    def run(self, job: Job, stop: threading.Event | None = None) -> Outcome:
        """Extract one file; blocks while all workers are busy.

        A file that its extractor can't take within the limits is taken as plain text. Raises ``NotReady`` if workers
        cannot start, ``Unavailable`` if the pool is closed or ``stop`` is set.
        """
        with self._slots:
            outcome = self._outcome(job, stop)
            if isinstance(outcome, Skipped) and outcome.reason in _BEYOND_LIMITS:
                plain = self._outcome(replace(job, plain_because=outcome.detail), stop)
                return outcome if isinstance(plain, Skipped) else plain
            return outcome

    def _outcome(self, job: Job, stop: threading.Event | None) -> Outcome:
        worker = self._take()
        outcome = self._attempt(worker, job, stop)
        if outcome is None:
            # The state left by earlier files may be to blame: a fresh process tells.
            fresh = worker.files_done == 0
            outcome = _crashed(worker, job) if fresh else None
        if outcome is None:
            worker = self._take(fresh=True)
            outcome = self._attempt(worker, job, stop) or _crashed(worker, job)
        return outcome

    def extract(self, jobs: Iterable[Job], stop: threading.Event | None = None) -> Iterator[Outcome]:
        """Extract many files; outcomes come in the order of the jobs, which are drawn only as fast as they are done.

        Raises as ``run``; soon after ``stop`` is set.
        """
        pending: deque[Future[Outcome]] = deque()
        executor = ThreadPoolExecutor(self._settings.workers, thread_name_prefix="extraction")
        try:
            for job in jobs:
                pending.append(executor.submit(self.run, job, stop))
                if len(pending) >= 4 * self._settings.workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            executor.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        """Kill every worker. Files in work are reported as crashed."""
        with self._lock:
            self._closed = True
            workers = list(self._all)
            self._idle.clear()
        for worker in workers:
            self._discard(worker)

    def _attempt(self, worker: _Worker, job: Job, stop: threading.Event | None) -> Outcome | None:
        """Run a job on a worker; None says that the worker died of it."""
        timeout_s = self._settings.worker.file_timeout_s
        try:
            answer = worker.ask(job, timeout_s * WALL_FACTOR, stop)
        except TimeoutError:
            self._discard(worker)
            return Skipped(job.path, SkipReason.EXTRACTION_TIMEOUT, f"took more than {timeout_s * WALL_FACTOR:g} s")
        except _WorkerDied:
            self._discard(worker)
            if worker.exit_code == -signal.SIGPROF:
                detail = f"took more than {timeout_s:g} s of processor time"
                return Skipped(job.path, SkipReason.EXTRACTION_TIMEOUT, detail)
            return None
        except BaseException:
            self._discard(worker)
            raise
        if not isinstance(answer, Extracted | Skipped) or answer.path != job.path:
            self._discard(worker)
            return Skipped(job.path, SkipReason.EXTRACTION_CRASHED, "the worker answered nonsense")
        worker.files_done += 1
        spent = isinstance(answer, Skipped) and answer.reason is SkipReason.EXTRACTION_MEMORY
        if spent or worker.files_done >= self._settings.files_per_worker:
            self._discard(worker)
        else:
            self._put(worker)
        return answer

    def _take(self, *, fresh: bool = False) -> _Worker:
        while True:
            with self._lock:
                if self._closed:
                    raise Unavailable("The extraction pool is closed.", remedy="The service is stopping; call again.")
                worker = self._idle.pop() if self._idle and not fresh else None
            if worker is None:
                break
            if worker.alive:
                return worker
            self._discard(worker)  # killed from outside while it was idle
        worker = _Worker(self._settings.worker)
        with self._lock:
            self._all.add(worker)
        try:
            worker.await_ready(_START_TIMEOUT_S)
        except BaseException:
            self._discard(worker)
            raise
        return worker

    def _put(self, worker: _Worker) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(worker)
                return
        self._discard(worker)

    def _discard(self, worker: _Worker) -> None:
        with self._lock:
            self._all.discard(worker)
        worker.kill()


class _WorkerDied(Exception):
    pass


class _Worker:
    """One process and its two pipes."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.files_done = 0
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by kill()
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**environment, **_FORCED, "PYTHONPATH": path},
            cwd="/",
            start_new_session=True,  # an interrupt from the terminal is the parent's affair
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin
        self._stdout = self._process.stdout
        os.set_blocking(self._stdin.fileno(), False)
        os.set_blocking(self._stdout.fileno(), False)
        self._killed = threading.Lock()
        self.exit_code: int | None = None
        self.exit_detail = ""
        self._outbox = encode(settings)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def await_ready(self, timeout_s: float) -> None:
        """Send the settings and wait for the first message."""
        try:
            answer = self._exchange(self._outbox, timeout_s)
        except (TimeoutError, _WorkerDied) as error:
            self.kill()
            raise NotReady(
                f"An extraction worker does not start: {self.exit_detail or 'no answer in time'}.",
                remedy="Look at the memory limit of the workers and at the installation of the ingest extra.",
                reason="EXTRACTION_WORKER_UNSTARTABLE",
            ) from error
        if not isinstance(answer, Ready) or answer.problem:
            problem = answer.problem if isinstance(answer, Ready) else "an unknown first message"
            remedy = answer.remedy if isinstance(answer, Ready) else ""
            raise NotReady(problem, remedy=remedy, reason="EXTRACTION_WORKER_UNSTARTABLE")

    def ask(self, job: Job, timeout_s: float, stop: threading.Event | None) -> object:
        """Send a job and wait for its answer. Raises TimeoutError, _WorkerDied, or Unavailable if stopped."""
        return self._exchange(encode(job), timeout_s, stop)

    def kill(self) -> None:
        """End the process, whatever it does, and keep why it had ended if it had."""
        with self._killed:
            if self._stderr.closed:
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.2 if self._at_end() else 0)
            code = self._process.poll()
            if code is None:
                self._process.kill()
                self._process.wait()
            elif not self.exit_detail:
                self.exit_code = code
                self.exit_detail = f"signal {-code}" if code < 0 else f"exit status {code}"
                tail = self._last_words()
                if tail:
                    self.exit_detail += f" ({tail})"
            self._stdin.close()
            self._stdout.close()
            self._stderr.close()

    def _at_end(self) -> bool:
        """Whether the process has closed its end, and so is about to be gone."""
        return bool(_ready(self._stdout, None, 0)[0])

    def _last_words(self) -> str:
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - 4096))
        words = [line.strip() for line in self._stderr.read().decode("utf-8", "replace").splitlines() if line.strip()]
        fatal = [line for line in words if line.startswith("Fatal Python error") or "Error" in line.split(":")[0]]
        return (fatal or words or [""])[-1][:200]

    def _exchange(self, message: bytes, timeout_s: float, stop: threading.Event | None = None) -> object:
        deadline = time.monotonic() + timeout_s
        outbox = memoryview(message)
        inbox = bytearray()
        wanted = HEADER.size
        try:
            while True:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError
                if stop is not None and stop.is_set():
                    raise Unavailable("Extraction was stopped.", remedy="Index again.")
                readable, writable = _ready(self._stdout, self._stdin if outbox else None, min(left_s, _STOP_LOOK_S))
                if writable:
                    outbox = outbox[os.write(self._stdin.fileno(), outbox[: 1 << 20]) :]
                if not readable:
                    continue
                block = os.read(self._stdout.fileno(), 1 << 20)
                if not block:
                    raise _WorkerDied
                inbox += block
                if wanted == HEADER.size and len(inbox) >= HEADER.size:
                    wanted += HEADER.unpack_from(inbox)[0]
                if wanted > HEADER.size and len(inbox) >= wanted:
                    return decode(bytes(inbox[HEADER.size : wanted]))
        except (BrokenPipeError, ConnectionResetError, ValueError) as error:  # ValueError: closed by close()
            raise _WorkerDied from error


def _ready(source: IO[bytes], sink: IO[bytes] | None, timeout_s: float) -> tuple[bool, bool]:
    """Wait until one of two pipes can be read, or written; ``select`` would refuse descriptors from 1,024 on."""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    if sink is not None:
        poll.register(sink, select.POLLOUT)
    ready = {descriptor for descriptor, _ in poll.poll(timeout_s * 1000)}
    return source.fileno() in ready, sink is not None and sink.fileno() in ready


def _crashed(worker: _Worker, job: Job) -> Skipped:
    return Skipped(job.path, SkipReason.EXTRACTION_CRASHED, f"the worker died: {worker.exit_detail or 'killed'}")
