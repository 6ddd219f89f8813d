"""A query that was asked before costs no inference, and its answer is the same to the bit; another model is another
query."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from undercroft.common.v1 import common_pb2
from undercroft.embed.v1 import embed_pb2, embed_service_pb2
from undercroft.search.v1 import search_pb2

from services.search.steps.base import QueryVector
from tests.support.appliance import MODEL, MODELS, Appliance
from tests.support.models import make_projected_model
from tests.support.waiting import until

OTHER = "projected-128"
LONGEST_QUERY = "how are sessions of 利用者 closed " * 256


@pytest.fixture
def project(appliance: Appliance, tmp_path: Path) -> str:
    name = f"sessions-{uuid.uuid4().hex[:8]}"
    folder = tmp_path / "code"
    folder.mkdir()
    for number, verb in enumerate(("open", "close", "renew", "expire", "count", "list")):
        body = f'def {verb}_session(user):\n    """{verb.capitalize()} the session of a user of {name}."""\n'
        (folder / f"session_{number}.py").write_text(f"{body}    return user.sessions.{verb}()\n")
    appliance.create_project(name, [folder])
    appliance.index(name)
    return name


def metric(appliance: Appliance, service: str, name: str, **labels: str) -> float:
    """Return a metric as the service tells it, 0 before it was first counted."""
    record = json.loads((appliance.home / "run" / "appliance.json").read_text())
    target = next(one["metrics_target"] for one in record["services"] if one["name"] == service)
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as response:
        families = list(text_string_to_metric_families(response.read().decode()))
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return sum(one.value for one in samples if labels.items() <= one.labels.items())


def queries_embedded(appliance: Appliance) -> int:
    return round(metric(appliance, "embed", "undercroft_embed_texts_total", purpose="query"))


def lookups(appliance: Appliance, result: str) -> int:
    return round(metric(appliance, "search", "undercroft_search_query_cache_lookups_total", result=result))


def hits(appliance: Appliance, project: str, query: str, preset: str = "dense") -> list[search_pb2.Hit]:
    return list(appliance.search(query, project, preset=preset, page_size=100).hits)


def exact_scores(appliance: Appliance, project: str, model: str, query: str) -> dict[str, float]:
    """Return the inner products of a query that is embedded anew with what is live, by chunk key."""
    request = embed_service_pb2.EmbedRequest(model=model, texts=[query], task=embed_pb2.EMBED_TASK_QUERY)
    vector = QueryVector(appliance.client.embed.Embed(request, timeout=60).vectors.values)
    with appliance.connect_database() as database:
        rows = database.execute(
            """
            SELECT c.key, -(v.embedding::vector <#> %s::vector)
            FROM chunks c JOIN projects p ON p.id = c.project_id AND p.name = %s
            JOIN contents t ON t.id = c.content_id JOIN vectors v ON v.fingerprint = t.fingerprint
            WHERE c.died IS NULL
            """,
            (vector.text, project),
        ).fetchall()
    return dict(rows)


@pytest.mark.parametrize("preset", ["dense", "hybrid"])
@pytest.mark.parametrize("query", ["where does a session end?", LONGEST_QUERY[:8192]], ids=["short", "longest"])
def test_a_query_asked_again_makes_no_call_and_the_same_answer(
    appliance: Appliance, project: str, query: str, preset: str
) -> None:
    embedded, hit = queries_embedded(appliance), lookups(appliance, "hit")
    query = f"{preset}: {query}"[:8192]
    first = hits(appliance, project, query, preset)
    assert first
    assert queries_embedded(appliance) == embedded + 1
    assert [hits(appliance, project, query, preset) for _ in range(5)] == [first] * 5
    assert queries_embedded(appliance) == embedded + 1
    assert lookups(appliance, "hit") == hit + 5
    assert metric(appliance, "search", "undercroft_search_query_cache_entries") >= 1
    assert metric(appliance, "search", "undercroft_search_query_cache_bytes") >= len(query)


def test_a_query_of_many_callers_at_once_is_embedded_once(appliance: Appliance, project: str) -> None:
    embedded = queries_embedded(appliance)
    query = "which sessions have run out, asked by many"
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: hits(appliance, project, query), range(64)))
    assert answers[0]
    assert answers == [answers[0]] * 64
    assert queries_embedded(appliance) == embedded + 1


def test_another_model_answers_with_its_own_vectors_and_the_way_back_with_those_kept(
    appliance: Appliance, project: str
) -> None:
    make_projected_model(MODELS / MODEL, appliance.home / "models" / OTHER, dimensions=128)
    query = "where does a session end, by two models?"

    def scores() -> dict[str, float]:
        return {hit.chunk_key: part.score for hit in hits(appliance, project, query) for part in hit.parts}

    before, embedded = scores(), queries_embedded(appliance)
    exact = exact_scores(appliance, project, MODEL, query)
    assert before.items() <= exact.items()
    appliance.update_project(project, embedding_model=OTHER)
    appliance.index(project)
    after = scores()
    exact = exact_scores(appliance, project, OTHER, query)
    assert after
    assert after.items() <= exact.items()
    assert after != before
    assert scores() == after
    # One for the other model's search, and the two that this test has asked for itself.
    assert queries_embedded(appliance) == embedded + 3
    appliance.update_project(project, embedding_model=MODEL)
    appliance.index(project)
    assert scores() == before
    assert queries_embedded(appliance) == embedded + 3


def test_known_queries_are_answered_by_meaning_while_the_embed_service_is_away(
    appliance: Appliance, project: str
) -> None:
    query = "where does a session end while nobody embeds?"
    before = hits(appliance, project, query)
    appliance.kill("embed")
    try:
        assert hits(appliance, project, query) == before
    finally:
        appliance.wait_ready("embed")
    assert queries_embedded(appliance) == 0


def test_an_embed_service_that_hangs_costs_one_query_and_not_each(appliance: Appliance, project: str) -> None:
    def asked(number: int) -> tuple[float, bool]:
        """Return how long a new query took, and whether it was answered by meaning too."""
        started = time.monotonic()
        answer = appliance.search(f"where does session {number} end while nobody answers?", project)
        legs = {leg.leg: leg for leg in answer.legs}
        assert answer.hits
        assert legs["dense"].reason or legs["dense"].state == common_pb2.METHOD_STATE_READY
        return time.monotonic() - started, legs["dense"].state == common_pb2.METHOD_STATE_READY

    assert asked(0)[1]
    process = appliance.pid("embed")
    os.kill(process, signal.SIGSTOP)
    try:
        seconds, by_meaning = asked(1)
        assert 4 < seconds < 9
        assert not by_meaning
        for number in range(2, 5):
            seconds, by_meaning = asked(number)
            assert seconds < 2
            assert not by_meaning
    finally:
        os.kill(process, signal.SIGCONT)
    number = iter(range(5, 1000))
    until(lambda: asked(next(number))[1])
