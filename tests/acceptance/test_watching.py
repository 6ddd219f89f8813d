"""Projects that index themselves: watched folders, and an interval; neither is set off by what the service does."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest
from google.protobuf import duration_pb2
from undercroft.client import explain

from tests.support.appliance import Appliance
from tests.support.waiting import until


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "guide.md").write_text("# Guide\n\nAbout umbrellas.\n")
    return folder


@pytest.fixture
def watched(appliance: Appliance, docs: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    project = request.node.name.removeprefix("test_").replace("_", "-")[:60].strip("-")
    appliance.create_project(project, [docs], model="")
    appliance.update_project(project, watch=True)
    until(lambda: appliance.status(project).files == 1)
    yield project
    appliance.update_project(project, watch=False)


def texts(appliance: Appliance, project: str) -> str:
    return "\n".join(chunk.text for chunk in appliance.export(project))


def runs(appliance: Appliance, project: str) -> int:
    with appliance.connect_database() as connection:
        row = connection.execute(
            "SELECT count(*) FROM operations o JOIN projects p ON p.id = o.project_id WHERE p.name = %s", (project,)
        ).fetchone()
    assert row is not None
    return int(row[0])


def settled(appliance: Appliance, project: str) -> int:
    """Return the number of runs once none has been added for a while."""
    before = -1
    while (now := runs(appliance, project)) != before:
        before = now
        time.sleep(3)
    return before


def test_an_edit_of_a_watched_folder_is_searchable_a_moment_later(
    appliance: Appliance, docs: Path, watched: str
) -> None:
    for number in range(5):
        (docs / "guide.md").write_text(f"# Guide\n\nAbout kayaks, edition {number}.\n")
        until(lambda number=number: f"edition {number}." in texts(appliance, watched), timeout_s=15)
    (docs / "deep" / "er").mkdir(parents=True)
    (docs / "deep" / "er" / "more.md").write_text("# More\n\nAbout canoes.\n")
    until(lambda: "canoes" in texts(appliance, watched), timeout_s=15)
    shutil.rmtree(docs / "deep")
    until(lambda: "canoes" not in texts(appliance, watched), timeout_s=15)


def test_neither_reading_nor_what_is_never_indexed_sets_off_a_run(
    appliance: Appliance, docs: Path, watched: str
) -> None:
    before = settled(appliance, watched)
    for path in docs.rglob("*"):
        path.read_bytes()
    # A verify reads every file.
    appliance.index(watched, verify=True)
    for excluded in (".git", "node_modules", "__pycache__"):
        (docs / excluded).mkdir()
        (docs / excluded / "x.md").write_text("# X\n")
    (docs / ".env").write_text("SECRET=1\n")
    assert settled(appliance, watched) <= before + 2
    idle = psutil.Process(appliance.pid("ingest"))
    used = sum(idle.cpu_times()[:2])
    time.sleep(10)
    assert sum(idle.cpu_times()[:2]) - used < 0.5
    assert runs(appliance, watched) <= before + 2


def test_a_folder_that_was_made_anew_is_watched_again(appliance: Appliance, docs: Path, watched: str) -> None:
    shutil.rmtree(docs)
    docs.mkdir()
    (docs / "guide.md").write_text("# Guide\n\nAbout rafts.\n")
    until(lambda: "rafts" in texts(appliance, watched), timeout_s=60)
    (docs / "guide.md").write_text("# Guide\n\nAbout dinghies.\n")
    until(lambda: "dinghies" in texts(appliance, watched), timeout_s=60)


def test_a_project_is_indexed_by_itself_at_its_interval(appliance: Appliance, docs: Path) -> None:
    appliance.create_project("every-ten-seconds", [docs], model="")
    project = appliance.update_project("every-ten-seconds", sync_interval=duration_pb2.Duration(seconds=10))
    assert project.sync_interval.seconds == 10
    until(lambda: appliance.status("every-ten-seconds").files == 1, timeout_s=30)
    (docs / "guide.md").write_text("# Guide\n\nAbout barges.\n")
    until(lambda: "barges" in texts(appliance, "every-ten-seconds"), timeout_s=30)
    appliance.update_project("every-ten-seconds", sync_interval=duration_pb2.Duration())
    before = settled(appliance, "every-ten-seconds")
    time.sleep(12)
    assert runs(appliance, "every-ten-seconds") == before


def test_an_interval_that_is_too_short_is_refused(appliance: Appliance, docs: Path) -> None:
    appliance.create_project("too-often", [docs], model="")
    for seconds in (1, -5):
        with pytest.raises(grpc.RpcError) as refused:
            appliance.update_project("too-often", sync_interval=duration_pb2.Duration(seconds=seconds))
        assert explain(refused.value).reason == "INVALID_SYNC_INTERVAL"
