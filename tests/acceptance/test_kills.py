"""G14 and G15 under kill -9: whatever is killed, readers see whole generations, and committed embeddings are kept."""

from __future__ import annotations

import os
import random
import re
import threading
import time
from pathlib import Path

import grpc
import pytest
from undercroft.common.v1 import common_pb2
from undercroft.ingest.v1 import index_run_pb2, index_service_pb2
from undercroft.search.v1 import search_service_pb2

from tests.support.appliance import Appliance

FILES = 24
# `make endurance` asks for many more.
ROUNDS = int(os.environ.get("UNDERCROFT_TEST_KILLS", "20"))
_STAGES = (
    index_run_pb2.INDEX_STAGE_QUEUED,
    index_run_pb2.INDEX_STAGE_DISCOVER,
    index_run_pb2.INDEX_STAGE_EXTRACT,
    index_run_pb2.INDEX_STAGE_EMBED,
    index_run_pb2.INDEX_STAGE_SIDECARS,
    index_run_pb2.INDEX_STAGE_PUBLISH,
)
_VERSION = re.compile(r"version (\d+)")


def write_version(folder: Path, version: int) -> None:
    """Give every file a new text, all of one version."""
    for number in range(FILES):
        body = f'def part_{number}():\n    """Marker of part {number}, version {version}."""\n    return {number}\n'
        (folder / f"part_{number}.py").write_text(body)


def wait_for_stage(appliance: Appliance, operation: str, stage: int) -> None:
    """Return as soon as a run is seen in a stage or beyond."""
    request = index_service_pb2.WatchIndexRunRequest(operation=operation)
    for update in appliance.client.index.WatchIndexRun(request):
        if update.done or update.report.stage >= stage:
            return


class Reader(threading.Thread):
    """Asks without pause, and notes every answer that is not of one whole generation."""

    def __init__(self, appliance: Appliance, project: str) -> None:
        super().__init__()
        self._appliance = appliance
        self._project = f"projects/{project}"
        self._ended = threading.Event()
        self.violations: list[str] = []
        self.versions: dict[int, int] = {}
        self.answers = 0

    def run(self) -> None:
        presets = ("lexical", "hybrid", "dense")
        last = 0
        while not self._ended.is_set():
            request = search_service_pb2.SearchRequest(
                query="marker part",
                projects=[self._project],
                preset=presets[self.answers % 3],
                page_size=100,
                filter=common_pb2.Filter(kinds=[common_pb2.CHUNK_KIND_FUNCTION]),
            )
            try:
                response = self._appliance.client.search.Search(request, timeout=30)
            except grpc.RpcError as error:
                # A killed search service answers nothing, which is no wrong answer; a degraded one says so.
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION):
                    self.violations.append(f"{error.code()}: {error.details()}")
                time.sleep(0.05)
                continue
            self.answers += 1
            generation = response.snapshots[0].generation
            found = {match[1] for hit in response.hits if (match := _VERSION.search(hit.text))}
            if len(response.hits) != FILES or len(found) != 1:
                self.violations.append(f"generation {generation}: {len(response.hits)} hits of versions {found}")
                continue
            version = int(found.pop())
            if self.versions.setdefault(generation, version) != version:
                self.violations.append(
                    f"generation {generation} had version {self.versions[generation]}, then {version}"
                )
            if generation < last:
                self.violations.append(f"generation {generation} came after {last}")
            last = generation

    def end(self) -> None:
        self._ended.set()
        self.join()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_runs_leave_whole_generations_and_keep_what_was_embedded(appliance: Appliance, tmp_path: Path) -> None:
    chosen = random.Random(5)
    folder = tmp_path / "parts"
    folder.mkdir()
    write_version(folder, 0)
    appliance.create_project("killed", [folder])
    started = time.monotonic()
    appliance.index("killed")
    whole_run_s = time.monotonic() - started
    reader = Reader(appliance, "killed")
    reader.start()
    kills = taken_up = re_embedded = resumed = 0
    with appliance.connect_database() as database:
        database.autocommit = True

        def vectors() -> dict[bytes, int]:
            return dict(database.execute("SELECT fingerprint, id FROM vectors").fetchall())

        def generation() -> int:
            row = database.execute("SELECT generation FROM projects WHERE name = 'killed'").fetchone()
            assert row is not None
            return int(row[0])

        for version in range(1, ROUNDS + 1):
            write_version(folder, version)
            before = vectors()
            operation = appliance.start_index("killed")
            # Half of the kills come at any time, half in a stage of their turn: short ones have theirs too.
            if version % 2:
                time.sleep(chosen.uniform(0.02, whole_run_s * 1.1))
            else:
                wait_for_stage(appliance, operation, _STAGES[version // 2 % len(_STAGES)])
                time.sleep(chosen.uniform(0.0, 0.03))
            at_kill, was_published = None, False
            if version % 5 == 0:
                appliance.kill("search")
            else:
                appliance.kill("ingest")
                kills += 1
                at_kill, was_published = vectors(), generation() == version + 1
                appliance.wait_serving("ingest")
            report = appliance.wait(operation)
            taken_up += report.attempts > 1
            after = vectors()
            # A vector that was committed keeps its row: it was neither made anew nor replaced.
            assert before.items() <= after.items()
            assert len(after) == len(before) + FILES
            if at_kill is not None:
                assert at_kill.items() <= after.items()
                # Killed behind its last transaction, the report that is told is that of the killed attempt.
                if report.attempts > 1 and not was_published:
                    # Only what was not committed at the kill was embedded by the run that took over.
                    re_embedded += max(0, report.embeddings.embedded - (len(after) - len(at_kill)))
                    resumed += report.files.resumed
            assert report.generation == version + 1
    # The last kill was of search; other tests need it.
    appliance.wait_ready("search")
    appliance.wait_serving("search")
    reader.end()
    assert not reader.violations, reader.violations[:5]
    assert reader.answers > ROUNDS
    assert kills == ROUNDS - ROUNDS // 5
    assert taken_up > 0
    assert re_embedded == 0
    print(
        f"{kills} kills of ingest, {ROUNDS - kills} of search, {taken_up} runs taken up with {resumed} files extracted"
        f" before, {reader.answers} answers checked, {re_embedded} texts embedded again"
    )
