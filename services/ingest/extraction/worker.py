"""The process that extracts: it reads jobs from a pipe, one at a time, and may be killed at any moment.

It holds no channel, no database connection and no secret, starts from a clean interpreter and imports no more than
extraction needs. Its memory and its processor time per file are limited by the kernel, which no parser can evade;
processor time rather than the clock, so that a busy machine skips no file that an idle one takes.
"""

from __future__ import annotations

import faulthandler
import io
import os
import pickle
import resource
import signal
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from services.core.errors import UndercroftError
from services.ingest.chunks import Extraction, Note
from services.ingest.documents import Document, read_document
from services.ingest.extraction import extract, extract_document
from services.ingest.extraction.tokens import token_counter
from services.ingest.file_settings import FileSettings
from services.ingest.skips import Skipped, SkipReason
from services.ingest.sniffing import TextFile, sniff

HEADER = struct.Struct("<Q")
WALL_FACTOR = 4.0  # by the clock a file may take this many times its limit, for what waits instead of working
_ORPHAN_GRACE_S = 5.0
_MODULES = ("services.ingest.", "services.core.errors")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker needs to know once. Without a tokenizer, tokens are estimated from above."""

    budget_tokens: int
    tokenizer_path: Path | None = None
    file_timeout_s: float = 20.0  # of processor time
    memory_limit_bytes: int = 1024 * 1024 * 1024  # of address space


@dataclass(frozen=True, slots=True)
class Job:
    """One file: its bytes, its dotted module name if it is Python, and what the manifests of its source say of it.

    ``plain_because`` says why it is taken as plain text, and a document as what is known of one without a text.
    """

    path: str
    data: bytes
    module: str = ""
    settings: FileSettings = FileSettings()  # noqa: RUF009  (frozen)
    plain_because: str = ""


@dataclass(frozen=True, slots=True)
class Extracted:
    """A file that was taken: its decoded text, and what was found in it."""

    path: str
    file: TextFile
    extraction: Extraction


@dataclass(frozen=True, slots=True)
class Ready:
    """The first message of a worker: it can work, or why it cannot."""

    problem: str = ""
    remedy: str = ""


Outcome = Extracted | Skipped


def encode(message: object) -> bytes:
    """Frame a message: its length, then its pickle."""
    body = pickle.dumps(message, protocol=5)
    return HEADER.pack(len(body)) + body


def decode(body: bytes) -> object:
    """Read a message, refusing any class that is none of ours."""
    return _Unpickler(io.BytesIO(body)).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if module.startswith(_MODULES) or (module, name) in {("pathlib", "PosixPath"), ("builtins", "getattr")}:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no message of a worker")


def run(job: Job, settings: WorkerSettings, count_tokens: object = None) -> Outcome:
    """Extract one job in this process."""
    counter = token_counter(settings.tokenizer_path) if not callable(count_tokens) else count_tokens
    document = read_document(job.data, job.path, unread_because=job.plain_because)
    if isinstance(document, Skipped):
        return document
    if isinstance(document, Document):
        extraction = extract_document(job.path, document, count_tokens=counter, budget_tokens=settings.budget_tokens)
        return _extracted(job, document.file, extraction, ())
    file = sniff(job.data, job.path)
    if isinstance(file, Skipped):
        return file
    extraction = extract(
        job.path,
        file.text,
        module=job.module,
        count_tokens=counter,
        budget_tokens=settings.budget_tokens,
        chunk_by=job.settings.chunk_by,
        plain_because=job.plain_because,
    )
    return _extracted(job, file, extraction, () if document is None else (document,))


def _extracted(job: Job, file: TextFile, extraction: Extraction, notes: Sequence[Note]) -> Extracted:
    """Join what decoding, converting and extracting had to say of a file, and what is said of it and by it."""
    of_decoding = (Note(code, f"read as {file.encoding}") for code in file.notes)
    # What a file says of itself wins.
    metadata = tuple(sorted({**dict(job.settings.metadata), **dict(extraction.metadata)}.items()))
    joined = replace(extraction, notes=(*of_decoding, *notes, *extraction.notes), metadata=metadata)
    return Extracted(job.path, file, joined)


def main() -> None:
    """Serve jobs from standard input until it ends."""
    faulthandler.enable()
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    source = os.fdopen(os.dup(0), "rb")
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that a library prints may get between the messages
    settings = _receive(source)
    if not isinstance(settings, WorkerSettings):
        raise SystemExit("the first message must be the settings")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        counter = token_counter(settings.tokenizer_path)
    except UndercroftError as error:
        _send(sink, Ready(error.message, error.remedy))
        return
    _limit_memory(settings.memory_limit_bytes)
    _send(sink, Ready())
    while True:
        job = _receive(source)
        if not isinstance(job, Job):
            return
        signal.setitimer(signal.ITIMER_PROF, settings.file_timeout_s)
        # The parent watches the clock too; this is for a worker whose parent was killed.
        signal.setitimer(signal.ITIMER_REAL, settings.file_timeout_s * WALL_FACTOR + _ORPHAN_GRACE_S)
        try:
            outcome = run(job, settings, counter)
            frame = encode(outcome)
        except MemoryError:
            limit = settings.memory_limit_bytes
            frame = encode(Skipped(job.path, SkipReason.EXTRACTION_MEMORY, f"needs more than {limit:,} bytes"))
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"[:400]
            frame = encode(Skipped(job.path, SkipReason.EXTRACTION_FAILED, detail))
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sink.write(frame)
        sink.flush()


def _limit_memory(limit_bytes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _receive(source: BinaryIO) -> object:
    header = source.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (size,) = HEADER.unpack(header)
    body = source.read(size)
    return decode(body) if len(body) == size else None


def _send(sink: BinaryIO, message: object) -> None:
    sink.write(encode(message))
    sink.flush()


if __name__ == "__main__":
    sys.exit("started by the pool, not by hand")
