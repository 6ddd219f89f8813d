"""The service's side of the helper: a job is given to a new process, and that is killed when the run is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from services.core import errors
from services.core.errors import InvalidArgument, NotReady, Unavailable, UndercroftError
from services.ingest.disk import ensure_room
from services.ingest.git.jobs import CheckedOut, Failure, Job, decode_answer, encode_job
from services.ingest.git.locations import Location, LocationKind, locate
from services.ingest.git.tree import Limits

_START = "from services.ingest.git.worker import main; main()"
_INHERITED = ("PATH", "LANG", "SSL_CERT_FILE", "SSH_AUTH_SOCK", "TMPDIR")
_POLL_S = 0.5
_FIRST_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class GitSettings:
    """``hosts`` may be reached; ``mirrors`` is local disk for what has to be fetched."""

    hosts: tuple[str, ...]
    mirrors: Path
    configuration: Path | None
    timeout_s: float
    limits: Limits
    # Folders of the appliance's own state, resolved: what others have fetched is there.
    own: tuple[Path, ...]


class Checkouts:
    """Brings files of repositories to where a run can read them."""

    def __init__(self, settings: GitSettings) -> None:
        self._settings = settings

    def locate(self, url: str) -> Location:
        """Tell what a URL or path is; raises as ``locations.locate``, and for what is the appliance's own."""
        location = locate(url, self._settings.hosts)
        path = Path(location.url)
        if location.kind is not LocationKind.URL and any(path.is_relative_to(own) for own in self._settings.own):
            raise InvalidArgument(
                f"{url!r} lies in the appliance's own data directory.", remedy="Name a repository of yours."
            )
        return location

    async def check_out(
        self,
        source_id: int,
        url: str,
        revision: str,
        into: Path,
        *,
        known_commit: str,
        renew: bool,
        on_wait: Callable[[], Awaitable[None]],
    ) -> CheckedOut:
        """Write the files of a commit into an empty folder, unless it is the known one.

        ``on_wait`` is called while git works, and raises to stop it. Raises our errors; Unavailable when it takes too
        long.
        """
        location = await asyncio.to_thread(self.locate, url)
        mirror = await asyncio.to_thread(self._mirror, source_id)
        limits = self._settings.limits
        job = Job(
            kind=location.kind,
            url=location.url,
            revision=revision,
            known_commit=known_commit,
            renew=renew,
            mirror=str(mirror),
            into=str(into),
            configuration=str(self._settings.configuration or ""),
            max_file_bytes=limits.caps.file_bytes,
            max_document_bytes=limits.caps.document_bytes,
            max_total_bytes=limits.max_total_bytes,
            max_files=limits.max_files,
        )
        try:
            return await self._run(job, on_wait)
        finally:
            if location.kind is LocationKind.BUNDLE:
                # It is fetched whole each time: nothing of it is worth keeping.
                await asyncio.to_thread(shutil.rmtree, mirror, ignore_errors=True)

    def _mirror(self, source_id: int) -> Path:
        """Return where what is fetched for a source is kept. Nobody outside can name it: a repository of somebody
        else may point at objects of another one, in more ways than could be refused."""
        known = self._mirrors().get(source_id)
        return known or self._settings.mirrors / f"{source_id}-{secrets.token_hex(16)}"

    def _mirrors(self) -> dict[int, Path]:
        try:
            entries = list(self._settings.mirrors.iterdir())
        except FileNotFoundError:
            return {}
        return {int(number): one for one in entries if (number := one.name.partition("-")[0]).isdigit()}

    def fetched(self) -> set[int]:
        """Return the ids of the sources that local disk has something of."""
        return set(self._mirrors())

    def forget(self, source_ids: Collection[int]) -> None:
        """Remove what was fetched for sources."""
        for source_id, mirror in self._mirrors().items():
            if source_id in source_ids:
                shutil.rmtree(mirror, ignore_errors=True)

    async def _run(self, job: Job, on_wait: Callable[[], Awaitable[None]]) -> CheckedOut:
        scratch = Path(job.into).parent
        with tempfile.TemporaryFile(dir=scratch) as told, tempfile.TemporaryFile(dir=scratch) as said:
            told.write(encode_job(job))
            told.seek(0)
            process = await asyncio.to_thread(_start, told.fileno(), said.fileno())
            try:
                await self._wait(process, job, on_wait)
            finally:
                await asyncio.to_thread(_kill, process)
            said.seek(0)
            try:
                answer = decode_answer(said.read())
            except (ValueError, TypeError, KeyError) as error:
                raise NotReady(
                    f"The helper that runs git ended with status {process.returncode} and no answer.",
                    remedy="Index again; if it stays so, see the log of the ingest service.",
                    reason="GIT_HELPER_DIED",
                ) from error
        if answer.failed is not None:
            raise _error(answer.failed)
        assert answer.done is not None
        return answer.done

    async def _wait(self, process: subprocess.Popen[bytes], job: Job, on_wait: Callable[[], Awaitable[None]]) -> None:
        end = time.monotonic() + self._settings.timeout_s
        poll_s = _FIRST_POLL_S
        while process.poll() is None:
            if time.monotonic() > end:
                raise Unavailable(
                    f"git did not bring {job.url} within {self._settings.timeout_s:.0f} s.",
                    remedy="Check the server, or raise UNDERCROFT_GIT_TIMEOUT_S; what is indexed stays.",
                    reason="GIT_TIMEOUT",
                )
            await asyncio.sleep(poll_s)
            if poll_s >= _POLL_S:
                await asyncio.to_thread(self._refuse_full_disk, job.url)
                await on_wait()
            poll_s = min(poll_s * 1.5, _POLL_S)

    def _refuse_full_disk(self, url: str) -> None:
        """Stop git before the disk is full."""
        try:
            ensure_room(self._settings.mirrors, 0)
        except FileNotFoundError:
            return
        except OSError as error:
            raise NotReady(
                f"{url} can't be fetched: {error.strerror} in {self._settings.mirrors}.",
                remedy="Free space there, then index again; what is indexed stays.",
                reason="LOCAL_DISK_UNWRITABLE",
            ) from error


def _start(told: int, said: int) -> subprocess.Popen[bytes]:
    # CPython starts it by vfork: no handler of a library that hooks into fork runs.
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _START],
        stdin=told,
        stdout=said,
        env={**environment, "PYTHONPATH": path},
        cwd="/",
        start_new_session=True,
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the helper and what git has started; all of it is in a process group of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _error(failure: Failure) -> UndercroftError:
    kind = getattr(errors, failure.kind, UndercroftError)
    made: UndercroftError = kind(failure.message, remedy=failure.remedy, reason=failure.reason)
    return made
