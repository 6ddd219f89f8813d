"""What the helper is told and what it answers, as JSON over its pipes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from services.ingest.skips import Skipped, SkipReason


@dataclass(frozen=True, slots=True)
class Job:
    """Bring the files of one commit into an empty folder.

    ``known_commit`` is the one that is indexed: nothing is written for it unless ``renew``. ``mirror`` is a bare
    repository of the service's own, for what has to be fetched; ``configuration`` a git configuration file of the
    admin's, for credentials and certificates, or "".
    """

    kind: str
    url: str
    revision: str
    known_commit: str
    renew: bool
    mirror: str
    into: str
    configuration: str
    max_file_bytes: int
    max_document_bytes: int
    max_total_bytes: int
    max_files: int


@dataclass(frozen=True, slots=True)
class CheckedOut:
    """A commit, and what of it was not written. ``is_known`` says that it was known, and nothing written at all."""

    commit: str
    is_known: bool = False
    files: int = 0
    skipped: tuple[Skipped, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there are no files. ``kind`` is the name of one of our errors."""

    kind: str
    message: str
    remedy: str
    reason: str


@dataclass(frozen=True, slots=True)
class Answer:
    done: CheckedOut | None = None
    failed: Failure | None = field(default=None)


def encode_job(job: Job) -> bytes:
    return json.dumps(asdict(job)).encode()


def decode_job(data: bytes) -> Job:
    return Job(**json.loads(data))


def encode_answer(answer: Answer) -> bytes:
    return json.dumps(asdict(answer)).encode()


def decode_answer(data: bytes) -> Answer:
    """Read an answer; ValueError or TypeError when it is none."""
    read = json.loads(data)
    if read["failed"] is not None:
        return Answer(failed=Failure(**read["failed"]))
    done = read["done"]
    skipped = tuple(Skipped(one["path"], SkipReason(one["reason"]), one["detail"]) for one in done.pop("skipped"))
    return Answer(done=CheckedOut(**{**done, "skipped": skipped, "warnings": tuple(done["warnings"])}))
