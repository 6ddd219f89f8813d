from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from services.core.errors import NotReady, Unavailable
from services.ingest.extraction.pool import ExtractionPool, PoolSettings
from services.ingest.extraction.worker import Extracted, Job, WorkerSettings, decode, encode, run
from services.ingest.skips import Skipped

WORKER = WorkerSettings(budget_tokens=254)
SETTINGS = PoolSettings(WORKER)
# Takes a worker many seconds, and no more memory than others.
SLOW = Job("slow.md", b"[a](b) `c.d` *e*\n> - text\n\n" * 70_000)


@pytest.fixture
def pool() -> Iterator[ExtractionPool]:
    with ExtractionPool(SETTINGS) as pool:
        yield pool


def jobs(count: int) -> list[Job]:
    return [Job(f"m{number}.py", f"def f{number}(): pass\n".encode(), f"m{number}") for number in range(count)]


def workers() -> list[psutil.Process]:
    """Return the living workers; children of other tests may be zombies that nobody has waited for yet."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
            if "extraction.worker" in " ".join(child.cmdline()):
                found.append(child)
    return found


def reason(outcome: object) -> str:
    assert isinstance(outcome, Skipped), outcome
    return str(outcome.reason)


def test_outcomes_equal_those_of_this_process_in_the_order_of_the_jobs(pool: ExtractionPool) -> None:
    given = [
        *jobs(30),
        Job("a.md", b"# A\n\ntext\n"),
        Job("x.bin", bytes(range(256))),
        Job("latin.py", b"x = '\xe9'\n"),
    ]
    assert list(pool.extract(given)) == [run(job, WORKER) for job in given]


def test_a_file_that_takes_too_long_costs_itself_alone() -> None:
    # As plain text the file takes about a second too.
    settings = PoolSettings(replace(WORKER, file_timeout_s=0.3))
    with ExtractionPool(settings) as pool:
        pool.warm()
        started = time.monotonic()
        outcomes = list(pool.extract([*jobs(3), SLOW, *jobs(3)]))
        assert time.monotonic() - started < 15
    assert reason(outcomes[3]) == "extraction_timeout"
    assert all(isinstance(outcome, Extracted) for outcome in [*outcomes[:3], *outcomes[4:]])


def test_a_file_whose_structure_takes_too_long_is_taken_as_plain_text() -> None:
    with ExtractionPool(PoolSettings(replace(WORKER, file_timeout_s=4.0))) as pool:
        outcome = pool.run(SLOW)
    assert isinstance(outcome, Extracted)
    assert_whole_lines(outcome)
    (note,) = outcome.extraction.notes
    assert note.code == "extractor_failed"
    assert "4 s of processor time" in note.detail
    assert outcome == run(replace(SLOW, plain_because=note.detail), WORKER)


def assert_whole_lines(outcome: Extracted) -> None:
    lines = outcome.file.text.split("\n")
    covered = [line for chunk in outcome.extraction.chunks for line in range(chunk.start_line, chunk.end_line + 1)]
    assert {number for number, line in enumerate(lines, 1) if line.strip()} <= set(covered)


def test_files_in_work_end_soon_after_they_are_stopped() -> None:
    stop = threading.Event()
    with ExtractionPool(PoolSettings(replace(WORKER, file_timeout_s=60.0))) as pool:
        pool.warm()
        threading.Timer(1.0, stop.set).start()
        started = time.monotonic()
        with pytest.raises(Unavailable):
            list(pool.extract([SLOW] * 8, stop))
        assert time.monotonic() - started < 15
        assert isinstance(pool.run(jobs(1)[0]), Extracted)


def test_more_open_files_than_select_can_take_change_nothing() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
        for _ in range(1100):
            stack.enter_context(open(os.devnull, "rb"))
        with ExtractionPool(SETTINGS) as pool:
            assert isinstance(pool.run(jobs(1)[0]), Extracted)
            (worker,) = workers()
            worker.kill()
            assert isinstance(pool.run(jobs(1)[0]), Extracted)


def test_a_file_that_needs_too_much_memory_costs_itself_alone() -> None:
    limit_bytes = 160 * 1024 * 1024
    settings = PoolSettings(replace(WORKER, memory_limit_bytes=limit_bytes), workers=1)
    hungry = Job("hungry.txt", b"a b c d e f g\n" * 2_000_000)
    with ExtractionPool(settings) as pool:
        outcomes = list(pool.extract([*jobs(2), hungry, *jobs(2)]))
        (worker,) = workers()
        assert worker.rlimit(psutil.RLIMIT_AS)[0] == limit_bytes
    assert reason(outcomes[2]) == "extraction_memory"
    assert all(isinstance(outcome, Extracted) for outcome in [*outcomes[:2], *outcomes[3:]])


def test_a_worker_that_dies_is_replaced_and_only_a_second_death_is_that_of_the_structure() -> None:
    with ExtractionPool(PoolSettings(WORKER, workers=1)) as single:
        single.run(jobs(1)[0])
        killed: list[int] = []

        def kill_while_busy(times: int) -> None:
            while len(killed) < times:
                for worker in workers():
                    if worker.pid not in killed and worker.cpu_times().user > 0.5:
                        worker.send_signal(signal.SIGSEGV)
                        killed.append(worker.pid)
                time.sleep(0.02)

        killer = threading.Thread(target=kill_while_busy, args=(2,))
        killer.start()
        outcome = single.run(SLOW)
        killer.join()
        assert isinstance(outcome, Extracted)
        (note,) = outcome.extraction.notes
        assert "signal 11" in note.detail
        assert isinstance(single.run(jobs(1)[0]), Extracted)


def test_a_worker_killed_while_idle_costs_nothing(pool: ExtractionPool) -> None:
    assert isinstance(pool.run(jobs(1)[0]), Extracted)
    (worker,) = workers()
    worker.kill()
    assert isinstance(pool.run(jobs(1)[0]), Extracted)


def test_a_worker_stays_warm_and_is_replaced_after_its_share() -> None:
    with ExtractionPool(PoolSettings(WORKER, workers=1, files_per_worker=3)) as pool:
        seen = []
        for job in jobs(6):
            pool.run(job)
            seen.append([worker.pid for worker in workers()])
    assert seen[0] == seen[1] != []
    assert seen[2] == []
    assert seen[3] == seen[4] != seen[0]


def test_no_process_runs_before_the_first_file_and_none_after_the_close() -> None:
    pool = ExtractionPool(SETTINGS)
    assert workers() == []
    list(pool.extract(jobs(8)))
    assert workers() != []
    pool.close()
    assert workers() == []
    with pytest.raises(Unavailable):
        pool.run(jobs(1)[0])


def test_several_threads_share_the_workers(pool: ExtractionPool) -> None:
    results: dict[int, list[str]] = {}

    def work(number: int) -> None:
        results[number] = [outcome.path for outcome in pool.extract(jobs(20))]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(results.values()) == [[job.path for job in jobs(20)]] * 4
    assert len(workers()) <= SETTINGS.workers


def test_an_abandoned_run_leaves_the_pool_usable(pool: ExtractionPool) -> None:
    outcomes = pool.extract(jobs(50))
    next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]
    assert len(list(pool.extract(jobs(5)))) == 5


def test_a_worker_that_cannot_start_is_not_the_files_fault(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with (
        ExtractionPool(PoolSettings(replace(WORKER, tokenizer_path=tmp_path / "tokenizer.json"))) as pool,
        pytest.raises(NotReady, match=r"tokenizer\.json"),
    ):
        pool.run(jobs(1)[0])


def test_a_worker_inherits_no_secret_and_holds_nothing_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERCROFT_DATABASE_URL", "postgresql://secret")
    with ExtractionPool(SETTINGS) as pool:
        pool.warm()
        (worker,) = workers()
        assert "secret" not in " ".join(worker.environ().values())
    probe = (
        "import sys, services.ingest.extraction.worker as w;"
        "w.run(w.Job('a.md', b'# A'), w.WorkerSettings(254)); w.run(w.Job('a.py', b'x=1'), w.WorkerSettings(254));"
        "print([n for n in ('grpc', 'openvino', 'numpy', 'psycopg', 'asyncio', 'tantivy') if n in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert printed.stdout == "[]\n"


def test_a_worker_ends_when_its_parent_is_gone() -> None:
    script = (
        "from services.ingest.extraction.pool import *; from services.ingest.extraction.worker import *;"
        "import os, psutil, time; pool = ExtractionPool(PoolSettings(WorkerSettings(254))); pool.warm();"
        "print(psutil.Process().children()[0].pid, flush=True); os.kill(os.getpid(), 9)"
    )
    parent = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert parent.returncode == -signal.SIGKILL
    pid = int(parent.stdout)
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.02)


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def test_a_message_with_a_foreign_class_is_refused() -> None:
    with pytest.raises(pickle.UnpicklingError):
        decode(encode(_Evil())[8:])
