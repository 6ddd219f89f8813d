"""G16 to G18: whatever becomes of sidecar files, it is seen, mended from Postgres alone, and no answer changes."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from undercroft.ingest.v1 import index_service_pb2

from tests.support.appliance import Appliance
from tests.support.waiting import until

# `make endurance` asks for many more.
ROUNDS = int(os.environ.get("UNDERCROFT_TEST_DAMAGES", "60"))
QUERIES = ("parse a url", "open the file", "def quote", "decode bytes to text", "raise an error")
PRESETS = ("lexical", "dense", "hybrid", "rrf")

Answers = dict[tuple[str, str], list[tuple[str, float]]]


@pytest.fixture(scope="module")
def project(appliance: Appliance, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("damaged") / "code"
    folder.mkdir()
    for number in range(40):
        body = f'def quote_{number}(url):\n    """Parse a url, open the file {number} and decode bytes to text."""\n'
        (folder / f"quote_{number}.py").write_text(body + f"    raise ValueError({number})\n")
    appliance.create_project("damaged", [folder])
    appliance.index("damaged")
    # Two generations, so that the lexical index has segments and dead rows.
    (folder / "quote_0.py").write_text('def quote_zero():\n    """Parse nothing."""\n')
    appliance.index("damaged")
    return "damaged"


def answers(appliance: Appliance, project: str) -> Answers:
    found = {}
    for preset in PRESETS:
        for query in QUERIES:
            response = appliance.search(query, project, preset=preset, page_size=100)
            found[preset, query] = [(hit.chunk_key, hit.score) for hit in response.hits]
    return found


def files_of(appliance: Appliance, project: str) -> list[Path]:
    # Two files of an index may be the same bytes.
    names = {one.sha256 for one in appliance.status(project).sidecars}
    return [appliance.home / "sidecars" / name[:2] / name for name in sorted(names)]


def repair(appliance: Appliance, project: str) -> index_service_pb2.RepairProjectResponse:
    request = index_service_pb2.RepairProjectRequest(project=f"projects/{project}")
    response: index_service_pb2.RepairProjectResponse = appliance.client.index.RepairProject(request, timeout=60)
    return response


def flip(path: Path, files: list[Path], chosen: random.Random) -> None:
    raw = bytearray(path.read_bytes())
    raw[chosen.randrange(len(raw))] ^= 1 << chosen.randrange(8)
    path.write_bytes(raw)


def truncate(path: Path, files: list[Path], chosen: random.Random) -> None:
    with path.open("r+b") as file:
        file.truncate(chosen.randrange(path.stat().st_size))


def delete(path: Path, files: list[Path], chosen: random.Random) -> None:
    path.unlink()


def swap(path: Path, files: list[Path], chosen: random.Random) -> None:
    other = chosen.choice([one for one in files if one != path])
    mine, others = path.read_bytes(), other.read_bytes()
    path.write_bytes(others)
    other.write_bytes(mine)


DAMAGES: tuple[Callable[[Path, list[Path], random.Random], None], ...] = (flip, truncate, delete, swap)


def embedded_texts(appliance: Appliance) -> int:
    with appliance.connect_database() as database:
        row = database.execute("SELECT count(*), coalesce(max(id), 0) FROM vectors").fetchone()
    assert row is not None
    return int(row[0]) * 1_000_000 + int(row[1])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_damage_is_seen_and_mended_and_changes_no_answer(appliance: Appliance, project: str) -> None:
    chosen = random.Random(11)
    before, cache = answers(appliance, project), embedded_texts(appliance)
    assert all(found for (_, query), found in before.items() if query == "parse a url")
    assert not repair(appliance, project).damages
    seen: Counter[str] = Counter()
    for number in range(1, ROUNDS + 1):
        files = files_of(appliance, project)
        damage = DAMAGES[number % len(DAMAGES)]
        path = chosen.choice(files)
        damage(path, files, chosen)
        response = repair(appliance, project)
        if not response.damages:
            # Search met it first and asked for the repair.
            assert files_of(appliance, project) != files
        assert not repair(appliance, project).damages
        seen[damage.__name__] += 1
        if number % 20 == 0:
            # A search service that starts anew serves from what was rebuilt.
            appliance.kill("search")
            time.sleep(0.2)
            appliance.wait_serving("search")
        if number % 5 == 0:
            assert answers(appliance, project) == before
    assert answers(appliance, project) == before
    assert embedded_texts(appliance) == cache
    assert sum(seen.values()) == ROUNDS
    print(f"{ROUNDS} damages seen and mended: {dict(seen)}")


def test_an_index_that_lacks_what_postgres_has_is_no_whole_index(appliance: Appliance, project: str) -> None:
    """A file may be as it was written, and written wrong: the counts tell, and so does asking it for what it holds."""
    before = answers(appliance, project)
    with appliance.connect_database() as database:
        database.execute(
            """
            UPDATE generations g SET counts = g.counts || '{"documents": 7}'
            FROM projects p WHERE p.id = g.project_id AND g.number = p.generation AND p.name = %s
            """,
            (project,),
        )
        database.commit()
    response = repair(appliance, project)
    assert any("instead of 7" in one for one in response.damages)
    assert not repair(appliance, project).damages
    assert answers(appliance, project) == before


def test_many_repairs_at_once_leave_the_service_answering(appliance: Appliance, project: str) -> None:
    """More callers than the service has connections: each is answered, and others meanwhile."""
    for path in files_of(appliance, project):
        path.unlink()
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(repair, appliance, project) for _ in range(12)]
        assert appliance.status(project).files > 0
        answered = [one.result(timeout=60) for one in asked]
    assert any(one.damages for one in answered)
    assert not repair(appliance, project).damages


def test_damage_is_mended_when_the_service_starts(appliance: Appliance, project: str) -> None:
    before = answers(appliance, project)
    for path in files_of(appliance, project):
        path.unlink()
    appliance.kill("ingest")
    time.sleep(0.2)
    appliance.wait_serving("ingest")
    until(lambda: all(path.exists() for path in files_of(appliance, project)))
    assert not repair(appliance, project).damages
    assert answers(appliance, project) == before


def test_a_repair_leaves_generations_that_are_kept_their_files(appliance: Appliance, tmp_path: Path) -> None:
    folder = tmp_path / "older"
    folder.mkdir()
    for number in range(30):
        (folder / f"m_{number}.py").write_text(f"def paged_{number}():\n    return {number}\n")
    appliance.create_project("older", [folder], model="")
    appliance.index("older")
    first = appliance.search("return paged", "older", preset="lexical", page_size=10)
    (folder / "m_0.py").write_text("def other_text():\n    return 0\n")
    appliance.index("older")
    live = {one.sha256 for one in appliance.status("older").sidecars}
    with appliance.connect_database() as database:
        rows = database.execute(
            """
            SELECT encode(s.sha256, 'hex') FROM sidecars s JOIN projects p ON p.id = s.project_id AND p.name = 'older'
            WHERE s.born = 2
            """
        ).fetchall()
    (newest, *_) = sorted({row[0] for row in rows} & live)
    (appliance.home / "sidecars" / newest[:2] / newest).unlink()
    assert repair(appliance, "older").damages
    appliance.kill("search")
    time.sleep(0.2)
    appliance.wait_serving("search")
    second = appliance.search("return paged", "older", preset="lexical", page_size=10, page_token=first.next_page_token)
    assert second.snapshots[0].generation == 1
    assert len(second.hits) == 10


def test_leftovers_are_collected_and_live_files_never(appliance: Appliance, project: str, tmp_path: Path) -> None:
    """G17: what a killed write left goes once it is old; what a row names stays, however old it is."""
    volume = appliance.home / "sidecars"
    leftovers = [volume / "ab" / ".tmp-0123", volume / "cd" / ("cd" * 32)]
    young = volume / "ef" / ".tmp-4567"
    for path in (*leftovers, young):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"left over")
    long_ago = time.time() - 7 * 86400
    # What can't be removed must neither end the sweep nor the worker that sweeps.
    foreign = volume / "ab" / "folder"
    foreign.mkdir()
    for path in (*leftovers, foreign, *files_of(appliance, project)):
        os.utime(path, (long_ago, long_ago))
    other = tmp_path / "collected"
    other.mkdir()
    (other / "one.py").write_text("def one():\n    return 1\n")
    appliance.create_project("collected", [other], model="")
    appliance.index("collected")
    until(lambda: not any(path.exists() for path in leftovers))
    for number in range(4):
        (other / "one.py").write_text(f"def one():\n    return {number + 2}\n")
        assert appliance.index("collected").published
    foreign.rmdir()
    assert young.exists()
    young.unlink()
    assert all(path.exists() for path in files_of(appliance, project))
    assert not repair(appliance, project).damages
