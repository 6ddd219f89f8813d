from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.ingest.chunks import Extraction
from services.ingest.extraction import extract
from services.ingest.extraction.tokens import estimate_tokens
from tests.support.extraction import assert_whole


def take(text: str, *, path: str = "docs/guide.md", tokens: int = 254) -> Extraction:
    return extract(path, text, module="", count_tokens=estimate_tokens, budget_tokens=tokens)


def sections(extraction: Extraction) -> list[tuple[str, int, int]]:
    return [(chunk.title, chunk.start_line, chunk.end_line) for chunk in extraction.chunks]


GUIDE = textwrap.dedent("""\
    ---
    title: x
    # not a heading
    ---
    Preamble.

    # Guide

    ## Install `now` {#install}

    Text.

    ### Linux

    ```sh
    # no heading
    ```

    Mac
    ---

    Text.

    > # quoted, no heading

    ## Install `now`

    Again.
    """)


def test_sections_carry_the_headings_above_them() -> None:
    extraction = take(GUIDE)
    assert sections(extraction) == [
        ("x", 1, 5),
        ("Guide > Install now", 7, 11),
        ("Guide > Install now > Linux", 13, 17),
        ("Guide > Mac", 19, 24),
        ("Guide > Install now", 26, 28),
    ]
    assert [chunk.key for chunk in extraction.chunks] == [
        "docs/guide.md",
        "docs/guide.md#Guide/Install now",
        "docs/guide.md#Guide/Install now/Linux",
        "docs/guide.md#Guide/Mac",
        "docs/guide.md#Guide/Install now~1",
    ]


def test_headings_are_symbols_that_span_what_is_below_them() -> None:
    found = [(symbol.name, symbol.start_line, symbol.end_line, symbol.summary) for symbol in take(GUIDE).symbols]
    assert found == [
        ("Guide", 7, 28, ""),
        ("Install now", 9, 18, "Text."),
        ("Linux", 13, 18, "```sh"),
        ("Mac", 19, 25, "Text."),
        ("Install now", 26, 28, "Again."),
    ]


def test_a_heading_without_body_joins_its_first_child_and_else_stands_alone() -> None:
    assert sections(take("# A\n\n## B\n\ntext\n\n## C\n\n## D\n")) == [
        ("A > B", 1, 5),
        ("A > C", 7, 7),
        ("A > D", 9, 9),
    ]


def test_a_document_without_headings_is_its_own_section() -> None:
    assert sections(take("just\n\ntext\n")) == [("docs > guide.md", 1, 3)]


def test_a_large_section_is_split_between_blocks_and_fences_stay_whole_where_they_can() -> None:
    fence = "```\n" + "one two three\n\n" * 12 + "```"
    text = "# T\n\n" + "\n\n".join([" ".join(["word"] * 50), fence, " ".join(["word"] * 50), fence, "end"]) + "\n"
    extraction = take(text)
    assert len(extraction.chunks) > 1
    assert_whole(extraction, text)
    for chunk in extraction.chunks:
        assert chunk.text.count("```") % 2 == 0
    assert extraction.chunks[1].title == "T (part 2)"


def test_prose_names_symbols_and_files() -> None:
    text = textwrap.dedent("""\
        # API
        Use `Session.get()` of `requests.sessions`, see [usage](../src/app.py#L3 "t") and
        [web](https://example.org/x) or `src/core/db.py`, `x`, `a b`.

        ```
        `not.this`
        ```
        """)
    found = [(edge.source, edge.kind.value, edge.target, edge.resolved, edge.line) for edge in take(text).references]
    assert found == [
        ("docs/guide.md#API", "mention", "Session.get", False, 2),
        ("docs/guide.md#API", "mention", "requests.sessions", False, 2),
        ("docs/guide.md#API", "link", "src/core/db.py", False, 3),
        ("docs/guide.md#API", "link", "src/app.py", True, 2),
    ]


@pytest.mark.parametrize(
    ("text", "path", "titles"),
    [
        ("---\ntitle: 'My page'\n---\ntext\n", "a.md", ["My page"]),
        ("---\n# c\ntitle: My page # not this\n\ndescription: |\n  # no\n---\n# A\n", "a.md", ["My page", "A"]),
        ('+++\ntitle = "My page"\n# no\n+++\n# A\n', "a.md", ["My page", "A"]),
        ("---\ntitle: >\n  folded\n---\n", "a.md", ["a.md"]),
        ("---\n\n# A\n\ntext\n\n---\n\n# B\n", "a.md", ["a.md", "A", "B"]),  # rules, no front matter
        ("---\nnever: closed\n\n# A\n", "a.md", ["a.md", "A"]),
        ("import X from './x'\n\nexport const a = {\n  # no\n\n  b: 1,\n}\n\n# A\n", "a.mdx", ["a.mdx", "A"]),
        ("import this is prose\n# A\n", "a.md", ["a.md", "A"]),
        ("# A ##\n\nx\n\n## B #x#\n\ny\n", "a.md", ["A", "A > B #x#"]),
        ("Para\nline two\n===\n\nx\n\nSet\n---\n\ny\n", "a.md", ["Para line two", "Para line two > Set"]),
        ("~~~\n# no\n~~~\n````md\n```\n# no\n```\n````\n# yes\n", "a.md", ["a.md", "yes"]),
        ("- item\n\n  # in list\n\n1. x\n   ## in two\n> # q\n\n# out\n", "a.md", ["a.md", "out"]),
        ("!!! note\n    # no\n\n# yes\n", "a.md", ["a.md", "yes"]),
        ("<!--\n# no\n\n# no\n-->\n# yes\n", "a.md", ["a.md", "yes"]),
        ("#NoSpace\n\n# Yes\n", "a.md", ["a.md", "Yes"]),
    ],
)
def test_headings_are_what_the_dialects_agree_on(text: str, path: str, titles: list[str]) -> None:
    extraction = take(text, path=path)
    assert [chunk.title for chunk in extraction.chunks] == titles
    assert_whole(extraction, text)


def test_reference_links_are_edges_where_they_are_defined() -> None:
    text = "[a][ref]\n\n# T\n\n[ref]: src/x.md 'title'\n[w]: https://x.org\n[^n]: note.md\n\n```\n[no]: y.md\n```\n"
    found = [(edge.source, edge.target, edge.resolved, edge.line) for edge in take(text).references]
    assert found == [("docs/guide.md#T", "docs/src/x.md", True, 5)]


@pytest.mark.parametrize("target", ["../../etc/passwd", "../..", "/", "#here", "mailto:a@b.c"])
def test_links_out_of_the_source_are_no_edges(target: str) -> None:
    assert take(f"[x]({target})\n").references == ()


_PARTS = st.sampled_from(
    [
        *("# A\n", "## B\n", "### *C*\n", "T\n===\n", "#\n", "#\tT\n", "\x0c# F\n", "\u2028# G\n"),
        *("text `code.name` more\n", "\n", "> # q\n", "- # l\n", "    # code\n", "[l](x.md)\n", "word " * 90 + "\n"),
        *(
            "```\n# x\n",
            "```\n",
            "+++\n",
            "title: x\n",
            "[r]: x.md\n",
            "| a | b |\n|---|---|\n| 1 | 2 |\n",
            "<!-- # no\n",
            "-->\n",
            "---\n",
        ),
    ]
)


@settings(deadline=None)
@given(st.lists(_PARTS, max_size=25).map("".join), st.sampled_from([32, 100, 254]))
def test_any_document_is_covered_once_within_the_budget(text: str, tokens: int) -> None:
    assert_whole(take(text, tokens=tokens), text, tokens)


def test_our_own_documents_are_covered_once() -> None:
    root = Path(__file__).parents[3]
    documents = sorted(root.glob("*.md")) + sorted((root / "docs").rglob("*.md"))
    for document in documents:
        text = document.read_text()
        assert_whole(take(text), text)
