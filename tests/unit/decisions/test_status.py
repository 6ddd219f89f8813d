"""Status words as they are found in the wild."""

from __future__ import annotations

import datetime

import pytest

from services.decisions.mining.dates import find_date
from services.decisions.mining.status import read_status, says_implemented
from services.decisions.records import Status


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        ("", Status.UNSPECIFIED),
        ("yes", Status.UNSPECIFIED),
        ("Accepted", Status.ACCEPTED),
        ("**ACCEPTED**", Status.ACCEPTED),
        ("✅", Status.ACCEPTED),
        ("{ accepted }", Status.ACCEPTED),
        ("Accepted ([\\#1484])", Status.ACCEPTED),
        ("accepted; supersedes ADR-0045", Status.ACCEPTED),
        ("Partially Accepted", Status.ACCEPTED),
        ("The two points above have been implemented; it runs", Status.ACCEPTED),
        ("Accepted/Implemented", Status.ACCEPTED),
        ("~~Proposed~~ Accepted", Status.ACCEPTED),
        ("Proposed → Accepted", Status.ACCEPTED),
        ("Proposed 2020-01-05, accepted 2020-02-01", Status.ACCEPTED),
        ("2020-02-01: Accepted\n2020-01-05: Proposed", Status.ACCEPTED),
        ("Accepted, [proposal](https://x.example/rejected)", Status.ACCEPTED),
        ("🤔 Proposed", Status.PROPOSED),
        ("In review.", Status.PROPOSED),
        ("Provisional", Status.PROPOSED),
        ("🤔 Incomplete", Status.PROPOSED),
        ("Proposed (supersedes ADR-001 when accepted)", Status.PROPOSED),
        ("Not yet accepted", Status.PROPOSED),
        ("Proposed\nWas partially implemented in v0.35", Status.PROPOSED),
        ("Rejected in favour of ADR 111", Status.REJECTED),
        ("❌ Rejected (see [019](019-x.md))", Status.REJECTED),
        ("Declined", Status.REJECTED),
        ("Reverted", Status.REJECTED),
        ("Deprecated (no superseding ADR)", Status.DEPRECATED),
        ("Superseded by [DNS](0015-dns.md)", Status.SUPERSEDED),
        ("superceded by 12", Status.SUPERSEDED),
        ("Partly superseded", Status.SUPERSEDED),
        ("Accepted\nSuperseded by ADR 7", Status.SUPERSEDED),
        ("⌛️ Superseded [0019](0019-x.md)", Status.SUPERSEDED),
        ("Accepted | Rejected | Deprecated | Superseded by", Status.UNSPECIFIED),
        ("{Deprecated|Proposed|Accepted}", Status.UNSPECIFIED),
        ("[proposed | rejected | accepted | … | superseded by [x](0005-x.md)]", Status.UNSPECIFIED),
        ("What is the status, such as proposed, accepted, rejected, deprecated, superseded?", Status.UNSPECIFIED),
    ],
)
def test_status_follows_the_words(raw: str, status: Status) -> None:
    assert read_status(raw) is status


@pytest.mark.parametrize("raw", ["Implemented", "Accepted, implemented", "Draft\nImplemented by: https://x.example/1"])
def test_implemented_where_it_is_said(raw: str) -> None:
    assert says_implemented(raw)


@pytest.mark.parametrize("raw", ["Accepted", "Partially implemented", "not implemented", "to be implemented", ""])
def test_not_implemented_where_it_is_hedged(raw: str) -> None:
    assert not says_implemented(raw)


@pytest.mark.parametrize(
    "text",
    [
        "2024-06-01",
        "2024/6/1",
        "01/06/2024",
        "1.6.2024",
        "01/06/24",
        "June 1 2024",
        "Jun 1st, 2024",
        "1 June 2024",
        "01-Jun-2024",
        "2024 June 1",
        "20240601",
        "on the 1st of June 2024, at noon",
    ],
)
def test_days_are_read_in_every_spelling(text: str) -> None:
    assert find_date(text) == datetime.date(2024, 6, 1)


@pytest.mark.parametrize("text", ["", "2024-13-45", "June 2024", "v1.2.3", "2024", "{YYYY-MM-DD}", "31/02/2024"])
def test_what_is_no_day_is_none(text: str) -> None:
    assert find_date(text) is None


def test_impossible_month_is_read_the_other_way_round() -> None:
    assert find_date("5-26-2021") == datetime.date(2021, 5, 26)
