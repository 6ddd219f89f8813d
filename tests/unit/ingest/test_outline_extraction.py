from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.chunks import outline, taken


def test_asciidoc_is_cut_at_its_titles() -> None:
    blocks = "----\n== no\n----\n\n====\n= nor this\n====\n"
    text = f"= Guide\n:toc:\n\n== Install ==\n\n{blocks}=== Linux\ntext\n## Mac\ntext\n"
    assert outline(taken(text, "guide.adoc").extraction) == [
        ("Guide", 1, 2),
        ("Guide > Install", 4, 12),
        ("Guide > Install > Linux", 13, 14),
        ("Guide > Mac", 15, 16),
    ]


def test_org_is_cut_at_its_headings() -> None:
    block = "#+BEGIN_SRC org\n* no\n#+END_SRC\n"
    text = f"#+title: x\n* TODO [#A] Plan  :work:\ntext\n{block}** Step\nmore\n*bold* text\n* Next\n"
    assert outline(taken(text, "plan.org").extraction) == [
        ("plan.org", 1, 1),
        ("Plan", 2, 6),
        ("Plan > Step", 7, 9),
        ("Next", 10, 10),
    ]


_LINES = st.sampled_from(
    [
        "= A\n",
        "== B\n",
        "* C\n",
        "** D\n",
        "----\n",
        "====\n",
        "--\n",
        "#+begin_src x\n",
        "#+end_src\n",
        "\n",
        "word " * 90 + "\n",
    ]
)


@settings(deadline=None)
@given(st.lists(_LINES, max_size=25).map("".join), st.sampled_from(["a.adoc", "a.org"]), st.sampled_from([32, 254]))
def test_any_lines_are_covered_once_within_the_budget(text: str, path: str, tokens: int) -> None:
    taken(text, path, tokens=tokens)
