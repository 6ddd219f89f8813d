from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.errors import InvalidArgument
from services.ingest.chunks import (
    Budget,
    Chunk,
    ChunkKind,
    Unit,
    bounded,
    embedded_title,
    model_input,
    structural_key,
)
from services.ingest.extraction import extract

WORDS = len  # characters as tokens: the strictest counter that a test can have


def count_words(text: str) -> int:
    return len(text.split())


def split(lines: list[str], budget: Budget, *, title: str = "t", ranks: list[int] | None = None) -> tuple[Chunk, ...]:
    unit = Unit(ChunkKind.TEXT, ("a",), "q", "n", title, 1, len(lines))
    chunks, _ = bounded([unit], lines, ranks or [0] * len(lines), budget, path="p.txt", language="text", module="")
    return chunks


_LINE = st.text("ab \t(,é中", max_size=120)


@given(st.lists(_LINE, max_size=40), st.data(), st.sampled_from([WORDS, count_words]), st.integers(32, 90))
def test_parts_cover_each_line_once_and_fit_and_say_exactly_their_lines(
    lines: list[str], data: st.DataObject, count: object, tokens: int
) -> None:
    assert callable(count)
    ranks = data.draw(st.lists(st.integers(0, 9), min_size=len(lines), max_size=len(lines)))
    budget = Budget(count, tokens)
    chunks = split(lines, budget, ranks=ranks)
    covered: Counter[int] = Counter()
    pieces: dict[int, list[tuple[int, int]]] = {}
    for chunk in chunks:
        assert budget.fits(chunk.title, chunk.text)
        if chunk.columns is None:
            assert chunk.text == "\n".join(lines[chunk.start_line - 1 : chunk.end_line])
            covered.update(range(chunk.start_line, chunk.end_line + 1))
        else:
            assert chunk.start_line == chunk.end_line
            assert chunk.text == lines[chunk.start_line - 1][slice(*chunk.columns)]
            pieces.setdefault(chunk.start_line, []).append(chunk.columns)
    for number, columns in pieces.items():
        assert number not in covered
        covered[number] += 1
        ends = [0, *(end for _, end in columns)]
        assert [start for start, _ in columns] == ends[:-1]
        assert ends[-1] == len(lines[number - 1])
    for number, line in enumerate(lines, 1):
        assert covered[number] <= 1
        assert covered[number] == 1 or not line.strip()
    assert [chunk.ordinal for chunk in chunks] == list(range(len(chunks)))
    assert len({chunk.key for chunk in chunks}) == len(chunks)


def test_what_fits_stays_whole_and_has_no_part_in_its_title() -> None:
    (chunk,) = split(["", "one", "", "two", ""], Budget(count_words, 32))
    assert (chunk.start_line, chunk.end_line, chunk.text, chunk.title) == (2, 4, "one\n\ntwo", "t")


def test_parts_begin_at_the_best_place_in_reach() -> None:
    lines = ["a b c d e f"] * 12
    ranks = [9] * 12
    ranks[4] = 0
    chunks = split(lines, Budget(count_words, 38), ranks=ranks)
    assert [chunk.start_line for chunk in chunks][:2] == [1, 5]
    assert [chunk.title for chunk in chunks][:2] == ["t (part 1)", "t (part 2)"]


def test_an_edit_moves_no_cut_far_above_it() -> None:
    lines = [f"word{number} b c d e" for number in range(200)]
    before = split(lines, Budget(count_words, 60))
    after = split([*lines[:150], "inserted words here", *lines[150:]], Budget(count_words, 60))
    same = [chunk for chunk in before if chunk.end_line < 140]
    assert len(same) > 10
    assert list(after[: len(same)]) == same


def test_the_last_two_parts_share_what_is_left() -> None:
    sizes = [chunk.end_line - chunk.start_line + 1 for chunk in split(["a b c d e"] * 13, Budget(count_words, 60))]
    assert len(sizes) == 2
    assert min(sizes) >= 5


def test_one_giant_line_is_split_by_characters_at_separators() -> None:
    chunks = split(["word " * 5000], Budget(count_words, 50))
    assert "".join(chunk.text for chunk in chunks) == "word " * 5000
    assert all(chunk.columns is not None for chunk in chunks)
    assert all(chunk.text.endswith(" ") for chunk in chunks)


def test_a_word_that_a_tokenizer_counts_as_one_is_bounded_all_the_same() -> None:
    chunks = split(["x" * 100_000], Budget(count_words, 50))
    assert max(len(chunk.text) for chunk in chunks) <= 16 * 50


def test_a_breadcrumb_longer_than_its_share_is_shortened_from_the_left_and_noted() -> None:
    title = " > ".join(f"heading {number} of many" for number in range(12))
    unit = Unit(ChunkKind.SECTION, ("a",), "q", "n", title, 1, 1)
    chunks, notes = bounded([unit], ["body"], [0], Budget(count_words, 40), path="p", language="markdown", module="")
    assert chunks[0].title.startswith("… > ")
    assert chunks[0].title.endswith("heading 11 of many")
    assert [note.code for note in notes] == ["title_shortened"]


def test_a_budget_without_room_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        Budget(count_words, 5)


def test_the_model_sees_the_title_above_the_text() -> None:
    assert model_input("a > b", "x") == "a > b\nx"
    assert model_input("", "x") == "x"


@given(
    st.lists(
        st.tuples(
            st.text("a#~%/.", min_size=1, max_size=5),
            st.lists(st.text("a#~%/.", min_size=1, max_size=3), max_size=2).map(tuple),
            st.integers(0, 12),
        ),
        min_size=2,
        max_size=20,
        unique=True,
    )
)
def test_different_places_never_share_a_key(places: list[tuple[str, tuple[str, ...], int]]) -> None:
    assert len({structural_key(path, anchor, ordinal) for path, anchor, ordinal in places}) == len(places)


def test_keys_read_well() -> None:
    assert structural_key("src/a.py", ("Session.get",), 0) == "src/a.py#Session.get"
    assert structural_key("docs/x y.md", ("Guide", "and/or"), 2) == "docs/x y.md#Guide/and%2For~2"


def _titles(source: str, path: str, budget_tokens: int = 200) -> list[tuple[str, str]]:
    extraction = extract(
        path, source, module="pkg.tool", count_tokens=lambda text: len(text.split()), budget_tokens=budget_tokens
    )
    return [(chunk.title, embedded_title(chunk)) for chunk in extraction.chunks]


def test_code_is_embedded_with_the_names_around_it_and_documents_with_their_headings() -> None:
    source = (
        '"""Doc."""\n\nclass Box:\n    size = 1\n\n    def open(self):\n        return 1\n'
        "\n\ndef close():\n    return 2\n"
    )
    assert _titles(source, "pkg/tool.py") == [
        ("pkg.tool", "pkg.tool"),
        ("pkg.tool > Box", ""),
        ("pkg.tool > Box > open", "Box"),
        ("pkg.tool > close", ""),
    ]
    body = "".join(f"    value_{n} = compute({n})\n" for n in range(60))
    parts = _titles(f"def long():\n{body}", "pkg/tool.py", budget_tokens=60)
    assert parts[0] == ("pkg.tool > long (part 1)", "")
    assert parts[1] == ("pkg.tool > long (part 2)", "long (part 2)")
