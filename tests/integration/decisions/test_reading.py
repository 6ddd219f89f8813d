"""Listing and getting decisions: whole, exact at their generation, linked, and only to those who may see them."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, unquote

import grpc
import pytest
from undercroft.decisions.v1 import decision_pb2, decision_service_pb2, decision_service_pb2_grpc

from services.core.authorization import Visible
from services.core.grpc import ErrorInterceptor, error_reason, open_channel
from services.core.pages import PageTokens
from services.decisions.clients import SearchClient
from services.decisions.server import DecisionServicer
from services.decisions.service import DecisionService
from tests.integration.decisions.conftest import Project, Server, index

_EVAL = os.environ.get("UNDERCROFT_EVAL")
CORPORA = (Path(_EVAL) if _EVAL else Path(__file__).resolve().parents[4] / "shared" / "eval") / "adr"
NAMES = sorted(path.parent.name for path in CORPORA.glob("*/gold.jsonl"))
needs_corpora = pytest.mark.skipif(not NAMES, reason=f"no labelled records under {CORPORA}")

QUEUE = "docs/adr/0001-use-a-queue.md"
STREAM = "docs/adr/0002-use-a-stream.md"
RECORDS = {
    QUEUE: """# 1. Use a queue

Date: 2024-03-05

## Status

Superseded by [2. Use a stream](0002-use-a-stream.md)

## Context

Orders arrive in bursts; see `shop/orders.py` and gone.py.

## Decision

Orders go through a queue.
""",
    STREAM: """# 2. Use a stream

Date: 2025-01-31

## Status

Accepted

Supersedes [1. Use a queue](0001-use-a-queue.md)
Amends [ADR-77](0077-lost.md)

## Context

Several readers; the folder `shop/readers/` and `Orders.publish()`.

## Decision

A stream.
""",
    "docs/adr/0003-日本語 の記録.md": "# 3. 記録\n\n## Status\n\nProposed\n\n## Decision\n\n決定",
}
CODE = {"shop/orders.py": "x = 1\n", "shop/readers/a.py": "", "gone.txt": ""}


def name_of(project: Project, path: str) -> str:
    return f"projects/{project.name}/decisions/{quote(path, safe='')}"


async def get(server: Server, project: Project, path: str) -> decision_service_pb2.GetDecisionResponse:
    return await server.decisions.GetDecision(decision_service_pb2.GetDecisionRequest(name=name_of(project, path)))


async def list_decisions(
    server: Server, project: Project, **fields: object
) -> decision_service_pb2.ListDecisionsResponse:
    request = decision_service_pb2.ListDecisionsRequest(parent=f"projects/{project.name}", **fields)
    return await server.decisions.ListDecisions(request)


def paths(response: decision_service_pb2.ListDecisionsResponse) -> list[str]:
    return [decision.place.path for decision in response.decisions]


async def refusal(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), error_reason(caught.value)[0]


async def test_a_decision_is_what_its_record_says(server: Server, project: Project) -> None:
    generation = await index(server, project, {**RECORDS, **CODE})
    response = await get(server, project, QUEUE)
    decision = response.decision
    assert decision.name == name_of(project, QUEUE)
    assert (decision.title, decision.number) == ("Use a queue", 1)
    assert decision.status == decision_pb2.DECISION_STATUS_SUPERSEDED
    assert decision.status_text == "Superseded by [2. Use a stream](0002-use-a-stream.md)"
    assert decision.date == "2024-03-05"
    assert (decision.place.project, decision.place.package) == (f"projects/{project.name}", "main")
    assert (decision.place.path, decision.place.span.start_line, decision.place.span.end_line) == (QUEUE, 1, 15)
    assert [(one.role, one.heading) for one in decision.sections] == [
        ("other", "1. Use a queue"),
        ("status", "Status"),
        ("context", "Context"),
        ("decision", "Decision"),
    ]
    assert response.snapshot.generation == generation
    assert response.snapshot.HasField("publish_time")


async def test_links_lead_to_records_and_files_and_tell_what_was_not_found(server: Server, project: Project) -> None:
    await index(server, project, {**RECORDS, **CODE})
    links = {
        path: [(one.kind, one.decision, one.target) for one in (await get(server, project, path)).decision.links]
        for path in (QUEUE, STREAM)
    }
    assert links[QUEUE] == [
        ("superseded_by", name_of(project, STREAM), STREAM),
        ("affects", "", "shop/orders.py"),
    ]
    assert links[STREAM] == [
        ("amends", "", "[ADR-77](0077-lost.md)"),
        ("supersedes", name_of(project, QUEUE), QUEUE),
        ("affects", "", "shop/readers"),
    ]


def eval_files(corpus: str) -> dict[str, str]:
    root = CORPORA / corpus
    found = (path for path in sorted(root.rglob("*")) if path.suffix in (".md", ".rst"))
    return {
        str(path.relative_to(root)): path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
        for path in found
    }


def gold(corpus: str) -> Iterator[Mapping[str, object]]:
    for line in (CORPORA / corpus / "gold.jsonl").read_text("utf-8").splitlines():
        yield json.loads(line)


@needs_corpora
@pytest.mark.parametrize("corpus", NAMES)
async def test_real_records_are_served_as_labelled(server: Server, project: Project, corpus: str) -> None:
    files = eval_files(corpus)
    await index(server, project, files)
    response = await list_decisions(server, project, page_size=500)
    served = {decision.place.path: decision for decision in response.decisions}
    labels = {str(entry["path"]): entry for entry in gold(corpus) if entry["is_decision"]}
    both = served.keys() & labels.keys()
    assert len(both) >= 0.95 * max(len(served), len(labels))
    right = {
        "number": sum(labels[path]["number"] == optional_number(served[path]) for path in both),
        "title": sum(labels[path]["title"] == served[path].title for path in both),
        "status": sum(labels[path]["status"] == status_word(served[path]) for path in both),
        "date": sum((labels[path]["date"] or "") == served[path].date for path in both),
    }
    assert {key: count for key, count in right.items() if count < 0.95 * len(both)} == {}
    for kind in ("supersedes", "superseded_by"):
        told = {
            (path, link.target) for path in both for link in served[path].links if link.kind == kind and link.decision
        }
        expected = {(path, target) for path in both for target in labels[path][kind]}
        assert len(told & expected) >= 0.95 * max(len(told), len(expected))


def optional_number(decision: decision_pb2.Decision) -> int | None:
    return decision.number if decision.HasField("number") else None


def status_word(decision: decision_pb2.Decision) -> str:
    return decision_pb2.DecisionStatus.Name(decision.status).removeprefix("DECISION_STATUS_").lower()


@needs_corpora
@pytest.mark.parametrize("corpus", NAMES)
async def test_spans_open_exactly_the_texts_and_sections_are_the_whole_file(
    server: Server, project: Project, corpus: str
) -> None:
    files = eval_files(corpus)
    await index(server, project, files)
    for listed in (await list_decisions(server, project, page_size=500)).decisions:
        decision = (
            await server.decisions.GetDecision(decision_service_pb2.GetDecisionRequest(name=listed.name))
        ).decision
        lines = files[decision.place.path].split("\n")
        if lines[-1] == "":
            lines.pop()
        assert decision.place.span.end_line == len(lines)
        for section in decision.sections:
            assert section.text == "\n".join(lines[section.span.start_line - 1 : section.span.end_line])
        covered = [n for one in decision.sections for n in range(one.span.start_line, one.span.end_line + 1)]
        assert covered == list(range(covered[0], len(lines) + 1))
        assert not any(line.strip() for line in lines[: covered[0] - 1])


async def test_text_and_span_are_of_the_generation_that_the_answer_names(server: Server, project: Project) -> None:
    await index(server, project, RECORDS)
    # As many lines as before: the row stays, and says of the new text what it said of the old.
    edited = RECORDS[QUEUE].replace("Orders go through a queue.", "Everything goes through a queue.")
    await index(server, project, {QUEUE: edited})
    response = await get(server, project, QUEUE)
    assert response.snapshot.generation == 2
    assert response.decision.sections[-1].text == "## Decision\n\nEverything goes through a queue."
    await index(server, project, {QUEUE: "\n\n" + edited})
    section = (await get(server, project, QUEUE)).decision.sections[-1]
    assert (section.span.start_line, section.text) == (15, "## Decision\n\nEverything goes through a queue.")


async def test_names_with_spaces_and_any_script_lead_to_their_record(server: Server, project: Project) -> None:
    await index(server, project, RECORDS)
    listed = (await list_decisions(server, project)).decisions[-1]
    assert unquote(listed.name).endswith("docs/adr/0003-日本語 の記録.md")
    response = await server.decisions.GetDecision(decision_service_pb2.GetDecisionRequest(name=listed.name))
    assert [one.text for one in response.decision.sections] == [
        "# 3. 記録\n",
        "## Status\n\nProposed\n",
        "## Decision\n\n決定",
    ]


async def test_pages_neither_skip_nor_repeat_across_a_publish(server: Server, project: Project) -> None:
    record = "# {0}. Number {0}\n\n## Status\n\nAccepted\n\n## Decision\n\nx\n"
    files: dict[str, str | None] = {f"docs/adr/{n:04}-x.md": record.format(n) for n in range(10)}
    await index(server, project, files)
    page = await list_decisions(server, project, page_size=3)
    seen = paths(page)
    await index(server, project, {"docs/adr/0001-x.md": None, "docs/adr/0002-y.md": record.format(2)})
    while page.next_page_token:
        page = await list_decisions(server, project, page_size=3, page_token=page.next_page_token)
        assert page.snapshot.generation == 1
        seen += paths(page)
    assert seen == sorted(files)
    after = await list_decisions(server, project, page_size=3)
    assert (paths(after)[:2], after.snapshot.generation) == (["docs/adr/0000-x.md", "docs/adr/0002-x.md"], 2)


async def test_a_page_token_of_another_request_or_of_a_swept_generation_is_refused(
    server: Server, project: Project
) -> None:
    await index(server, project, RECORDS)
    token = (await list_decisions(server, project, page_size=1)).next_page_token
    other = list_decisions(server, project, page_token=token, statuses=[decision_pb2.DECISION_STATUS_ACCEPTED])
    assert await refusal(other) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PAGE_TOKEN")
    forged = list_decisions(server, project, page_token=token[:-4] + "AAAA")
    assert await refusal(forged) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PAGE_TOKEN")
    await index(server, project, {STREAM: None})
    project.sql("DELETE FROM generations WHERE project_id = %s AND number = 1", project.id)
    swept = list_decisions(server, project, page_token=token)
    assert await refusal(swept) == (grpc.StatusCode.FAILED_PRECONDITION, "GENERATION_GONE")


async def test_statuses_restrict_a_list(server: Server, project: Project) -> None:
    await index(server, project, RECORDS)
    accepted = await list_decisions(server, project, statuses=[decision_pb2.DECISION_STATUS_ACCEPTED])
    assert paths(accepted) == [STREAM]
    assert not accepted.decisions[0].sections
    ended = [decision_pb2.DECISION_STATUS_SUPERSEDED, decision_pb2.DECISION_STATUS_PROPOSED]
    assert len(paths(await list_decisions(server, project, statuses=ended))) == 2
    assert (await refusal(list_decisions(server, project, statuses=[17])))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert (await refusal(list_decisions(server, project, page_size=-1)))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_one_path_in_two_packages_is_two_decisions(server: Server, project: Project) -> None:
    project.add_source("lib")
    await index(server, project, RECORDS)
    await index(server, project, {QUEUE: "# 1. Of the library\n\n## Status\n\nAccepted\n"}, package="lib")
    listed = (await list_decisions(server, project)).decisions
    assert [(one.place.path, one.place.package) for one in listed][:3] == [
        (QUEUE, "lib"),
        (QUEUE, "main"),
        (STREAM, "main"),
    ]
    assert len({one.name for one in listed}) == len(listed)
    for one in listed:
        found = await server.decisions.GetDecision(decision_service_pb2.GetDecisionRequest(name=one.name))
        assert (found.decision.title, found.decision.place) == (one.title, one.place)
    assert await refusal(get(server, project, QUEUE)) == (grpc.StatusCode.NOT_FOUND, "DECISION_AMBIGUOUS")
    # Links stay in their package: the other one's number 1 superseded nothing and was not superseded.
    stream = next(one for one in listed if one.place.path == STREAM)
    assert [unquote(link.decision).rpartition("/decisions/")[2] for link in stream.links if link.decision] == [
        f"main//{QUEUE}"
    ]
    assert not listed[0].links


async def test_what_does_not_exist_is_not_found(server: Server, project: Project) -> None:
    await index(server, project, RECORDS)
    assert await refusal(get(server, project, "docs/adr/0009.md")) == (grpc.StatusCode.NOT_FOUND, "DECISION_NOT_FOUND")
    missing = server.decisions.ListDecisions(decision_service_pb2.ListDecisionsRequest(parent="projects/no-such"))
    assert await refusal(missing) == (grpc.StatusCode.NOT_FOUND, "PROJECT_NOT_FOUND")
    malformed = server.decisions.GetDecision(decision_service_pb2.GetDecisionRequest(name="decisions/1"))
    assert (await refusal(malformed))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_project_that_has_published_nothing_has_no_decisions(server: Server, project: Project) -> None:
    response = await list_decisions(server, project)
    assert (len(response.decisions), response.snapshot.generation) == (0, 0)
    assert not response.snapshot.HasField("publish_time")


class Only:
    """Lets every caller see one project."""

    def __init__(self, project: Project) -> None:
        self._project = project

    async def visible(self, metadata: Mapping[str, str]) -> Visible:
        return Visible(frozenset({self._project.id}))


async def test_a_project_that_the_caller_may_not_see_does_not_exist(
    server: Server, project: Project, database_url: str
) -> None:
    hidden = Project(database_url)
    await index(server, project, {QUEUE: RECORDS[QUEUE]})
    await index(server, hidden, RECORDS)
    restricted = grpc.aio.server(interceptors=[ErrorInterceptor()])
    servicer = DecisionServicer(
        DecisionService(server.database, SearchClient("")), Only(project), PageTokens(b"k" * 32)
    )
    decision_service_pb2_grpc.add_DecisionServiceServicer_to_server(servicer, restricted)
    target = f"127.0.0.1:{restricted.add_insecure_port('127.0.0.1:0')}"
    await restricted.start()
    async with open_channel(target) as channel:
        stub = decision_service_pb2_grpc.DecisionServiceStub(channel)
        for call in (
            stub.ListDecisions(decision_service_pb2.ListDecisionsRequest(parent=f"projects/{hidden.name}")),
            stub.GetDecision(decision_service_pb2.GetDecisionRequest(name=name_of(hidden, STREAM))),
            stub.Why(decision_service_pb2.WhyRequest(query=STREAM, projects=[f"projects/{hidden.name}"])),
        ):
            assert await refusal(call) == (grpc.StatusCode.NOT_FOUND, "PROJECT_NOT_FOUND")
        everything = await stub.Why(decision_service_pb2.WhyRequest(query="shop/orders.py"))
        assert {reason.decision.place.project for reason in everything.reasons} == {f"projects/{project.name}"}
        assert [one.project for one in everything.snapshots] == [f"projects/{project.name}"]
    await restricted.stop(None)
