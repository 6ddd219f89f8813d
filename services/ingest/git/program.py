"""The git program, run with no configuration but ours, no prompt, no hook, and no protocol that was not asked for."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final

from services.core.errors import InvalidArgument, NotFound, NotReady, Unavailable

_MAX_CAUSE_CHARS = 300
_MAX_SAID_BYTES = 64 << 20
_FETCHING: Final = "https:http:ssh:git:file"
# What git says when a server does not give a commit or name, or not without history: asking otherwise may help.
_REFUSED_REF = (
    "couldn't find remote ref",
    "not our ref",
    "unadvertised object",
    "does not support shallow",
    "shallow capabilities",
    "did not send all necessary objects",
)
# What git says when a repository or ref is not there, and when a server is not.
_ABSENT = ("couldn't find remote ref", "not found", "does not appear to be a git repository", "unknown revision")
_UNREACHABLE = (
    "could not resolve host",
    "couldn't connect",
    "failed to connect",
    "connection refused",
    "connection timed out",
    "timed out",
    "network is unreachable",
    "unable to connect",
    "no route to host",
    "the remote end hung up",
    "connection reset by peer",
    "early eof",
    "could not read from remote repository",
)


class Git:
    """One repository to read, or to fetch into. ``trusted`` are the folders whose owner may be another user."""

    def __init__(self, directory: Path, scratch: Path, trusted: Sequence[str], configuration: str) -> None:
        program = shutil.which("git")
        if program is None:
            raise NotReady(
                "The ingest service has no git program.",
                remedy="Install git where the service runs, or send an archive of the files instead.",
                reason="GIT_NOT_INSTALLED",
            )
        self._program = program
        self.directory = directory
        settings = scratch / "gitconfig"
        lines = ["[core]", "\thooksPath = /dev/null", '[protocol "ext"]', "\tallow = never", "[safe]"]
        lines += [f"\tdirectory = {_quoted(folder)}" for folder in trusted]
        # A redirection may lead to a host that was not configured; alternates of a server are not followed then either.
        lines += ["[http]", "\tfollowRedirects = false"]
        # What is fetched again and again is packed from time to time; not in the background, which outlives the run.
        lines += ["[gc]", "\tautoDetach = false", "\tautoPackLimit = 20", "\tpruneExpire = now"]
        lines += ["[maintenance]", "\tautoDetach = false"]
        if configuration:
            lines += ["[include]", f"\tpath = {_quoted(configuration)}"]
        settings.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(scratch),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": str(settings),
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "SSH_ASKPASS": "/bin/false",
            "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
        }
        if "SSL_CERT_FILE" in os.environ:
            self._environment["GIT_SSL_CAINFO"] = os.environ["SSL_CERT_FILE"]

    def read(self, *arguments: str) -> bytes:
        """Run a command that reads the repository; it can fetch nothing, a partial clone's missing objects neither."""
        return self._run(["--git-dir", str(self.directory), *arguments], protocols="")

    def fetch(self, *arguments: str) -> bytes:
        """Run a command that may reach the repository that it names."""
        return self._run(["--git-dir", str(self.directory), *arguments], protocols=_FETCHING)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command that reads the repository and talks over its pipes."""
        return subprocess.Popen(
            [self._program, "--git-dir", str(self.directory), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**self._environment, "GIT_ALLOW_PROTOCOL": ""},
            cwd="/",
        )

    def _run(self, arguments: Sequence[str], *, protocols: str) -> bytes:
        with (
            subprocess.Popen(
                [self._program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**self._environment, "GIT_ALLOW_PROTOCOL": protocols},
                cwd="/",
            ) as process,
            ThreadPoolExecutor(1) as beside,
        ):
            complaints = beside.submit(_bounded, process, process.stderr)
            answer = _bounded(process, process.stdout)
            said = complaints.result()
        if process.returncode:
            raise GitFailed(said.decode("utf-8", "replace"))
        return answer


def _bounded(process: subprocess.Popen[bytes], stream: IO[bytes] | None) -> bytes:
    """Read what a command says to its end; a server decides how much that is, so one that says too much is ended."""
    assert stream is not None
    said = stream.read(_MAX_SAID_BYTES)
    if stream.read(1):
        process.kill()
        while stream.read(_MAX_SAID_BYTES):
            pass
    return said


class GitFailed(Exception):
    """A git command ended with an error; the message is what it said."""

    def __init__(self, said: str) -> None:
        lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("hint:")]
        self.said_anything = bool(lines)
        self.cause = " ".join(lines)[-_MAX_CAUSE_CHARS:] or "it said nothing"
        super().__init__(self.cause)

    @property
    def is_refused_ref(self) -> bool:
        """Tell whether a server has answered that it does not give what was named."""
        return any(mark in self.cause.lower() for mark in _REFUSED_REF)


def explained(error: GitFailed, what: str, *, is_remote: bool) -> Exception:
    """Return what a failure of git means to a caller."""
    said = error.cause.lower()
    if os.strerror(errno.ENOSPC).lower() in said:
        return NotReady(
            f"{what} can't be fetched: {error.cause}",
            remedy="Free space on the service's local disk, then index again; what is indexed stays.",
            reason="LOCAL_DISK_UNWRITABLE",
        )
    if any(mark in said for mark in _ABSENT):
        return NotFound(
            f"{what} is not there: {error.cause}",
            remedy="Check URL and revision, and the rights of the service's git credentials.",
            reason="GIT_NOT_FOUND",
        )
    if is_remote and any(mark in said for mark in _UNREACHABLE):
        return Unavailable(
            f"{what} can't be reached: {error.cause}",
            remedy="Check the server and the network policy, then index again; what is indexed stays.",
            reason="GIT_UNREACHABLE",
        )
    return InvalidArgument(
        f"git can't read {what}: {error.cause}",
        remedy="Check the URL (redirections are not followed), the repository with `git fsck`, and the credentials.",
        reason="GIT_FAILED",
    )


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'
