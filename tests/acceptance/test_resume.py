"""G14, G21: killed runs go on where they were, replicas share the work, and one project has one run at a time."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from undercroft.client import explain
from undercroft.ingest.v1 import index_service_pb2, project_service_pb2

from tests.support.appliance import Appliance
from tests.support.waiting import until

FILES = 600


def write_files(folder: Path, count: int, word: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        functions = "\n\n".join(
            f'def {word}_{number}_{part}(value):\n    """Do part {part} of {word} {number}."""\n    return value'
            for part in range(6)
        )
        (folder / f"{word}_{number}.py").write_text(functions + "\n")


def staged(appliance: Appliance, operation: str) -> int:
    """Count the files that a run has extracted so far."""
    with appliance.connect_database() as database:
        row = database.execute(
            "SELECT count(*) FROM staged_files WHERE run_id = %s AND complete", (int(operation.rpartition("/")[2]),)
        ).fetchone()
    assert row is not None
    return int(row[0])


@contextmanager
def second_replica(appliance: Appliance, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run another ingest service on the same database and volume, with a local disk of its own."""
    process = appliance.pid("ingest")
    raw = Path(f"/proc/{process}/environ").read_bytes().decode()
    environment = dict(pair.split("=", 1) for pair in raw.split("\0") if "=" in pair)
    command = Path(f"/proc/{process}/cmdline").read_bytes().decode().split("\0")[:-1]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment |= {
        "UNDERCROFT_LISTEN": f"127.0.0.1:{port}",
        "UNDERCROFT_METRICS_LISTEN": "",
        "UNDERCROFT_LOCAL_DIR": str(folder),
        # What the database had not told it would wait for this long.
        "UNDERCROFT_POLL_S": "0.5",
    }
    with (folder.parent / "replica.log").open("wb") as log:
        started = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        with grpc.insecure_channel(environment["UNDERCROFT_LISTEN"]) as channel:
            grpc.channel_ready_future(channel).result(30)
        yield started
    finally:
        if started.poll() is None:
            started.send_signal(signal.SIGTERM)
            started.wait(30)


def holders(appliance: Appliance, prefix: str) -> dict[str, str]:
    """Return who ran the last run of each project."""
    with appliance.connect_database() as database:
        rows = database.execute(
            """
            SELECT DISTINCT ON (p.name) p.name, o.holder FROM operations o JOIN projects p ON p.id = o.project_id
            WHERE p.name LIKE %s ORDER BY p.name, o.id DESC
            """,
            (prefix + "%",),
        ).fetchall()
    return dict(rows)


def test_a_killed_extraction_goes_on_where_it_was(appliance: Appliance, tmp_path: Path) -> None:
    write_files(tmp_path / "code", FILES, "resumed")
    appliance.create_project("resumed", [tmp_path / "code"], model="")
    operation = appliance.start_index("resumed")
    until(lambda: staged(appliance, operation) >= 128)
    appliance.kill("ingest")
    before = staged(appliance, operation)
    # Files that change while nobody is at work are extracted again, and those that go are not published.
    (tmp_path / "code" / "resumed_0.py").write_text("def changed_since():\n    return 1\n")
    (tmp_path / "code" / "resumed_1.py").unlink()
    appliance.wait_serving("ingest")
    report = appliance.wait(operation)
    assert report.attempts > 1
    assert 128 - 2 <= report.files.resumed <= FILES
    assert report.files.resumed >= before - 2
    assert report.files.new == FILES - 1
    keys = {chunk.chunk_key for chunk in appliance.export("resumed")}
    assert len(keys) == (FILES - 2) * 6 + 1
    assert not [key for key in keys if "resumed_1.py" in key]
    with appliance.connect_database() as database:
        left = database.execute(
            """
            SELECT (SELECT count(*) FROM contents t JOIN projects p ON p.id = t.project_id AND p.name = 'resumed'
                    WHERE NOT EXISTS (SELECT FROM chunks c WHERE c.content_id = t.id)),
                   (SELECT count(*) FROM file_texts t JOIN projects p ON p.id = t.project_id AND p.name = 'resumed'
                    WHERE NOT EXISTS (SELECT FROM files f WHERE f.text_hash = t.text_hash)),
                   (SELECT count(*) FROM staged_files)
            """
        ).fetchone()
    assert left == (0, 0, 0), "what was extracted and is not published leaves nothing behind"
    # What was resumed is what a run in one go would have published.
    assert not appliance.index("resumed", force=True).published


@contextmanager
def full_disk(appliance: Appliance, table: str) -> Iterator[None]:
    """Have Postgres refuse new rows of a table, with the error that a full disk gives."""
    with appliance.connect_database() as database:
        database.execute(
            f"""
            CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
                AS $$BEGIN RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END$$;
            CREATE TRIGGER full_disk BEFORE INSERT ON {table} EXECUTE FUNCTION refuse();
            """
        )
    try:
        yield
    finally:
        with appliance.connect_database() as database:
            database.execute("DROP FUNCTION refuse CASCADE")


@pytest.mark.parametrize("table", ["staged_files", "vectors", "chunks"])
def test_a_run_that_finds_the_disk_of_the_database_full_says_so_and_the_next_one_goes_on(
    appliance: Appliance, tmp_path: Path, table: str
) -> None:
    name = f"full-{table.replace('_', '-')}"
    write_files(tmp_path / "code", 3, f"before_{table}")
    appliance.create_project(name, [tmp_path / "code"])
    appliance.index(name)
    kept = appliance.export(name)
    write_files(tmp_path / "code", 3, f"after_{table}")
    with full_disk(appliance, table):
        with pytest.raises(AssertionError, match="The disk of the database is full. .* Free space there"):
            appliance.index(name)
        assert appliance.export(name) == kept
    report = appliance.index(name)
    assert (report.published, report.attempts) == (True, 1)
    assert len(appliance.export(name)) == 2 * len(kept)


def test_a_call_that_finds_the_disk_of_the_database_full_says_so_at_once(appliance: Appliance) -> None:
    with full_disk(appliance, "projects"), pytest.raises(grpc.RpcError) as refused:
        appliance.create_project("no-place", [])
    said = explain(refused.value)
    assert (said.code, said.reason) == ("FAILED_PRECONDITION", "DATABASE_DISK_FULL")
    assert "Free space there" in said.remedy


def test_a_source_that_is_removed_during_its_run_leaves_with_the_next(appliance: Appliance, tmp_path: Path) -> None:
    write_files(tmp_path / "stays", 20, "staying")
    write_files(tmp_path / "leaves", 300, "leaving")
    appliance.create_project("leaving", [tmp_path / "leaves", tmp_path / "stays"], model="")
    operation = appliance.start_index("leaving")
    until(lambda: staged(appliance, operation) > 0)
    name = "projects/leaving/sources/leaves"
    appliance.client.projects.DeleteSource(project_service_pb2.DeleteSourceRequest(name=name))
    appliance.wait(operation)
    appliance.index("leaving")
    status = appliance.status("leaving")
    assert (status.files, status.snapshot.stale) == (20, False)


def test_a_run_that_waits_says_who_is_at_work(appliance: Appliance, tmp_path: Path) -> None:
    write_files(tmp_path / "code", 300, "waited")
    appliance.create_project("waited", [tmp_path / "code"], model="")
    first = appliance.start_index("waited")
    until(lambda: staged(appliance, first) > 0)
    second = appliance.start_index("waited", force=True)
    assert second != first
    with appliance.connect_database() as database:
        running = database.execute(
            """
            SELECT count(*) FROM operations o JOIN projects p ON p.id = o.project_id
            WHERE p.name = 'waited' AND o.state = 'running'
            """
        ).fetchone()
    assert running == (1,)
    assert appliance.status("waited").running_operation == first
    assert appliance.wait(first).published
    assert not appliance.wait(second).published


@pytest.mark.timeout(300)
def test_two_replicas_share_the_work_and_take_it_over(appliance: Appliance, tmp_path: Path) -> None:
    names = [f"shared-{number}" for number in range(6)]
    for name in names:
        write_files(tmp_path / name, 150, name.replace("-", "_"))
        appliance.create_project(name, [tmp_path / name], model="")
    with second_replica(appliance, tmp_path / "replica"):
        # The first one's holder name has its process id.
        runs = [appliance.start_index(name) for name in names]
        reports = [appliance.wait(run) for run in runs]
        assert all(report.published and report.attempts == 1 for report in reports)
        assert all(report.files.new == 150 for report in reports)
        by = holders(appliance, "shared-")
        assert len(set(by.values())) == 2, by

        # The supervised one dies at work; the other one, or its successor, goes on.
        for name in names:
            write_files(tmp_path / name, 200, f"again_{name.replace('-', '_')}")
        runs = [appliance.start_index(name) for name in names]
        until(lambda: any(staged(appliance, run) for run in runs))
        os.kill(appliance.pid("ingest"), signal.SIGKILL)
        reports = [appliance.wait_anywhere(run) for run in runs]
        assert all(report.published for report in reports)
        assert all(report.files.new == 200 for report in reports)
        for name in names:
            assert appliance.status(name).chunks == 350 * 6


def test_an_embed_service_that_is_killed_during_a_run_is_waited_for(appliance: Appliance, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(300):
        (folder / f"{number}.md").write_text(f"# Topic {number}\n\nSomething about subject {number} alone.\n")
    appliance.create_project("embed-killed", [folder])
    request = index_service_pb2.WatchIndexRunRequest(operation=appliance.start_index("embed-killed"))
    killed = False
    for update in appliance.client.index.WatchIndexRun(request):
        if not killed and update.report.embeddings.embedded >= 64:
            appliance.kill("embed")
            killed = True
    assert killed
    report = appliance.wait(request.operation)
    assert report.published
    assert not report.degraded
    assert report.embeddings.embedded == 300
