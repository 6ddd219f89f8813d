"""G11: another model is built beside the live generation, which serves until the flip; the way back embeds nothing."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import grpc
import pytest
from undercroft.common.v1 import common_pb2
from undercroft.ingest.v1 import index_run_pb2, index_service_pb2
from undercroft.search.v1 import search_service_pb2

from tests.support.appliance import MODEL, MODELS, Appliance, undercroft
from tests.support.models import make_projected_model

OTHER = "projected-256"
FILES = 30


@pytest.fixture(scope="module")
def other_model(appliance: Appliance) -> str:
    make_projected_model(MODELS / MODEL, appliance.home / "models" / OTHER, dimensions=256)
    return OTHER


@pytest.fixture
def project(appliance: Appliance, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    name = request.node.name.removeprefix("test_").replace("_", "-")[:50].strip("-")
    folder = tmp_path / "code"
    folder.mkdir()
    for number in range(FILES):
        body = f'def handler_{number}(request):\n    """Answer request {number} of {name}."""\n    return request\n'
        (folder / f"handler_{number}.py").write_text(body)
    appliance.create_project(name, [folder])
    appliance.index(name)
    return name


class Reader(threading.Thread):
    """Asks without pause, and notes which generation answered with how many hits."""

    def __init__(self, appliance: Appliance, project: str) -> None:
        super().__init__()
        self._appliance, self._project = appliance, project
        self._ended = threading.Event()
        self.answers: list[tuple[int, int]] = []
        self.failures: list[str] = []

    def run(self) -> None:
        while not self._ended.is_set():
            request = search_service_pb2.SearchRequest(
                query="answer a request", projects=[f"projects/{self._project}"], preset="dense", page_size=100
            )
            try:
                response = self._appliance.client.search.Search(request, timeout=60)
            except grpc.RpcError as error:
                self.failures.append(f"{error.code()}: {error.details()}")
                continue
            self.answers.append((response.snapshots[0].generation, len(response.hits)))

    def end(self) -> None:
        self._ended.set()
        self.join()


def dimensions_of(appliance: Appliance, project: str) -> set[tuple[int, int]]:
    """Return (length of the vectors, length that the generation says) of what is live."""
    with appliance.connect_database() as database:
        return set(
            database.execute(
                """
                SELECT vector_dims(v.embedding), g.model_dimensions
                FROM chunks c JOIN projects p ON p.id = c.project_id AND p.name = %s
                JOIN generations g ON g.project_id = p.id AND g.number = p.generation
                JOIN contents t ON t.id = c.content_id JOIN vectors v ON v.fingerprint = t.fingerprint
                WHERE c.died IS NULL
                """,
                (project,),
            ).fetchall()
        )


def ranking(appliance: Appliance, project: str) -> list[tuple[str, float]]:
    response = appliance.search("answer a request", project, preset="dense", page_size=100)
    return [(hit.chunk_key, hit.score) for hit in response.hits]


def test_a_model_is_changed_beside_the_live_generation_and_back_from_the_cache(
    appliance: Appliance, project: str, other_model: str
) -> None:
    before = ranking(appliance, project)
    first = appliance.status(project).snapshot.generation
    appliance.update_project(project, embedding_model=other_model)
    assert ranking(appliance, project) == before, "the old generation serves until the next run publishes"
    reader = Reader(appliance, project)
    reader.start()
    report = appliance.index(project)
    reader.end()
    assert report.published
    assert report.embeddings.embedded == FILES
    assert f"changed from {MODEL} to {other_model}" in report.renewal_reason
    assert not reader.failures
    assert reader.answers
    # Each answer is whole, and of the generation before or the one after.
    assert {hits for _, hits in reader.answers} == {FILES}
    generations = [generation for generation, _ in reader.answers]
    assert set(generations) <= {first, report.generation}
    assert generations == sorted(generations)
    assert dimensions_of(appliance, project) == {(256, 256)}
    assert ranking(appliance, project) != before

    appliance.update_project(project, embedding_model=MODEL)
    back = appliance.index(project)
    assert back.published
    assert (back.embeddings.embedded, back.embeddings.cache_hits) == (0, FILES)
    assert ranking(appliance, project) == before
    assert dimensions_of(appliance, project) == {(384, 384)}


def test_an_admin_verifies_loads_and_activates_models_without_a_restart(
    appliance: Appliance, project: str, other_model: str
) -> None:
    def run(*arguments: str, check: bool = True) -> str:
        return undercroft("models", *arguments, home=appliance.home, check=check).stdout

    embed = appliance.pid("embed")
    assert "as its manifest says" in run("verify", other_model)
    assert "not in memory" in run("unload", other_model)
    assert "not loaded" in next(line for line in run("list").splitlines() if other_model in line)
    assert "loaded" in run("load", other_model)
    assert project in run("activate", other_model, "-p", project)
    assert appliance.index(project).published
    assert dimensions_of(appliance, project) == {(256, 256)}
    refused = undercroft("models", "activate", "no-such-model", "-p", project, home=appliance.home, check=False)
    assert refused.returncode != 0
    assert "no-such-model" in refused.stderr
    assert run("activate", MODEL, "-p", project)
    assert appliance.index(project).published
    assert appliance.pid("embed") == embed


def test_a_damaged_model_is_refused_in_words(appliance: Appliance, other_model: str) -> None:
    weights = next((appliance.home / "models" / other_model).glob("*.bin"))
    # Hard-linked or not: this appliance alone may see the damage.
    content = weights.read_bytes()
    weights.unlink()
    weights.write_bytes(content[:-1])
    try:
        refused = undercroft("models", "verify", other_model, home=appliance.home, check=False)
        assert refused.returncode == 1
        assert f"{weights.name} is damaged" in refused.stdout
    finally:
        weights.write_bytes(content)


def test_a_model_that_goes_away_keeps_the_live_generation(
    appliance: Appliance, project: str, other_model: str, tmp_path: Path
) -> None:
    before = ranking(appliance, project)
    vanishing = appliance.home / "models" / "vanishing"
    shutil.copytree(appliance.home / "models" / other_model, vanishing)
    appliance.update_project(project, embedding_model="vanishing")
    shutil.rmtree(vanishing)
    operation = appliance.start_index(project)
    with pytest.raises(AssertionError, match="MODEL_CHANGE_NOT_POSSIBLE"):
        appliance.wait(operation)
    assert ranking(appliance, project) == before
    appliance.update_project(project, embedding_model=MODEL)
    assert appliance.index(project).embeddings.embedded == 0


def test_a_model_change_that_breaks_off_half_way_keeps_the_live_generation(
    appliance: Appliance, project: str, other_model: str
) -> None:
    """With half of the new vectors the answers would be worse than before: the run fails, and the next one goes on."""
    before = ranking(appliance, project)
    generation = appliance.status(project).snapshot.generation
    with appliance.connect_database() as database:
        database.execute("DELETE FROM vectors WHERE vector_dims(embedding) = 256")
    appliance.update_project(project, embedding_model=other_model)
    directory = appliance.home / "models" / other_model
    aside = appliance.home / "models" / "aside"
    request = index_service_pb2.WatchIndexRunRequest(operation=appliance.start_index(project))
    for update in appliance.client.index.WatchIndexRun(request):
        if update.report.stage == index_run_pb2.INDEX_STAGE_EXTRACT:
            directory.rename(aside)
            appliance.kill("embed")
            break
    try:
        with pytest.raises(AssertionError, match="code: (9|14)"):
            appliance.wait(request.operation)
        assert appliance.status(project).snapshot.generation == generation
    finally:
        aside.rename(directory)
    appliance.wait_ready("embed")
    assert ranking(appliance, project) == before
    report = appliance.index(project)
    assert report.published
    assert dimensions_of(appliance, project) == {(256, 256)}


def test_a_model_is_not_changed_by_halves_when_a_source_can_not_be_read(
    appliance: Appliance, project: str, other_model: str, tmp_path: Path
) -> None:
    """What can't be extracted anew would keep vectors of the former model beside those of the new one."""
    more = tmp_path / "more"
    more.mkdir()
    (more / "extra.py").write_text('def extra(request):\n    """Answer a request elsewhere."""\n    return request\n')
    appliance.add_source(project, more)
    appliance.index(project)
    before = ranking(appliance, project)
    more.rename(tmp_path / "away")
    appliance.update_project(project, embedding_model=other_model)
    with pytest.raises(AssertionError, match="RENEWAL_NOT_POSSIBLE"):
        appliance.wait(appliance.start_index(project))
    assert ranking(appliance, project) == before
    assert dimensions_of(appliance, project) == {(384, 384)}
    (tmp_path / "away").rename(more)
    assert appliance.index(project).published
    assert dimensions_of(appliance, project) == {(256, 256)}


def test_a_model_that_is_missing_is_seen_without_a_search(
    appliance: Appliance, project: str, other_model: str, tmp_path: Path
) -> None:
    def dense() -> common_pb2.MethodStatus:
        return next(one for one in appliance.status(project).methods if one.method == "dense")

    def listed(*command: str) -> str:
        return undercroft(*command, home=appliance.home).stdout

    borrowed = appliance.home / "models" / "borrowed"
    shutil.copytree(appliance.home / "models" / other_model, borrowed)
    appliance.update_project(project, embedding_model="borrowed")
    assert "→ borrowed" in listed("projects", "list")
    assert dense().state == common_pb2.METHOD_STATE_STALE
    assert "borrowed" in dense().reason
    appliance.index(project)
    assert dense().state == common_pb2.METHOD_STATE_READY
    assert project[:10] in listed("models", "list")

    refused = undercroft("models", "remove", "borrowed", home=appliance.home, check=False)
    assert refused.returncode != 0
    assert project in refused.stderr
    borrowed.rename(tmp_path / "away")
    assert (dense().state, "borrowed" in dense().reason) == (common_pb2.METHOD_STATE_DEGRADED, True)
    assert "missing" in listed("models", "list")
    answer = appliance.search("answer a request that nobody asked before", project)
    (problem,) = [leg for leg in answer.legs if leg.leg == "dense"]
    assert problem.remedy
    assert problem.remedy not in problem.reason
    (tmp_path / "away").rename(borrowed)
    assert dense().state == common_pb2.METHOD_STATE_READY

    appliance.update_project(project, embedding_model=MODEL)
    appliance.index(project)
    undercroft("models", "remove", "borrowed", home=appliance.home)
    assert not borrowed.exists()
