"""What indexing costs as the corpus grows: cold, no change, one file, one file in a hundred.

    python ops/bench/scale.py [--files 1000 10000 50000] [--vectors] [--home DIRECTORY] [--json FILE]

Each size gets a generated corpus and an appliance of its own in a scratch directory. The project has no model, so no
embedding is measured. ``--vectors`` gives it the demo model and fills the cache with random unit vectors for all texts
before the cold run: what dense sidecars cost at size is measured without the hours of embedding; the few texts that
later steps change are embedded for real, and the time of that is a stage of its own.

Wall time counts from the call to the end of the run, and "searchable" to the search answer that has the change. CPU
seconds are those of each service and of Postgres, ended children included, until both are idle again: what a publish
leaves to do (sweeping, opening the generation) is part of its price. Peak memory of ingest is VmHWM, reset before each
step; extraction workers are sampled, and so is what Postgres holds apart from its shared buffers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import psutil
from google.longrunning import operations_pb2
from undercroft.embed.v1 import model_service_pb2
from undercroft.ingest.v1 import index_run_pb2, index_service_pb2

from ops.bench.indexing import SERVICES, machine
from ops.bench.scale_corpus import change, write_corpus
from services.appliance.postgres import EmbeddedPostgres
from tests.support.appliance import MODEL, Appliance, running_appliance

PROJECT = "scale"
POSTGRES = "postgres"
_SAMPLE_S = 0.1
_IDLE_CPU_S = 0.02
_IDLE_LIMIT_S = 60.0
_VECTORS_PER_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class Memory:
    """Peaks in MiB: resident memory of ingest, and of its workers and Postgres's processes added up."""

    ingest_mib: float
    workers_mib: float
    postgres_mib: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """One step. ``other_ms`` is the part of the run that belongs to no stage, ``queued_ms`` the wait before it."""

    files: int
    step: str
    wall_s: float
    searchable_s: float | None
    cpu_s: dict[str, float]
    memory: Memory
    stages_ms: dict[str, int]
    other_ms: int
    queued_ms: int
    read: int
    chunks: dict[str, int]
    embedded: int

    def line(self) -> str:
        """Write it for people."""
        searchable = "" if self.searchable_s is None else f" searchable {self.searchable_s:.2f} s"
        cpu = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.cpu_s.items() if seconds >= 0.005)
        stages = ", ".join(f"{name} {ms}" for name, ms in {**self.stages_ms, "other": self.other_ms}.items())
        memory = self.memory
        return (
            f"{self.files:>6} {self.step:<12} wall {self.wall_s:.2f} s{searchable}\n"
            f"       CPU-s {sum(self.cpu_s.values()):.2f} ({cpu}); MiB ingest {memory.ingest_mib:.0f},"
            f" workers {memory.workers_mib:.0f}, Postgres {memory.postgres_mib:.0f}; read {self.read};"
            f" chunks {self.chunks}; embedded {self.embedded}\n       ms {stages}"
        )


class Processes:
    """The trees of processes that work for a project."""

    def __init__(self, appliance: Appliance) -> None:
        self._roots = {name: psutil.Process(appliance.pid(name)) for name in SERVICES}
        postmaster = EmbeddedPostgres(appliance.home / "postgres").status().pid
        assert postmaster is not None
        self._roots[POSTGRES] = psutil.Process(postmaster)

    def cpu_seconds(self) -> dict[str, float]:
        """Return what each tree has used so far."""
        used = {}
        for name, root in self._roots.items():
            seconds = 0.0
            for process in [root, *root.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    # Of ended children, those that were waited for.
                    seconds += times.user + times.system + times.children_user + times.children_system
            used[name] = seconds
        return used

    def settle(self) -> None:
        """Wait until none of them works any more."""
        deadline = time.monotonic() + _IDLE_LIMIT_S
        before, quiet = sum(self.cpu_seconds().values()), 0
        while quiet < 4 and time.monotonic() < deadline:
            time.sleep(0.25)
            now = sum(self.cpu_seconds().values())
            quiet = quiet + 1 if now - before < _IDLE_CPU_S else 0
            before = now

    @contextlib.contextmanager
    def peak_memory(self) -> Iterator[Callable[[], Memory]]:
        """Measure from here on; the function given tells the peaks once the block has ended."""
        ingest = self._roots["ingest"]
        # 5 resets the peak that the kernel keeps.
        Path(f"/proc/{ingest.pid}/clear_refs").write_text("5")
        ended = threading.Event()
        peaks = {"workers": 0, "postgres": 0}

        def sample() -> None:
            while not ended.wait(_SAMPLE_S):
                workers = sum(_status_kib(one.pid, "VmRSS") for one in ingest.children())
                backends = self._roots[POSTGRES].children(recursive=True)
                postgres = sum(_status_kib(one.pid, "RssAnon") for one in backends)
                peaks.update(workers=max(peaks["workers"], workers), postgres=max(peaks["postgres"], postgres))

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            yield lambda: Memory(
                _status_kib(ingest.pid, "VmHWM") / 1024, peaks["workers"] / 1024, peaks["postgres"] / 1024
            )
        finally:
            ended.set()
            thread.join()


def _status_kib(pid: int, field: str) -> int:
    try:
        found = re.search(rf"^{field}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


class Bench:
    """One corpus in one appliance."""

    def __init__(self, appliance: Appliance, files: int, modules: Sequence[Path]) -> None:
        self._appliance = appliance
        self._processes = Processes(appliance)
        self._files = files
        self._modules = modules
        self._changes = 0
        self.measurements: list[Measurement] = []

    def run(self, rounds: int) -> None:
        """Take all steps; those that cost little are repeated."""
        self.measure("cold", [])
        for _ in range(rounds):
            self.measure("no change", [])
        for _ in range(rounds):
            self.measure("one file", self._edit(1))
        self.measure("1 %", self._edit(max(1, self._files // 100)))
        for _ in range(rounds):
            self.measure("no change", [])

    def measure(self, step: str, words: Sequence[str]) -> None:
        """Index; the last of ``words`` must then be found."""
        self._processes.settle()
        before = self._processes.cpu_seconds()
        with self._processes.peak_memory() as peaks:
            start = time.perf_counter()
            report = self._appliance.index(PROJECT)
            wall_s = time.perf_counter() - start
            searchable_s = None
            if words:
                hits = self._appliance.search(words[-1], PROJECT, preset="lexical").hits
                searchable_s = time.perf_counter() - start
                if not hits or words[-1] not in hits[0].text:
                    sys.exit(f"{words[-1]} is not found")
            self._processes.settle()
        used = {name: seconds - before[name] for name, seconds in self._processes.cpu_seconds().items()}
        measured = _measurement(self._files, step, wall_s, searchable_s, used, peaks(), report)
        self.measurements.append(measured)
        print(measured.line(), flush=True)

    def _edit(self, count: int) -> list[str]:
        """Change modules that lie far from each other, and return the new words."""
        words = []
        for number in range(count):
            self._changes += 1
            words.append(f"quicksilver{self._changes:06d}")
            # A step without a common divisor with the usual sizes: every edit meets another module.
            place = (self._changes * 7_919 + number) % len(self._modules)
            change(self._modules[place], words[-1])
        # A file that is read at the moment of its change is read again by the next run, which would be "no change".
        time.sleep(0.2)
        return words


def _measurement(
    files: int,
    step: str,
    wall_s: float,
    searchable_s: float | None,
    used: dict[str, float],
    memory: Memory,
    report: index_run_pb2.IndexRunReport,
) -> Measurement:
    stages = {
        index_run_pb2.IndexStage.Name(one.stage).removeprefix("INDEX_STAGE_").lower(): one.wall_ms
        for one in report.stages
    }
    # Decisions are mined while files are extracted.
    if "extract" in stages:
        stages["extract"] -= stages.get("decisions", 0)
    start_ns, end_ns = report.start_time.ToNanoseconds(), report.end_time.ToNanoseconds()
    chunks = report.chunks
    return Measurement(
        files=files,
        step=step,
        wall_s=wall_s,
        searchable_s=searchable_s,
        cpu_s=used,
        memory=memory,
        stages_ms=stages,
        other_ms=(end_ns - start_ns) // 1_000_000 - sum(stages.values()),
        queued_ms=(start_ns - report.create_time.ToNanoseconds()) // 1_000_000,
        read=report.files.read,
        chunks={"kept": chunks.kept, "moved": chunks.moved, "added": chunks.added, "removed": chunks.removed},
        embedded=report.embeddings.embedded,
    )


def fill_vectors(appliance: Appliance) -> int:
    """Put a random unit vector into the cache for every text of the project, and return how many.

    A run that gets as far as embedding has stored all texts with their fingerprints; it is cancelled there, and drops
    them.
    """
    operation = appliance.start_index(PROJECT)
    for update in appliance.client.index.WatchIndexRun(index_service_pb2.WatchIndexRunRequest(operation=operation)):
        if update.report.stage == index_run_pb2.INDEX_STAGE_EMBED:
            break
    model = appliance.client.models.GetModel(model_service_pb2.GetModelRequest(name=MODEL))
    with appliance.connect_database() as connection:
        texts = "SELECT DISTINCT fingerprint FROM contents WHERE fingerprint IS NOT NULL"
        wanted = {bytes(row[0]) for row in connection.execute(texts)}
        connection.commit()
        appliance.client.operations.CancelOperation(operations_pb2.CancelOperationRequest(name=operation))
        appliance.client.operations.WaitOperation(operations_pb2.WaitOperationRequest(name=operation), timeout=600)
        embedded = {bytes(row[0]) for row in connection.execute("SELECT fingerprint FROM vectors")}
        fingerprints = sorted(wanted - embedded)
        source = np.random.default_rng(20)
        columns = "fingerprint, model_digest, embedding"
        with connection.cursor().copy(f"COPY vectors ({columns}) FROM STDIN (FORMAT binary)") as copy:
            copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
            for start in range(0, len(fingerprints), _VECTORS_PER_PAGE):
                page = fingerprints[start : start + _VECTORS_PER_PAGE]
                vectors = source.standard_normal((len(page), model.dimensions), dtype=np.float32)
                vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
                copy.write(b"".join(map(_binary_row, page, [model.digest.encode()] * len(page), vectors)))
            copy.write(struct.pack(">h", -1))
    return len(fingerprints)


def _binary_row(fingerprint: bytes, digest: bytes, vector: np.ndarray[tuple[int], np.dtype[np.float32]]) -> bytes:
    # halfvec's wire form: int16 dimensions, int16 unused, then big-endian float16.
    embedding = struct.pack(">hh", len(vector), 0) + vector.astype(">f2").tobytes()
    fields = (fingerprint, digest, embedding)
    return struct.pack(">h", len(fields)) + b"".join(struct.pack(">i", len(one)) + one for one in fields)


def summary(measurements: Sequence[Measurement]) -> Iterator[str]:
    """Yield rows of a table in Markdown, medians where a step was repeated."""
    yield "| files | step | wall s | searchable s | CPU-s ingest | Postgres | search | peak MiB ingest | workers |"
    yield "|---|---|---|---|---|---|---|---|---|"
    groups: dict[tuple[int, str], list[Measurement]] = {}
    for one in measurements:
        groups.setdefault((one.files, one.step), []).append(one)
    for (files, step), group in groups.items():
        searchable = [one.searchable_s for one in group if one.searchable_s is not None]
        cells = [
            f"{files}",
            step,
            f"{statistics.median(one.wall_s for one in group):.2f}",
            f"{statistics.median(searchable):.2f}" if searchable else "–",
            *(f"{statistics.median(one.cpu_s[name] for one in group):.2f}" for name in ("ingest", POSTGRES, "search")),
            f"{max(one.memory.ingest_mib for one in group):.0f}",
            f"{max(one.memory.workers_mib for one in group):.0f}",
        ]
        yield f"| {' | '.join(cells)} |"


def bench(files: int, place: Path, *, vectors: bool, rounds: int) -> list[Measurement]:
    """Measure one size in an appliance of its own below ``place``, which must not be there yet."""
    corpus = place / "corpus"
    modules = write_corpus(corpus, files)
    with running_appliance(place / "home") as appliance:
        appliance.create_project(PROJECT, [corpus], model=MODEL if vectors else "")
        if vectors:
            print(f"{files:>6} filled the cache with {fill_vectors(appliance)} vectors", flush=True)
        one = Bench(appliance, files, modules)
        one.run(rounds)
        return one.measurements


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, nargs="+", default=[1_000, 10_000, 50_000])
    parser.add_argument("--vectors", action="store_true", help="with dense sidecars, of random vectors")
    parser.add_argument("--rounds", type=int, default=3, help="how often a step that costs little is repeated")
    parser.add_argument("--home", type=Path, help="where to work and to leave what was made; else a scratch directory")
    parser.add_argument("--json", type=Path, help="where to write the measurements")
    arguments = parser.parse_args()
    print(machine(), "with vectors" if arguments.vectors else "without a model", flush=True)
    measurements: list[Measurement] = []
    with contextlib.ExitStack() as stack:
        home = arguments.home or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        home.mkdir(parents=True, exist_ok=True)
        for files in arguments.files:
            place = home.resolve() / f"{files}{'-vectors' if arguments.vectors else ''}"
            if place.exists():
                parser.error(f"{place} is there already")
            place.mkdir()
            measurements += bench(files, place, vectors=arguments.vectors, rounds=arguments.rounds)
            if arguments.json:
                arguments.json.write_text(json.dumps([asdict(one) for one in measurements], indent=1) + "\n")
    print("\n".join(summary(measurements)))


if __name__ == "__main__":
    main()
