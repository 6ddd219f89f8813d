"""A record says the same whatever markup and template it is written in."""

from __future__ import annotations

import datetime

import pytest

from services.decisions.mining import candidate, mine
from services.decisions.records import Decision, MentionKind, RelationKind, SectionKind, Status

FORMATS = {
    "nygard": (
        "docs/adr/0007-use-h2.md",
        "# 7. Use H2\n\nDate: 2020-02-03\n\n## Status\n\nAccepted\n\n## Context\n\nx\n",
    ),
    "underlined": (
        "docs/adr/0007-use-h2.md",
        "7. Use H2\n=========\n\nDate: 2020-02-03\n\nStatus\n------\n\nAccepted\n",
    ),
    "madr 2 bullets": ("docs/adr/0007-use-h2.md", "# Use H2\n\n* Status: accepted\n* Date: 2020-02-03\n\n## Context\n"),
    "bold bullets": ("docs/adr/0007-use-h2.md", "# Use H2\n\n- **Status**: accepted\n- **Date**: 3 February 2020\n"),
    "madr 4 front matter": ("docs/adr/0007-use-h2.md", '---\nstatus: "accepted"\ndate: 2020-02-03\n---\n\n# Use H2\n'),
    "toml front matter": ("docs/adr/0007-use-h2.md", '+++\nstatus = "accepted"\ndate = 2020-02-03\n+++\n\n# Use H2\n'),
    "bold lines": (
        "docs/adr/007-use-h2.md",
        "# ADR-007: Use H2\n\n**Date:** 2020-02-03\n**Status:** Accepted\n\n## Context\n",
    ),
    "ruled bold lines": (
        "docs/adr/007-use-h2.md",
        "# ADR 7 - Use H2\n\n**Date:** 2020-02-03\n**Status:** Accepted\n---\n",
    ),
    "one line": ("docs/adr/007-use-h2.md", "# ADR-007: Use H2\n\n**Status:** Accepted | **Date:** 2020-02-03\n"),
    "table down": (
        "docs/adr/adr-7.md",
        "# ADR 7: Use H2\n\n| | |\n|-|-|\n| Date | 3 Feb 2020 |\n| Status | Approved |\n",
    ),
    "table across": (
        "docs/adr/adr-7.md",
        "# ADR 7: Use H2\n\n| Status | Date |\n|---|---|\n| accepted | 2020-02-03 |\n",
    ),
    "heading values": ("docs/adr/adr-7.md", "# ADR 7: Use H2\n\n## Status: Accepted\n\n## Date: 2020-02-03\n"),
    "braces": ("docs/adr/adr-7.md", "# ADR 7: Use H2\n\n## Status\n\n{ accepted }\n\n## Date\n\n2020-02-03\n"),
    "emoji": ("docs/adr/adr-7.md", "# ADR 7: Use H2\n\nDate: 03/02/2020\n\n## Status\n\n✅ Accepted\n"),
    "issue beside": ("docs/adr/adr-7.md", "# ADR 7: Use H2\n\nDate 03.02.20\n\n## Status\n\nAccepted ([\\#1484])\n"),
    "checkboxes": (
        "docs/adr/adr-7.md",
        "# 7. Use H2\n\nDate: 2020-02-03\n\n## Status\n\n- [ ] Proposed\n- [x] Accepted\n",
    ),
    "changelog": (
        "docs/adr/adr-7.md",
        "# ADR 7: Use H2\n\n## Changelog\n\n- 2020-01-01: draft\n- Feb 3 2020: Accepted\n\n## Status\n\nAccepted\n",
    ),
    "date beside": (
        "docs/decisions/0007-use-h2.rst",
        "7. Use H2\n#########\n\nStatus\n******\n\n**Accepted** *2020-02-03*\n",
    ),
    "rst overline": (
        "docs/decisions/0007-use-h2.rst",
        "=========\n7. Use H2\n=========\n\n:Date: 2020-02-03\n:Status: Accepted\n\nContext\n=======\n",
    ),
    "rst list table": (
        "docs/decisions/0007-use-h2.rst",
        "0007 Use H2\n===========\n\n.. list-table::\n\n   * - State\n     - Final\n   * - Date\n     - 2020-02-03\n",
    ),
    "rst after label": (
        "docs/decisions/0007-use-h2.rst",
        ".. _ADR-7:\n\n7. Use H2\n=========\n\nStatus\n------\n\nAccepted (2020-02-03)\n",
    ),
}


def mined(path: str, text: str) -> Decision:
    decision = mine(path, text)
    assert decision is not None
    return decision


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_number_title_status_and_date(form: str) -> None:
    decision = mined(*FORMATS[form])
    assert (decision.number, decision.title) == (7, "Use H2")
    assert decision.status is Status.ACCEPTED
    assert decision.date == datetime.date(2020, 2, 3)


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("# 25 Domain names", "Domain names"),
        ("# ADR-102: RPC Companion", "RPC Companion"),
        ("# [ADR-012](x.md): Linked", "Linked"),
        ("# Use `public final` ##", "Use `public final`"),
        ("# ADR for OCR engine selection", "ADR for OCR engine selection"),
        ("# RFC 7807 for errors", "RFC 7807 for errors"),
        ("## ADR-020: Below the top level", "Below the top level"),
        ("# ADR-012", "Three tier architecture"),
        ("## Context\n\n## Decision", "Three tier architecture"),
    ],
)
def test_title_loses_its_number_and_nothing_else(line: str, title: str) -> None:
    assert mined("docs/adr/0012-three-tier-architecture.md", line + "\n\ntext\n").title == title


def test_number_in_the_title_proper_stays() -> None:
    assert mined("docs/adr/0007-3-tier-architecture.md", "# 3 tier architecture\n").title == "3 tier architecture"


def test_number_of_the_file_wins_over_the_heading() -> None:
    assert mined("docs/adr/0033-ip-ranges.md", "# 3. Networking Outline\n").number == 33


@pytest.mark.parametrize(
    "path",
    ["docs/adr/20200924-use-x.md", "docs/adr/2020-09-24-use-x.md"],
)
def test_day_in_a_file_name_is_no_number(path: str) -> None:
    decision = mined(path, "# Use X\n")
    assert (decision.number, decision.date) == (None, None)


def test_commented_out_fields_do_not_count() -> None:
    text = "---\n# status: accepted\n---\n# Use X\n\n<!-- Status: rejected\nDate: 2020-01-01 -->\n\n## Context\n"
    decision = mined("docs/adr/0001-use-x.md", text)
    assert (decision.status, decision.status_raw, decision.date) == (Status.UNSPECIFIED, "", None)


def test_headings_and_fields_in_code_do_not_count() -> None:
    text = "# Use X\n\n```\n# 9. Other\n\n## Status\n\nRejected\n```\n\n    Status: rejected\n\n## Context\n"
    decision = mined("docs/adr/0001-use-x.md", text)
    assert decision.status is Status.UNSPECIFIED
    assert [section.heading for section in decision.sections] == ["Use X", "Context"]


def test_drafting_days_are_not_used() -> None:
    text = "# Use X\n\nCreated: 2020-01-01\n\n## Changelog\n\n- 2020-01-02: First draft\n\n## Status\n\nAccepted\n"
    assert mined("docs/adr/0001-use-x.md", text).date is None


def test_instructions_of_the_template_are_not_the_status() -> None:
    text = "# Use X\n\n## Status\n\n> It may be accepted or rejected.\n\nDraft\n\n## Context\n"
    assert mined("docs/adr/0001-use-x.md", text).status_raw == "Draft"


def test_further_paragraphs_count_where_they_add_to_the_status() -> None:
    text = "# X\n\n## Status\n\nAccepted\n\nAmended by [9. Y](0009-y.md)\n\nTracking issue: #3\n\n## Context\n"
    assert mined("docs/adr/0001-x.md", text).status_raw == "Accepted\nAmended by [9. Y](0009-y.md)"


def test_status_written_as_a_heading_below_its_section() -> None:
    text = "1. X\n====\n\nStatus\n======\n\nRejected April 2022\n-------------------\n\nWe gave up.\n"
    assert mined("docs/decisions/0001-x.rst", text).status is Status.REJECTED


def test_sections_have_kinds_and_exact_lines() -> None:
    text = (
        "# X\n\n## Context and Problem Statement\n\nc\n\n## Considered Options\n\n* a\n\n## Decision Outcome\n\nd\n\n"
    )
    text += (
        "### Consequences\n\n* Good\n\n## Pros and Cons of the Options\n\n### a\n\nlong\n\n## More Information\n\nm\n"
    )
    decision = mined("docs/adr/0001-x.md", text)
    assert [section.kind for section in decision.sections] == [
        SectionKind.PREAMBLE,
        SectionKind.CONTEXT,
        SectionKind.OPTIONS,
        SectionKind.DECISION,
        SectionKind.CONSEQUENCES,
        SectionKind.OPTIONS,
        SectionKind.OPTIONS,
        SectionKind.LINKS,
    ]
    outcome = decision.sections[3]
    assert (outcome.line_start, outcome.line_end, outcome.text) == (11, 14, "## Decision Outcome\n\nd\n")


def test_deciders_are_people_without_markup() -> None:
    text = "# X\n\n* Status: accepted\n* Deciders: [Ann](https://a.example), Bob and @eve <!-- optional -->\n"
    assert mined("docs/adr/0001-x.md", text).deciders == ("Ann", "Bob", "@eve")
    assert mined("docs/adr/0001-x.md", "# X\n\n* Deciders: [list everyone involved]\n").deciders == ()
    front = "---\ndecision-makers:\n  - Ann\n  - Bob\n---\n# X\n"
    assert mined("docs/adr/0001-x.md", front).deciders == ("Ann", "Bob")


def test_files_and_symbols_are_found_where_they_are_named() -> None:
    text = (
        "# X\n\n## Context\n\nAffects `src/app/main.py` and `BibEntry.getId()`, see services/core/names.py.\n"
        "The [client](../../src/client.go#L10) calls `snake_case`, [not this](https://example.org/a/b).\n"
        "Also https://github.com/o/r/blob/main/lib/x.rb#L3 as [link](https://github.com/o/r/blob/main/lib/x.rb#L3).\n"
    )
    found = {(mention.kind, mention.text, mention.line) for mention in mined("docs/adr/0001-x.md", text).mentions}
    assert found == {
        (MentionKind.FILE, "src/app/main.py", 5),
        (MentionKind.FILE, "services/core/names.py", 5),
        (MentionKind.SYMBOL, "BibEntry.getId()", 5),
        (MentionKind.FILE, "src/client.go", 6),
        (MentionKind.SYMBOL, "snake_case", 6),
        (MentionKind.FILE, "lib/x.rb", 7),
    }


def relations(body: str, path: str = "docs/adr/0020-x.md") -> list[tuple[RelationKind, int | None]]:
    return [(relation.kind, relation.number) for relation in mined(path, "# X\n\n" + body).relations]


@pytest.mark.parametrize(
    "body",
    [
        "## Status\n\nSuperseded by [ADR 5](0005-a.md)\n",
        "## Status\n\nSuperceded by ADR-0005.\n",
        "## Status\n\nSuperseded by 0005\n",
        "## Status\n\n⌛ Superseded [0005](0005-a.md)\n",
        "* Status: superseded by [ADR-0005](0005-a.md)\n",
        "Superseded by: ADR 5\n",
        "## Context\n\n**These ranges have been superseded by [ADR #0005](0005-a.md).**\n",
        "## Context\n\nADR 5 supersedes this decision.\n",
    ],
)
def test_superseding_record_is_read(body: str) -> None:
    assert relations(body) == [(RelationKind.SUPERSEDED_BY, 5)]


@pytest.mark.parametrize(
    "body",
    [
        "Supersedes: ADR 5\n",
        "**Supersedes:** [ADR-005](./0005-a.md) (jointly with [ADR-6](./0006-b.md)). This owns the rest.\n",
        "## Status\n\nAccepted (supersedes ADR-5; the attempt in PR #12 is closed)\n",
        "## Context\n\nThis ADR in part supersedes [0005](0005-a.md).\n",
        "## Links\n\n* Supersedes [ADR 5](0005-a.md)\n",
        "## Links\n\n* [ADR 5](0005-a.md), which this decision supersedes\n",
        "## Context\n\nADR 5 is superseded by this decision.\n",
    ],
)
def test_superseded_record_is_read(body: str) -> None:
    assert relations(body) == [(RelationKind.SUPERSEDES, 5)]


def test_title_that_undoes_a_record_supersedes_it() -> None:
    decision = mined("docs/adr/0020-x.md", "# ADR 20: Partly Undo ADR 9 (Reduce API)\n")
    (relation,) = decision.relations
    assert (relation.kind, relation.number, relation.partial) == (RelationKind.SUPERSEDES, 9, True)


@pytest.mark.parametrize(
    "body",
    [
        "## Context\n\nIn ADR 4 we said that ADR 3 was superseded by ADR 5.\n",
        "## Context\n\nlog4j is superseded by [logback](https://logback.example).\n",
        "## Context\n\nThis may be superseded by ADR 5 one day.\n",
        "## Context\n\nThe channel will be replaced by a method (see ADR 5).\n",
        "## Context\n\nADR 5 replaces the job queue.\n",
        "## Status\n\nDeprecated (no superseding ADR)\n",
        "Supersedes: N/A\n\nSuperseded by: none\n",
        "```\nSuperseded by ADR 5\n```\n",
    ],
)
def test_what_is_said_of_others_is_no_relation(body: str) -> None:
    assert relations(body) == []


def test_lists_of_records_give_one_relation_each() -> None:
    body = "## Context\n\nThis ADR supersedes the decisions made in ADRs 60 and 61, but keeps ADR 62.\n"
    assert relations(body)[:2] == [(RelationKind.SUPERSEDES, 60), (RelationKind.SUPERSEDES, 61)]


def test_rejected_in_favour_and_amended_are_not_superseded() -> None:
    assert relations("## Status\n\nRejected in favour of ADR 111\n") == [(RelationKind.RELATES_TO, 111)]
    assert relations("## Status\n\nAccepted, amended by ADR-52\n") == [(RelationKind.AMENDED_BY, 52)]
    assert relations("## Status\n\nAccepted\n\nAmends [10. T](0010-t.md)\n") == [(RelationKind.AMENDS, 10)]


def test_bare_title_behind_superseded_by_is_kept() -> None:
    (relation,) = mined("docs/adr/0004-x.md", "# X\n\n## Status\n\nSuperseded by DNS Infrastructure\n").relations
    assert (relation.kind, relation.title) == (RelationKind.SUPERSEDED_BY, "DNS Infrastructure")


def test_restructured_text_references_are_relations() -> None:
    text = "5. X\n====\n\nStatus\n******\n\n**Accepted**\n\n*Superceded by `<0007-y.rst>`_*\n"
    (relation,) = mined("docs/decisions/0005-x.rst", text).relations
    assert (relation.kind, relation.target_path) == (RelationKind.SUPERSEDED_BY, "0007-y.rst")


@pytest.mark.parametrize("path", ["a.md", "docs/X.MARKDOWN", "docs/adr/1.rst"])
def test_markup_files_are_candidates(path: str) -> None:
    assert candidate(path)


@pytest.mark.parametrize("path", ["a.py", "docs/adr/0001-x.pdf", "README", ""])
def test_other_files_are_no_candidates(path: str) -> None:
    assert not candidate(path)
    assert mine(path, "# 1. X\n\n## Status\n\nAccepted\n") is None
