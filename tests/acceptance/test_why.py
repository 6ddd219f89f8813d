"""Why, asked of the project's own records: by words and by meaning, and all of one generation (G15, G29)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from undercroft.decisions.v1 import decision_pb2, decision_service_pb2
from undercroft.search.v1 import search_service_pb2

from tests.support.appliance import ROOT, Appliance

PROJECT = "own-records"
RECORDS = ROOT / "docs" / "adr"


@pytest.fixture(scope="module")
def records(appliance: Appliance, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's own decision records, indexed."""
    folder = tmp_path_factory.mktemp("records") / "own"
    shutil.copytree(RECORDS, folder / "docs" / "adr")
    appliance.create_project(PROJECT, [folder])
    appliance.index(PROJECT)
    return folder


def why(appliance: Appliance, query: str, **fields: object) -> decision_service_pb2.WhyResponse:
    request = decision_service_pb2.WhyRequest(query=query, projects=[f"projects/{PROJECT}"], **fields)  # type: ignore[arg-type]
    response: decision_service_pb2.WhyResponse = appliance.client.decisions.Why(request, timeout=60)
    return response


def paths(response: decision_service_pb2.WhyResponse) -> list[str]:
    return [reason.decision.place.path for reason in response.reasons]


@pytest.mark.parametrize(
    ("question", "answers"),
    [
        ("why does a text get the same vector whatever it is batched with?", ["0005"]),
        ("why is there no torch in the services?", ["0006"]),
        ("why are published files never overwritten in place?", ["0003"]),
        ("why not weigh all retrieval methods the same when merging their results?", ["0008"]),
        ("where does the truth live if an index file is lost?", ["0002"]),
    ],
)
def test_a_question_finds_the_record_that_answers(
    appliance: Appliance, records: Path, question: str, answers: Sequence[str]
) -> None:
    response = why(appliance, question)
    best = response.reasons[0]
    assert Path(best.decision.place.path).name[:4] in answers, paths(response)
    assert best.decision.status == decision_pb2.DECISION_STATUS_ACCEPTED
    assert {leg for reason in response.reasons for one in reason.passages for leg in one.legs} == {"dense", "lexical"}


def test_passages_open_exactly_their_lines_at_the_generation_of_the_answer(appliance: Appliance, records: Path) -> None:
    response = why(appliance, "why generations?", page_size=10)
    (snapshot,) = response.snapshots
    for reason in response.reasons:
        for passage in reason.passages:
            read = appliance.client.search.ReadFile(
                search_service_pb2.ReadFileRequest(
                    project=snapshot.project,
                    path=passage.place.path,
                    span=passage.place.span,
                    generation=snapshot.generation,
                )
            )
            assert read.text.rstrip("\n") == passage.text.rstrip("\n")


def test_every_record_is_listed_and_got_whole(appliance: Appliance, records: Path) -> None:
    request = decision_service_pb2.ListDecisionsRequest(parent=f"projects/{PROJECT}")
    listed = appliance.client.decisions.ListDecisions(request).decisions
    assert [Path(one.place.path).name for one in listed] == sorted(path.name for path in RECORDS.glob("[0-9]*.md"))
    for one in listed:
        got = appliance.client.decisions.GetDecision(decision_service_pb2.GetDecisionRequest(name=one.name)).decision
        text = (records / one.place.path).read_text()
        assert "\n".join(section.text for section in got.sections).rstrip("\n") == text.rstrip("\n")
        assert {section.role for section in got.sections} >= {"status", "context", "decision"}


def ask(appliance: Appliance, project: str, query: str) -> list[str]:
    request = decision_service_pb2.WhyRequest(query=query, projects=[f"projects/{project}"])
    return [Path(one.decision.place.path).name for one in appliance.client.decisions.Why(request, timeout=60).reasons]


def test_a_record_that_is_one_short_passage_is_found_by_a_question(appliance: Appliance, tmp_path: Path) -> None:
    adr = tmp_path / "short" / "docs" / "adr"
    adr.mkdir(parents=True)
    (adr / "0001-record-decisions.md").write_text("# 1. Record decisions\n\n## Decision\n\nWe write them down.\n")
    (adr / "0002-prefix.md").write_text("# 2. Name prefix zorp for tables\n\nAll tables have the prefix zorp_.\n")
    (adr / "0003-app-label.rst").write_text(
        "3. App label prefix\n===================\n\nContext\n-------\n\nLabels collide.\n\nDecision\n--------\n\n"
        "Every app label starts with the name of its product.\n"
    )
    appliance.create_project("short-records", [tmp_path / "short"])
    appliance.index("short-records")
    assert ask(appliance, "short-records", "name prefix zorp for tables")[0] == "0002-prefix.md"
    assert ask(appliance, "short-records", "why do app labels have a prefix?")[0] == "0003-app-label.rst"


def test_words_that_all_records_share_speak_for_none_of_them(appliance: Appliance, tmp_path: Path) -> None:
    adr = tmp_path / "alike" / "docs" / "adr"
    adr.mkdir(parents=True)
    chosen = {1: "Postgres for storage", 2: "Kafka for events", 3: "Redis as the cache", 4: "Helm for deployment"}
    for number, what in chosen.items():
        (adr / f"000{number}-use.md").write_text(
            f"# {number}. Use {what}\n\n## Status\n\nAccepted\n\n## Context\n\nWe need to decide.\n\n"
            f"## Decision\n\nWe use {what}.\n\n## Consequences\n\nThe team has to learn it.\n"
        )
    appliance.create_project("alike-records", [tmp_path / "alike"])
    appliance.index("alike-records")
    for number, name in ((1, "postgres"), (2, "kafka"), (3, "redis"), (4, "helm")):
        assert ask(appliance, "alike-records", f"why {name}?")[0] == f"000{number}-use.md"
