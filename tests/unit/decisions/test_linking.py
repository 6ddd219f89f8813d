"""Links exist where the target is certain, from both ends; collisions and misses survive and are reported."""

from __future__ import annotations

import pytest

from services.decisions.linking import link
from services.decisions.mining import mine
from services.decisions.records import Decision, Link, RelationKind, Resolution


def corpus(files: dict[str, str]) -> list[Decision]:
    found = [mine(path, text) for path, text in files.items()]
    assert all(found)
    return [decision for decision in found if decision is not None]


def record(title: str, status: str = "Accepted", more: str = "") -> str:
    return f"# {title}\n\n## Status\n\n{status}\n\n## Context\n\n{more}\n"


def edges(links: list[Link]) -> set[tuple[str, str, str]]:
    return {
        (found.source.rpartition("/")[2], found.kind.value, found.target.rpartition("/")[2])
        for found in links
        if found.resolution is Resolution.RESOLVED
    }


BOTH = {("0001-a.md", "superseded_by", "0002-b.md"), ("0002-b.md", "supersedes", "0001-a.md")}


@pytest.mark.parametrize(
    "status",
    [
        "Superseded by [2. B](0002-b.md)",
        "Superseded by [B](./0002-b.md#status)",
        "Superseded by [B](0002-b)",
        "Superseded by [B](/docs/adr/0002-b.md)",
        "Superseded by [B](https://github.com/o/r/blob/main/docs/adr/0002-b.md)",
        "Superseded by [ADR 2](0002-old-name.md)",
        "Superseded by ADR-0002",
        "Superseded by 2",
        "Superseded by 0002-b.md",
        "Superseded by Use B",
    ],
)
def test_every_way_to_name_a_target_is_resolved_both_ways(status: str) -> None:
    links = link(corpus({"docs/adr/0001-a.md": record("A", status), "docs/adr/0002-b.md": record("2. Use B")}))
    assert edges(links) == BOTH
    assert [found.derived for found in links] == [False, True]


def test_relation_stated_at_both_ends_is_one_edge_each() -> None:
    files = {
        "docs/adr/0001-a.md": record("A", "Superseded by ADR 2"),
        "docs/adr/0002-b.md": record("B", more="This ADR supersedes ADR 1."),
    }
    links = link(corpus(files))
    assert edges(links) == BOTH
    assert not any(found.derived for found in links)


def test_number_that_fits_several_records_is_ambiguous() -> None:
    files = {
        "docs/adr/0001-a.md": record("A", "Superseded by ADR 2"),
        "docs/adr/0002-b.md": record("B"),
        "docs/adr/0002-c.md": record("C"),
    }
    (found,) = link(corpus(files))
    assert (found.resolution, found.target) == (Resolution.AMBIGUOUS, "")
    assert found.candidates == ("docs/adr/0002-b.md", "docs/adr/0002-c.md")


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        ("Superseded by [ADR 2: Use B](2.md)", ""),
        ("Superseded by ADR 2", "This ADR supersedes ADR 1."),
        ("Superseded by ADR 2, see [b](0002-b.md)", ""),
    ],
)
def test_collision_is_told_apart_by_evidence_only(status: str, answer: str) -> None:
    files = {
        "docs/adr/0001-a.md": record("A", status),
        "docs/adr/0002-b.md": record("Use B", more=answer),
        "docs/adr/0002-c.md": record("Use C"),
    }
    assert edges(link(corpus(files))) >= BOTH


def test_records_in_the_same_folder_come_first() -> None:
    files = {
        "a/docs/adr/0001-a.md": record("A", "Superseded by ADR 2"),
        "a/docs/adr/0002-b.md": record("B"),
        "b/docs/adr/0002-c.md": record("C"),
    }
    assert edges(link(corpus(files))) == BOTH


def test_missing_target_is_reported_and_the_record_stays() -> None:
    (found,) = link(corpus({"docs/adr/0001-a.md": record("A", "Superseded by ADR 99")}))
    assert (found.resolution, found.raw, found.kind) == (Resolution.MISSING, "ADR 99", RelationKind.SUPERSEDED_BY)


def test_number_behind_a_link_to_another_project_is_not_resolved_here() -> None:
    status = "Superseded by [ADR 2](https://github.com/other/place/blob/main/adr/0002-x.md)"
    links = link(corpus({"docs/adr/0001-a.md": record("A", status), "docs/adr/0002-b.md": record("B")}))
    assert [found.resolution for found in links] == [Resolution.MISSING]


def test_a_record_never_links_to_itself_and_cycles_end() -> None:
    files = {
        "docs/adr/0001-a.md": record("A", "Superseded by ADR 2", "This ADR supersedes ADR 1 and ADR 2."),
        "docs/adr/0002-b.md": record("B", "Superseded by ADR 1"),
    }
    links = link(corpus(files))
    assert all(found.source != found.target for found in links)
    assert ("0001-a.md", "supersedes", "0002-b.md") in edges(links)


def test_order_of_records_does_not_matter() -> None:
    decisions = corpus(
        {
            "docs/adr/0001-a.md": record("A", "Superseded by ADR 2"),
            "docs/adr/0002-b.md": record("B", more="This ADR amends ADR 3 and supersedes ADR 1."),
            "docs/adr/0003-c.md": record("C", "Rejected in favour of ADR 2"),
        }
    )
    assert link(decisions) == link(decisions[::-1])
    assert ("0003-c.md", "relates_to", "0002-b.md") in edges(link(decisions))
