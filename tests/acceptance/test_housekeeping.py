"""What the service does by itself: G6 verify from time to time, G37 a cache that shrinks with the corpus."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from undercroft.ingest.v1 import project_service_pb2

from tests.support.appliance import Appliance, running_appliance
from tests.support.waiting import until

SETTINGS = {
    "UNDERCROFT_VERIFY_INTERVAL_S": "1",
    "UNDERCROFT_HOUSEKEEPING_INTERVAL_S": "0.5",
    "UNDERCROFT_CACHE_RETENTION_S": "1",
    "UNDERCROFT_RETENTION_S": "0",
    "UNDERCROFT_LEASE_S": "1",
}


@pytest.fixture(scope="module")
def restless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """An appliance whose housekeeping is due all the time."""
    with running_appliance(tmp_path_factory.mktemp("restless") / "home", SETTINGS) as running:
        yield running


def cached(appliance: Appliance) -> int:
    with appliance.connect_database() as database:
        row = database.execute("SELECT count(*) FROM vectors").fetchone()
    assert row is not None
    return int(row[0])


def test_an_edit_that_kept_size_and_time_is_found_in_time(restless: Appliance, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    path = folder / "hidden.py"
    path.write_text("def alpacas():\n    return 1\n")
    restless.create_project("hidden", [folder], model="")
    restless.index("hidden")
    before = path.stat()
    path.write_text("def belugas():\n    return 1\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    until(lambda: bool(restless.search("belugas", "hidden", preset="lexical").hits))
    assert not restless.search("alpacas", "hidden", preset="lexical").hits
    # Where nothing has changed, a verify publishes nothing.
    generation = restless.status("hidden").snapshot.generation
    last = restless.status("hidden").last_operation
    until(lambda: restless.status("hidden").last_operation != last)
    assert restless.status("hidden").snapshot.generation == generation


def test_the_cache_shrinks_with_the_corpus(restless: Appliance, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    for number in range(10):
        (folder / f"shrinking_{number}.py").write_text(f"def shrinking_{number}():\n    return {number}\n")
    restless.create_project("shrinking", [folder])
    assert restless.index("shrinking").embeddings.embedded == 10
    for number in range(7):
        (folder / f"shrinking_{number}.py").unlink()
    restless.index("shrinking")
    until(lambda: cached(restless) == 3)
    # What is left still answers, and is embedded no second time.
    assert restless.search("def shrinking_8 return 8", "shrinking", preset="dense").hits
    assert restless.index("shrinking", force=True).embeddings.embedded == 0
    restless.client.projects.DeleteProject(project_service_pb2.DeleteProjectRequest(name="projects/shrinking"))
    until(lambda: cached(restless) == 0)


def test_a_volume_that_cannot_be_written_loses_nothing(restless: Appliance, tmp_path: Path) -> None:
    """G20: the run says so, search goes on with what it has, and the next run embeds nothing again."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "kept.py").write_text("def kept_on_disk():\n    return 1\n")
    restless.create_project("kept", [folder])
    restless.index("kept")
    # Search has its own copy of what it has answered from.
    assert restless.search("kept_on_disk", "kept").hits
    volume, aside = restless.home / "sidecars", restless.home / "aside"
    volume.rename(aside)
    # No right of any user makes a folder of a file: as good as a full disk or a read-only mount.
    volume.write_text("")
    try:
        (folder / "added.py").write_text("def added_meanwhile():\n    return 2\n")
        operation = restless.start_index("kept")
        with pytest.raises(AssertionError, match="SIDECAR_VOLUME_UNWRITABLE"):
            restless.wait(operation)
        assert restless.search("kept_on_disk", "kept").hits
        assert not restless.search("added_meanwhile", "kept", preset="lexical").hits
    finally:
        volume.unlink()
        aside.rename(volume)
    report = restless.index("kept")
    assert report.published
    assert report.embeddings.embedded == 0
    assert restless.search("added_meanwhile", "kept").hits


def test_a_project_that_is_gone_keeps_no_house_busy(restless: Appliance, tmp_path: Path) -> None:
    """A source that can't be listed is reported by every verify, and costs the project nothing."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "stays.py").write_text("def stays_indexed():\n    return 1\n")
    restless.create_project("unmounted", [folder], model="")
    restless.index("unmounted")
    folder.rename(tmp_path / "elsewhere")
    last = restless.status("unmounted").last_operation
    until(lambda: restless.status("unmounted").last_operation != last)
    assert restless.search("stays_indexed", "unmounted", preset="lexical").hits
    with pytest.raises(grpc.RpcError) as refused:
        restless.search("stays_indexed", "unmounted", freshness=3)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
