"""The helper that runs git: one job on its standard input, one answer on its standard output.

It is a process of its own because git must not be started from one that holds channels, and so that all of it, git
and what git starts, can be killed at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from services.core.errors import NotFound, NotReady, UndercroftError
from services.ingest.discovery import SizeCaps
from services.ingest.git.jobs import Answer, CheckedOut, Failure, Job, decode_job, encode_answer
from services.ingest.git.locations import LocationKind
from services.ingest.git.program import Git, GitFailed, explained
from services.ingest.git.tree import Limits, TreeExport

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_FETCHED = "refs/undercroft/fetched"
_FETCH_OPTIONS = ("--quiet", "--force", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")


def check_out(job: Job) -> CheckedOut:
    """Do a job. Raises our errors; GitFailed for what git says beside them."""
    # Beside the files: what a killed helper leaves goes with the run's own folder.
    with tempfile.TemporaryDirectory(prefix="git-", dir=Path(job.into).parent) as scratch:
        is_mounted = job.kind == LocationKind.REPOSITORY
        directory = _git_directory(Path(job.url)) if is_mounted else Path(job.mirror)
        git = Git(directory, Path(scratch), _trusted(job, directory), job.configuration)
        warnings: list[str] = []
        if is_mounted:
            commit = _resolved(git, job.revision)
            if git.read("rev-parse", "--is-shallow-repository").strip() == b"true":
                warnings.append(f"{job.url} is a shallow clone: its history is incomplete")
        else:
            # What a server has may be known without fetching it.
            commit = _advertised(git, job)
            if commit != job.known_commit or job.renew:
                commit = _fetched(git, job, commit)
        if commit == job.known_commit and not job.renew:
            return CheckedOut(commit, is_known=True, warnings=tuple(warnings))
        export = TreeExport(
            git,
            Path(job.into),
            Limits(SizeCaps(job.max_file_bytes, job.max_document_bytes), job.max_total_bytes, job.max_files),
        )
        export.write(commit)
        return CheckedOut(commit, False, export.files, export.skipped, tuple(warnings))


def _git_directory(path: Path) -> Path:
    return path / ".git" if (path / ".git").exists() else path


def _trusted(job: Job, directory: Path) -> list[str]:
    """Return the folders that git may read although another user owns them: those of the mount, and no others."""
    if job.kind == LocationKind.URL:
        return []
    return [job.url, str(directory)]


def _resolved(git: Git, revision: str) -> str:
    """Return the commit that a name stands for in a repository: a branch before a tag before an id."""
    names = (
        [f"refs/heads/{revision}", f"refs/tags/{revision}", f"refs/remotes/origin/{revision}"] if revision else ["HEAD"]
    )
    if _COMMIT.fullmatch(revision):
        names.append(revision)
    for name in names:
        try:
            return _commit(git, name)
        except GitFailed as error:
            if error.said_anything:
                # A name that is not there is told by silence.
                raise
    raise _no_revision(revision)


def _advertised(git: Git, job: Job) -> str:
    """Return the commit of a name as a server or bundle tells it; an id that is asked for by itself."""
    _ensure_mirror(git)
    lines = git.fetch("ls-remote", "--end-of-options", job.url).decode("utf-8", "replace").splitlines()
    refs = {name: oid for oid, _, name in (line.partition("\t") for line in lines)}
    if not job.revision:
        wanted = ["HEAD"]
    else:
        tag = f"refs/tags/{job.revision}"
        # An annotated tag is followed by the commit that it marks.
        wanted = [f"refs/heads/{job.revision}", f"{tag}^{{}}", tag]
    for name in wanted:
        if name in refs:
            return refs[name]
    if _COMMIT.fullmatch(job.revision):
        return job.revision
    if not job.revision and refs:
        # A bundle of one branch has no HEAD.
        heads = sorted({oid for name, oid in refs.items() if name.startswith("refs/heads/")})
        if len(heads) == 1:
            return heads[0]
    raise _no_revision(job.revision)


def _fetched(git: Git, job: Job, commit: str) -> str:
    """Bring a commit into the mirror, without its history where the server can leave that out."""
    names = [f"refs/heads/{job.revision}", f"refs/tags/{job.revision}"] if job.revision else ["HEAD"]
    shallow = ["--depth=1"] if job.kind == LocationKind.URL else []
    tries = [[*shallow, job.url, f"{what}:{_FETCHED}"] for what in (commit, *names)]
    # A server may give an old commit only with the branch that it is on.
    tries.append([*(["--unshallow"] if (git.directory / "shallow").exists() else []), job.url, "+refs/*:refs/all/*"])
    failure: GitFailed | None = None
    for arguments in tries:
        try:
            git.fetch("fetch", *_FETCH_OPTIONS, *arguments)
        except GitFailed as error:
            failure = failure or error
            if not error.is_refused_ref:
                # Asking for more would meet the same.
                raise
        else:
            with contextlib.suppress(GitFailed):
                return _commit(git, commit)
    raise failure or GitFailed(f"it did not give commit {commit}")


def _commit(git: Git, name: str) -> str:
    return git.read("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").decode().strip()


def _mend_mirror(mirror: Path) -> None:
    """Remove what a killed fetch has left: a mirror has one writer, so that no lock in it is anybody's."""
    for path in (*mirror.rglob("*.lock"), *mirror.glob("objects/pack/tmp_*")):
        path.unlink(missing_ok=True)


def _ensure_mirror(git: Git) -> None:
    _mend_mirror(git.directory)
    if not (git.directory / "HEAD").exists():
        git.directory.mkdir(parents=True, exist_ok=True)
        git.read("init", "--quiet", "--bare", "--template=")


def _no_revision(revision: str) -> NotFound:
    what = f"no branch, tag or commit {revision!r}" if revision else "no default branch"
    return NotFound(
        f"The repository has {what}.",
        remedy="Name one that it has, with `--revision`." if revision else "Name a branch with `--revision`.",
        reason="GIT_REVISION_NOT_FOUND",
    )


def answer(job: Job) -> Answer:
    """Do a job and put what happened into words."""
    try:
        try:
            return Answer(done=check_out(job))
        except GitFailed as failure:
            raise explained(failure, job.url, is_remote=job.kind == LocationKind.URL) from failure
        except OSError as error:
            raise NotReady(
                f"The local disk fails: {error.strerror}.",
                remedy="Free space where UNDERCROFT_LOCAL_DIR is, or mend that disk; then index again.",
                reason="LOCAL_DISK_UNWRITABLE",
            ) from error
    except Exception as error:
        if not isinstance(error, UndercroftError):
            error = NotReady(
                f"git's answer about {job.url} is not understood: {type(error).__name__}: {error}"[:400],
                remedy="Check the repository with `git fsck`, then index again.",
                reason="GIT_FAILED",
            )
        return Answer(failed=Failure(type(error).__name__, error.message, error.remedy, error.reason))


def _end_with(parent: int) -> None:
    """Kill git and this process once the service that started it is gone."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Serve one job."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    source = os.fdopen(os.dup(0), "rb")
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sink.write(encode_answer(answer(decode_job(source.read()))))
    sink.flush()


if __name__ == "__main__":
    sys.exit("started by the service, not by hand")
