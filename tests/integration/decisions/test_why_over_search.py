"""Why, asked of what ingest has really indexed and search really finds (by words: there is no model here)."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from undercroft.decisions.v1 import decision_pb2, decision_service_pb2

from tests.integration.decisions.conftest import Project, Server, index, serving
from tests.integration.decisions.stack import Stack, stack
from tests.integration.decisions.test_reading import CORPORA, needs_corpora, refusal

HEAD = "# {number}. {title}\n\n## Status\n\n{status}\n\n## Context\n\n{context}\n\n## Decision\n\n{decision}\n"


def record(number: int, title: str, status: str, context: str, decision: str) -> str:
    return HEAD.format(number=number, title=title, status=status, context=context, decision=decision)


POLL, PUSH = "docs/adr/0001-poll-for-rates.md", "docs/adr/0002-push-rates.md"
CACHE, VAULT = "docs/adr/0003-cache-rates.md", "docs/adr/0004-keep-keys-in-a-vault.md"
FILES = {
    POLL: record(
        1,
        "Poll for exchange rates",
        "Superseded by [2. Push exchange rates](0002-push-rates.md)",
        "Exchange rates, exchange rates, exchange rates: polling for exchange rates polling exchange rates.",
        "A worker polls the exchange for exchange rates every minute, see `bank/rates.py`.",
    ),
    PUSH: record(
        2,
        "Push exchange rates",
        "Accepted\n\nSupersedes [1. Poll for exchange rates](0001-poll-for-rates.md)",
        "Polling was late.",
        "The exchange pushes rates into `bank.feed.Feed.receive()`; the rest of `./bank/` only reads them.",
    ),
    CACHE: record(3, "Cache rates", "Accepted", "Rates are read often.", "Rates live in memory, in `bank/cache.py`."),
    VAULT: record(4, "Keep keys in a vault", "Rejected", "Keys leak.", "Keys stay where they are, not in `cache.py`."),
    "bank/rates.py": "def poll():\n    '''Poll for exchange rates.'''\n",
    "bank/cache.py": "RATES = {}\n",
    "bank/feed.py": "class Feed:\n    def receive(self):\n        '''Receive exchange rates.'''\n",
    "README.md": "# Bank\n\nPolling for exchange rates is explained in the decisions.\n",
}


@dataclass
class Bank:
    """The running services over one indexed project."""

    stack: Stack
    server: Server
    name: str
    folder: Path

    async def why(self, query: str, **fields: object) -> decision_service_pb2.WhyResponse:
        fields = {"projects": [f"projects/{self.name}"], **fields}
        return await self.server.decisions.Why(decision_service_pb2.WhyRequest(query=query, **fields), timeout=30)


@pytest.fixture(scope="module")
async def bank(tmp_path_factory: pytest.TempPathFactory, database_url: str, server: Server) -> AsyncIterator[Bank]:
    root = tmp_path_factory.mktemp("why")
    folder = root / "bank"
    for path, text in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    async with (
        stack(root, database_url, server.target) as running,
        serving(database_url, running.search_target) as asked,
    ):
        await running.create("bank", folder)
        await running.index("bank")
        yield Bank(running, asked, "bank", folder)


def paths(response: decision_service_pb2.WhyResponse) -> list[str]:
    return [reason.decision.place.path for reason in response.reasons]


def legs(reason: decision_service_pb2.Reason) -> list[list[str]]:
    return [list(passage.legs) for passage in reason.passages]


async def test_a_question_finds_the_record_that_answers_with_its_passages(bank: Bank) -> None:
    response = await bank.why("why do we not keep our keys in a vault?")
    assert paths(response)[0] == VAULT
    best = response.reasons[0]
    assert best.decision.status == decision_pb2.DECISION_STATUS_REJECTED
    assert best.score == max(passage.score for passage in best.passages) > 0
    assert 1 <= len(best.passages) <= 3
    assert all("lexical" in one for one in legs(best))
    assert response.snapshots[0].generation == 1
    assert not response.hints


async def test_only_records_answer_and_every_passage_opens_exactly_its_lines(bank: Bank) -> None:
    for query in ("polling for exchange rates", "bank/rates.py", "Feed.receive", "keys"):
        response = await bank.why(query)
        assert set(paths(response)) <= {POLL, PUSH, CACHE, VAULT}
        for reason in response.reasons:
            lines = FILES[reason.decision.place.path].split("\n")
            for passage in reason.passages:
                assert passage.place.path == reason.decision.place.path
                span = passage.place.span
                assert passage.text.rstrip("\n") == "\n".join(lines[span.start_line - 1 : span.end_line]).rstrip("\n")


async def test_what_holds_now_is_told_before_what_it_replaced(bank: Bank) -> None:
    response = await bank.why("polling exchange rates")
    assert paths(response).index(PUSH) + 1 == paths(response).index(POLL)
    scores = {reason.decision.place.path: reason.score for reason in response.reasons}
    assert scores[POLL] > scores[PUSH], "the older record is the better match, or this test shows nothing"
    old = next(reason.decision for reason in response.reasons if reason.decision.place.path == POLL)
    assert old.status == decision_pb2.DECISION_STATUS_SUPERSEDED
    assert [link.target for link in old.links if link.kind == "superseded_by"] == [PUSH]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # The records that name the file before the one that names its folder.
        ("bank/cache.py", [CACHE, VAULT, PUSH]),
        ("bank/cache.py:1-2", [CACHE, VAULT, PUSH]),
        ("cache.py", [CACHE, VAULT]),
        # Of those that name it the one that replaced the other comes first here too.
        ("bank/rates.py", [PUSH, POLL]),
        ("bank.feed.Feed.receive", [PUSH]),
        ("Feed.receive()", [PUSH]),
        ("Feed", [PUSH]),
        (VAULT, [VAULT]),
        ("0004-keep-keys-in-a-vault.md", [VAULT]),
    ],
)
async def test_a_path_or_symbol_puts_the_records_that_name_it_first(
    bank: Bank, query: str, expected: Sequence[str]
) -> None:
    response = await bank.why(query)
    named = [reason for reason in response.reasons if any("mention" in one for one in legs(reason))]
    assert [one.decision.place.path for one in named][: len(expected)] == expected
    assert list(response.reasons[: len(named)]) == named
    assert all(reason.score > other.score for reason in named for other in response.reasons[len(named) :])
    assert all(one.legs for reason in response.reasons for one in reason.passages)


async def test_statuses_restrict_the_answer_and_say_so_when_nothing_is_left(bank: Bank) -> None:
    accepted = await bank.why("polling exchange rates", statuses=[decision_pb2.DECISION_STATUS_ACCEPTED])
    assert POLL not in paths(accepted)
    assert PUSH in paths(accepted)
    none = await bank.why("keys in a vault", statuses=[decision_pb2.DECISION_STATUS_DEPRECATED])
    assert not none.reasons
    assert "statuses" in none.hints[0]


async def test_no_evidence_gives_no_reasons_and_a_hint(bank: Bank) -> None:
    response = await bank.why("zebra quagga okapi")
    assert not response.reasons
    assert response.hints


async def test_the_number_of_reasons_is_limited(bank: Bank) -> None:
    assert len((await bank.why("rates", page_size=1)).reasons) == 1
    assert (await refusal(bank.why("rates", page_size=-1)))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert (await refusal(bank.why("  ")))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert (await refusal(bank.why("x" * 8193)))[0] is grpc.StatusCode.INVALID_ARGUMENT
    unknown = bank.why("rates", projects=["projects/no-such"])
    assert await refusal(unknown) == (grpc.StatusCode.NOT_FOUND, "PROJECT_NOT_FOUND")


async def test_the_same_question_is_answered_the_same(bank: Bank) -> None:
    first = await bank.why("exchange rates")
    assert all([await bank.why("exchange rates") == first for _ in range(10)])


async def test_decisions_and_passages_follow_a_publish_together(bank: Bank) -> None:
    changed = bank.folder / VAULT
    changed.write_text(FILES[VAULT].replace("Rejected", "Accepted").replace("# 4.", "\n\n# 4."))
    try:
        await bank.stack.index(bank.name)
        # Search may answer from the older generation for a moment: then all of the answer is of that one.
        deadline = time.monotonic() + 20
        while True:
            response = await bank.why("keys in a vault")
            (reason,) = [one for one in response.reasons if one.decision.place.path == VAULT]
            shift = 2 * (response.snapshots[0].generation - 1)
            status = decision_pb2.DECISION_STATUS_ACCEPTED if shift else decision_pb2.DECISION_STATUS_REJECTED
            assert reason.decision.status == status
            lines = ("\n" * shift + FILES[VAULT].replace("Rejected", "Accepted")).split("\n")
            decided = [one for one in reason.passages if one.title.endswith("Decision")]
            assert all(lines[one.place.span.start_line - 1] == "## Decision" for one in decided)
            if shift:
                break
            assert time.monotonic() < deadline
    finally:
        changed.write_text(FILES[VAULT])


async def test_without_search_a_path_is_still_answered_and_a_question_says_what_to_do(
    database_url: str, server: Server, project: Project
) -> None:
    await index(server, project, FILES)
    request = {"projects": [f"projects/{project.name}"]}
    named = await server.decisions.Why(decision_service_pb2.WhyRequest(query="bank/rates.py", **request))
    assert paths(named) == [PUSH, POLL]
    assert "UNDERCROFT_SEARCH_TARGET" in named.hints[0]
    question = server.decisions.Why(decision_service_pb2.WhyRequest(query="why push?", **request))
    assert await refusal(question) == (grpc.StatusCode.FAILED_PRECONDITION, "SEARCH_NOT_CONFIGURED")
    async with serving(database_url, "127.0.0.1:9") as alone:
        named = await alone.decisions.Why(decision_service_pb2.WhyRequest(query="bank/rates.py", **request))
        assert paths(named) == [PUSH, POLL]
        question = alone.decisions.Why(decision_service_pb2.WhyRequest(query="why push?", **request), timeout=20)
        assert await refusal(question) == (grpc.StatusCode.UNAVAILABLE, "SEARCH_UNAVAILABLE")


async def test_nothing_published_is_a_hint(server: Server, project: Project) -> None:
    request = decision_service_pb2.WhyRequest(query="why?", projects=[f"projects/{project.name}"])
    response = await server.decisions.Why(request)
    assert not response.reasons
    assert response.hints[0].startswith("Nothing has been published yet")
    assert response.snapshots[0].generation == 0


@pytest.mark.slow
@needs_corpora
@pytest.mark.parametrize("corpus", ["jabref", "cometbft", "cloud-platform"])
async def test_questions_about_real_records_find_the_record_that_answers(bank: Bank, corpus: str) -> None:
    await bank.stack.create(corpus, CORPORA / corpus)
    await bank.stack.index(corpus)
    lines = (CORPORA / "why-questions.jsonl").read_text("utf-8").splitlines()
    questions = [one for one in map(json.loads, lines) if one["corpus"] == corpus]
    answered = 0
    for one in questions:
        found = paths(await bank.why(one["question"], projects=[f"projects/{corpus}"]))
        answered += bool(set(found) & set(one["gold"]))
    # By words alone: .90, .80 and .85 of the questions; about half share few words with their record.
    assert answered >= 0.75 * len(questions)
