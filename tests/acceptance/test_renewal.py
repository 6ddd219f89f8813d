"""G10, G19: clear, force and re-embed are all or nothing, and cost what they have to cost."""

from __future__ import annotations

import time
from pathlib import Path

import grpc
import numpy as np
import pytest
from undercroft.common.v1 import common_pb2
from undercroft.ingest.v1 import project_service_pb2

from tests.support.appliance import Appliance

FUNCTIONS = 12


@pytest.fixture
def project(appliance: Appliance, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Index a folder whose texts no other test has."""
    name = request.node.name.split("[")[0].removeprefix("test_").replace("_", "-")[:50].strip("-")
    folder = tmp_path / "code"
    folder.mkdir()
    for number in range(FUNCTIONS):
        body = f'def {name.replace("-", "_")}_{number}():\n    """Return {number} of {name}."""\n    return {number}\n'
        (folder / f"part_{number}.py").write_text(body)
    appliance.create_project(name, [folder])
    assert appliance.index(name).embeddings.embedded == FUNCTIONS
    return name


def vectors_of(appliance: Appliance, project: str) -> dict[bytes, tuple[int, str]]:
    """Return id and value of the cached vectors of a project's live texts, by fingerprint."""
    with appliance.connect_database() as database:
        rows = database.execute(
            """
            SELECT DISTINCT t.fingerprint, v.id, v.embedding::text FROM chunks c
            JOIN projects p ON p.id = c.project_id AND p.name = %s
            JOIN contents t ON t.id = c.content_id JOIN vectors v ON v.fingerprint = t.fingerprint
            WHERE c.died IS NULL
            """,
            (project,),
        ).fetchall()
    return {bytes(row[0]): (row[1], row[2]) for row in rows}


def ranking(appliance: Appliance, project: str, **fields: object) -> list[tuple[str, float]]:
    words = project.replace("-", " ")
    response = appliance.search(f"def {words} return 3 of {words}", project, preset="dense", page_size=100, **fields)
    found = [(hit.chunk_key, hit.score) for hit in response.hits]
    assert found
    return found


def test_clear_empties_a_project_and_indexing_it_again_embeds_nothing(appliance: Appliance, project: str) -> None:
    before = ranking(appliance, project)
    report = appliance.clear(project)
    assert report.published
    assert (report.files.deleted, report.chunks.removed) == (FUNCTIONS, FUNCTIONS)
    status = appliance.status(project)
    assert (status.files, status.chunks, status.symbols) == (0, 0, 0)
    assert status.snapshot.stale
    assert "cleared" in status.snapshot.stale_reason
    assert not appliance.search("return a number", project).hits
    assert not appliance.clear(project).published
    again = appliance.index(project)
    assert (again.files.new, again.embeddings.embedded) == (FUNCTIONS, 0)
    assert ranking(appliance, project) == before
    assert not appliance.status(project).snapshot.stale


def test_force_extracts_every_file_and_changes_nothing(appliance: Appliance, project: str) -> None:
    before = appliance.export(project)
    report = appliance.index(project, force=True)
    assert report.files.read == FUNCTIONS
    assert report.files.unchanged == FUNCTIONS
    assert "force" in report.renewal_reason
    assert report.embeddings.embedded == 0
    assert not report.published
    assert appliance.export(project) == before


def test_re_embed_of_a_right_cache_changes_nothing(appliance: Appliance, project: str) -> None:
    before = vectors_of(appliance, project)
    report = appliance.index(project, re_embed=True)
    assert report.embeddings.embedded == FUNCTIONS
    assert report.embeddings.cache_hits == 0
    assert "re-embed" in report.renewal_reason
    assert not report.published
    assert vectors_of(appliance, project) == before


def test_re_embed_replaces_wrong_vectors_and_leaves_the_older_generation_whole(
    appliance: Appliance, project: str
) -> None:
    right = vectors_of(appliance, project)
    right_ranking = ranking(appliance, project)
    wrong = "[" + ",".join(str(x) for x in np.eye(384)[7]) + "]"
    some = sorted(right)[:5]
    with appliance.connect_database() as database:
        database.execute("UPDATE vectors SET embedding = %s::halfvec WHERE fingerprint = ANY(%s)", (wrong, some))
    generation = appliance.status(project).snapshot.generation
    wrong_ranking = ranking(appliance, project)
    assert wrong_ranking != right_ranking

    report = appliance.index(project, re_embed=True)
    assert report.published
    assert report.embeddings.embedded == FUNCTIONS
    now = vectors_of(appliance, project)
    assert {key: value for key, (_, value) in now.items()} == {key: value for key, (_, value) in right.items()}
    # Right ones keep their ids; a replaced one has another, so that no file of codes is of two vectors.
    assert {key for key in now if now[key][0] != right[key][0]} == set(some)
    assert ranking(appliance, project) == right_ranking
    pinned = common_pb2.ProjectGeneration(project=f"projects/{project}", generation=generation)
    assert ranking(appliance, project, generations=[pinned]) == wrong_ranking
    status = appliance.status(project)
    assert next(one.count for one in status.methods if one.method == "dense") == FUNCTIONS


def test_re_embed_killed_at_any_point_replaces_all_or_nothing(appliance: Appliance, project: str) -> None:
    right = vectors_of(appliance, project)
    wrong = "[" + ",".join(str(x) for x in np.eye(384)[3]) + "]"
    with appliance.connect_database() as database:
        database.execute("UPDATE vectors SET embedding = %s::halfvec WHERE fingerprint = ANY(%s)", (wrong, list(right)))
        database.commit()
        operation = appliance.start_index(project, re_embed=True)
        appliance.kill("ingest")
        seen = {
            row[0]
            for row in database.execute(
                "SELECT count(*) FROM vectors WHERE fingerprint = ANY(%s) AND embedding = %s::halfvec",
                (list(right), wrong),
            )
        }
    assert seen <= {0, FUNCTIONS}
    appliance.wait_serving("ingest")
    assert appliance.wait(operation).published
    now = vectors_of(appliance, project)
    assert {key: value for key, (_, value) in now.items()} == {key: value for key, (_, value) in right.items()}


def test_options_of_a_run_do_not_need_the_embed_service_unless_they_embed(appliance: Appliance, project: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        appliance.update_project(project, embedding_model="no-such-model")
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert appliance.index(project).embeddings.model == "all-minilm-l6-v2"


def test_a_run_that_is_killed_after_its_last_transaction_does_nothing_twice(appliance: Appliance, project: str) -> None:
    wrong = "[" + ",".join(str(x) for x in np.eye(384)[5]) + "]"
    right = vectors_of(appliance, project)
    with appliance.connect_database() as database:
        database.execute("UPDATE vectors SET embedding = %s::halfvec WHERE fingerprint = ANY(%s)", (wrong, list(right)))
    operation = appliance.start_index(project, re_embed=True)
    first = appliance.wait(operation)
    with appliance.connect_database() as database:
        # As a kill between publishing and the end of the run leaves it.
        database.execute(
            "UPDATE operations SET state = 'running', ended_at = NULL WHERE id = %s",
            (int(operation.rpartition("/")[2]),),
        )
    appliance.kill("ingest")
    time.sleep(0.2)
    appliance.wait_serving("ingest")
    again = appliance.wait(operation)
    # The service may have taken it up once more before it was killed.
    assert again.attempts >= 2
    assert (again.generation, again.published) == (first.generation, True)
    assert again.embeddings.embedded == first.embeddings.embedded
    assert appliance.status(project).snapshot.generation == first.generation
    assert {key: value for key, (_, value) in vectors_of(appliance, project).items()} == {
        key: value for key, (_, value) in right.items()
    }


def test_what_a_generation_was_not_made_with_makes_it_stale(appliance: Appliance, project: str, tmp_path: Path) -> None:
    other = tmp_path / "more"
    other.mkdir()
    (other / "late.py").write_text("def added_late():\n    return 1\n")
    appliance.add_source(project, other)
    assert "more was added" in appliance.status(project).snapshot.stale_reason
    appliance.index(project)
    assert not appliance.status(project).snapshot.stale
    name = f"projects/{project}/sources/more"
    appliance.client.projects.DeleteSource(project_service_pb2.DeleteSourceRequest(name=name))
    assert "more was removed" in appliance.status(project).snapshot.stale_reason
    appliance.index(project)
    assert not appliance.status(project).snapshot.stale
    appliance.update_project(project, display_name="Another name")
    assert not appliance.status(project).snapshot.stale
    appliance.update_project(project, embedding_model="")
    assert "embedding model" in appliance.status(project).snapshot.stale_reason
