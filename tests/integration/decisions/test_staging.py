"""What a run stages is what publishes: nothing of an older fence, nothing twice, nothing that did not change."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from services.core.grpc import error_reason
from services.decisions.mining.miner import MAX_CHARS
from tests.integration.decisions.conftest import Project, Run, Server, index

QUEUE = """# 1. Use a queue

## Status

Accepted

## Context

Orders arrive in bursts.

## Decision

Orders go through a queue.
"""
RETRY = QUEUE.replace("# 1. Use a queue", "# 2. Retry failed orders")
PATH, OTHER = "docs/adr/0001-use-a-queue.md", "docs/adr/0002-retry.md"
README = "# Shop\n\nA shop.\n"


async def refusal(call: object) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), error_reason(caught.value)[0]


async def test_records_are_told_from_other_files(server: Server, project: Project) -> None:
    run = project.begin_run()
    files = {"README.md": README, OTHER: RETRY, PATH: QUEUE, "docs/adr/template.md": QUEUE}
    assert await server.stage(run, files) == [(project.source_id, PATH), (project.source_id, OTHER)]
    assert project.staged(run) == [PATH, OTHER]


async def test_a_row_has_no_text_of_the_file_and_says_where_its_parts_stand(server: Server, project: Project) -> None:
    run = project.begin_run()
    await server.stage(run, {PATH: QUEUE})
    (row,) = project.sql("SELECT * FROM staged_decisions WHERE run_id = %s", run.id)
    record = row["record"]
    assert (row["number"], row["title"], row["status"]) == (1, "Use a queue", 2)
    assert "bursts" not in str(record)
    assert isinstance(record, dict)
    assert [(one["kind"], one["line_start"], one["line_end"]) for one in record["sections"]] == [
        ("preamble", 1, 2),
        ("status", 3, 6),
        ("context", 7, 10),
        ("decision", 11, 13),
    ]
    assert record["line_end"] == 13


@pytest.mark.parametrize("wrong", ["older fence", "later fence", "other project", "no such run", "ended run"])
async def test_evidence_of_a_run_that_does_not_hold_the_project_is_refused(
    server: Server, project: Project, database_url: str, wrong: str
) -> None:
    run = project.begin_run()
    other = Project(database_url)
    claimed = {
        "older fence": Run(project, run.id, run.fence - 1),
        "later fence": Run(project, run.id, run.fence + 1),
        "other project": Run(other, run.id, run.fence),
        "no such run": Run(project, run.id + 1000, run.fence),
        "ended run": run,
    }[wrong]
    if wrong == "ended run":
        project.sql("UPDATE operations SET state = 'cancelled' WHERE id = %s", run.id)
    assert await refusal(server.stage(claimed, {PATH: QUEUE})) == (grpc.StatusCode.ABORTED, "RUN_FENCED_OFF")
    assert project.staged(run) == []


async def test_evidence_waits_for_a_takeover_and_is_then_refused(server: Server, project: Project) -> None:
    run = project.begin_run()
    async with server.database.transaction() as takeover:
        await takeover.execute("UPDATE operations SET fence = fence + 1 WHERE id = %s", (run.id,))
        late = asyncio.ensure_future(server.stage(run, {PATH: QUEUE}))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(late), 0.3)
    assert await refusal(late) == (grpc.StatusCode.ABORTED, "RUN_FENCED_OFF")
    assert project.staged(run) == []


async def test_a_file_that_comes_again_replaces_what_it_gave(server: Server, project: Project) -> None:
    run = project.begin_run()
    await server.stage(run, {PATH: QUEUE, OTHER: RETRY})
    await server.stage(run, {PATH: QUEUE.replace("Use a queue", "Use two queues")})
    titles = project.sql("SELECT title FROM staged_decisions WHERE run_id = %s ORDER BY path", run.id)
    assert [row["title"] for row in titles] == ["Use two queues", "Retry failed orders"]
    assert await server.stage(run, {PATH: ""}) == []
    assert project.staged(run) == [OTHER]


async def test_calls_of_one_run_at_the_same_time_leave_one_row_per_file(server: Server, project: Project) -> None:
    run = project.begin_run()
    files = {f"docs/adr/{number:04}-x.md": QUEUE for number in range(1, 30)}
    backwards = dict(reversed(files.items()))
    answers = await asyncio.gather(*(server.stage(run, one) for one in (files, backwards, files, backwards)))
    assert project.staged(run) == sorted(files)
    assert all(answer == answers[0] for answer in answers)


async def test_files_of_foreign_sources_stage_nothing(server: Server, project: Project, database_url: str) -> None:
    other = Project(database_url)
    run = project.begin_run()
    assert await server.stage(run, {PATH: QUEUE}, source_id=other.source_id) == []
    assert project.staged(run) == []


@pytest.mark.parametrize(
    "odd",
    [
        QUEUE + "x" * MAX_CHARS,
        '---\ntitle: "nul \\0 and \\ud800"\nstatus: "acc\\0epted"\n---\n\n## Context\n\nx\n\n## Decision\n\ny\n',
        "# 3. NUL \0 in text\n\n## Status\n\nAccepted\0\n\n## Decision\n\n`a\0b.py`\n",
        "# [3.](" * 5000,
    ],
    ids=["too large", "escapes in front matter", "nul", "nested"],
)
async def test_an_odd_file_does_not_stop_the_rest(server: Server, project: Project, odd: str) -> None:
    run = project.begin_run()
    records = await server.stage(run, {"docs/adr/0003-odd.md": odd, PATH: QUEUE})
    assert (project.source_id, PATH) in records
    assert project.staged(run) == sorted(path for _, path in records)
    assert len(odd) <= MAX_CHARS or project.staged(run) == [PATH]


async def test_an_unchanged_record_keeps_its_row_and_a_changed_one_gets_another(
    server: Server, project: Project
) -> None:
    await index(server, project, {PATH: QUEUE, OTHER: RETRY})
    changed = RETRY.replace("Accepted", "Rejected")
    await index(server, project, {PATH: QUEUE, OTHER: changed})
    assert [(row["path"], row["born"], row["died"]) for row in project.rows()] == [
        (PATH, 1, None),
        (OTHER, 1, 2),
        (OTHER, 2, None),
    ]
    await index(server, project, {PATH: QUEUE, OTHER: changed})
    assert len(project.rows()) == 3


async def test_a_record_ends_with_its_file_and_when_it_is_none_any_more(server: Server, project: Project) -> None:
    await index(server, project, {PATH: QUEUE, OTHER: RETRY})
    await index(server, project, {PATH: None, OTHER: "\n"})
    assert [(row["path"], row["died"]) for row in project.rows()] == [(PATH, 2), (OTHER, 2)]
