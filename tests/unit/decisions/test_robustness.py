"""Any text is mined without an error, in time proportional to its length, and its lines are exact."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.decisions.linking import link
from services.decisions.mining import mine
from services.decisions.records import Resolution

PATHS = ("docs/adr/0001-x.md", "docs/decisions/0001-x.rst", "notes/x.md")
PIECES = st.sampled_from(
    [
        "# 1. Use X\n",
        "## Status\n\n",
        "Accepted",
        "superseded by [ADR 2](0002-b.md)",
        "Supersedes: ADRs 3 and 4",
        "**Date:** 2020-01-01\n",
        "| Status | Accepted |\n|---|---|\n",
        "---\n",
        "status: draft\n",
        "Context\n-------\n",
        "=====\nTitle\n=====\n",
        ".. note::\n\n   text\n",
        ":Status: Accepted\n",
        "* - Status\n  - Draft\n",
        "<!--",
        "-->",
        "```\n",
        "> quoted\n",
        "[a]: b.md\n",
        "`x <y.rst>`_",
        "\r",
        "\r\n",
        "\x00",
        "\x0b",
        "\u2028",
        "\ufeff",
        "(",
        ")",
        "](",
        "\n",
        "\t",
        " ",
    ]
)


@given(st.sampled_from(PATHS), st.text() | st.lists(PIECES | st.text(max_size=5), max_size=40).map("".join))
@settings(max_examples=300, deadline=None)
def test_any_text_is_mined_and_sections_are_the_lines_of_the_file(path: str, text: str) -> None:
    decision = mine(path, text)
    if decision is None:
        return
    lines = re.split(r"\r\n|\r|\n", text)
    assert decision.line_end == len(lines)
    following = None
    for section in decision.sections:
        assert section.text == "\n".join(lines[section.line_start - 1 : section.line_end])
        assert following is None or section.line_start == following
        following = section.line_end + 1
    assert following in (None, len(lines) + 1)
    assert all(1 <= relation.line <= len(lines) for relation in decision.relations)
    assert all(1 <= mention.line <= len(lines) for mention in decision.mentions)
    assert decision.title
    for found in link([decision]):
        assert found.resolution is not Resolution.RESOLVED


@given(st.text(max_size=60))
@settings(deadline=None)
def test_any_path_is_accepted(path: str) -> None:
    mine(path + ".md", "# 1. X\n\n## Status\n\nAccepted\n")


ATOMS = """
[ ` ( | >~ *~*~ < <!-- #~a; a 1- 2020-01-01~ ADR~1,~ ADR-1~and~ superseded~by~ this~ADR~supersedes~ADR~1~ [a](b.md)~
[a]:~b; `a~<b>`_~ a/ x.y. ]( ~~a Status:~a~ |~Status~|~a~|; ~accepted~| ~accepted, ..~a; a;===; jan~1~
{ a- ~~~~a; Date:~
"""


@pytest.mark.parametrize("path", PATHS[:2])
def test_hostile_repetition_costs_no_more_than_its_length(path: str) -> None:
    slow = []
    for atom in (word.replace("~", " ").replace(";", "\n") for word in ATOMS.split()):
        for head in ("", "# 1. T\n\n## Status\n\n", "---\n"):
            text = head + atom * (6_000 // len(atom))
            started = time.process_time()
            mine(path, text)
            seconds = time.process_time() - started
            # Twenty times what the slowest takes; a quadratic pattern takes minutes.
            if seconds > 2.0:
                slow.append((atom, head, seconds))
    assert not slow


def test_file_too_large_for_a_record_is_left_alone() -> None:
    assert mine(PATHS[0], "# 1. X\n" + "a " * 300_000) is None
