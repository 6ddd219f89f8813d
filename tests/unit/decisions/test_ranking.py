"""What a query names, and in what order records answer: rules over any corpus, without a server."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.snapshots import Scope
from services.decisions.corpus import Corpus, Record
from services.decisions.mining import mine
from services.decisions.reasons import Passage, Reason, ranked, with_mentions, within_budget
from services.decisions.store import FileKey
from services.decisions.subjects import AROUND, EXACT, FAR, NEAR, SELF, Subject

SCOPE = Scope(1, "shop", 1, None, None)
TREE = ["src/shop/orders.py", "src/shop/readers/a.py", "src/shop/readers/__init__.py", "src/shop/__init__.py"]


def corpus_of(*texts: str, files: Sequence[str] = TREE) -> Corpus:
    decisions = []
    for number, text in enumerate(texts, 1):
        path = f"docs/adr/{number:04}-x.md"
        decision = mine(path, text)
        assert decision is not None
        decisions.append((FileKey("main", path), decision))
    return Corpus(decisions, [FileKey("main", path) for path in files])


def naming(text: str) -> Record:
    return corpus_of(f"# 1. X\n\n## Status\n\nAccepted\n\n## Decision\n\nSee `{text}`.\n").records[0]


@pytest.mark.parametrize(
    ("named", "query", "closeness"),
    [
        ("src/shop/orders.py", "src/shop/orders.py", EXACT),
        ("src/shop/orders.py", "./src/shop/orders.py:10-20", EXACT),
        ("src/shop/orders.py", "`src/shop/orders.py`", EXACT),
        # One file only can be meant by its name, or by the end of its path.
        ("orders.py", "src/shop/orders.py", EXACT),
        ("shop/orders.py", "src/shop/orders.py", EXACT),
        ("src/shop/orders.py", "orders.py", NEAR),
        # Several files have this name, so the record does not say which.
        ("__init__.py", "src/shop/__init__.py", 0),
        # A file that is gone is still named.
        ("src/shop/gone.py", "src/shop/gone.py", EXACT),
        ("shop/gone.py", "src/shop/gone.py", NEAR),
        ("src/shop/orders.py", "src/shop", FAR),
        ("src/shop/orders.py", "src/sho", 0),
        ("src/shop/readers/", "src/shop/readers/a.py", AROUND),
        ("src/shop/readers/", "src/shop/readers", EXACT),
        ("src/shop/readers/", "src/shop/orders.py", 0),
        ("Session.get()", "Session.get", EXACT),
        ("Session.get", "requests.sessions.Session.get", NEAR),
        ("requests.sessions.Session.get(url)", "Session.get()", NEAR),
        ("org.a.Parser#read(java.lang.String)", "Parser.read", NEAR),
        ("std::vector<int>", "vector", FAR),
        ("Parser#read()", "Parser", AROUND),
        ("Parser", "org.a.Parser#read", AROUND),
        ("get", "Session.get", 0),
        ("get", "get", EXACT),
        ("Session.get", "session.get", 0),
        ("Session.get", "why do we call Session.get twice?", 0),
    ],
)
def test_a_query_names_what_a_record_names(named: str, query: str, closeness: int) -> None:
    matches = Subject(query).matches(naming(named))
    assert (matches[0].closeness if matches else 0) == closeness
    assert not matches or matches[0].line == 9


def test_a_record_is_named_by_its_own_path() -> None:
    record = naming("x.py")
    for query in ("docs/adr/0001-x.md", "0001-x.md", "adr/0001-x.md:3"):
        assert [match.closeness for match in Subject(query).matches(record)] == [SELF]


@given(st.text())
def test_no_query_is_too_odd(query: str) -> None:
    for text in ("src/shop/orders.py", "Session.get()", "a::b->c"):
        Subject(query).matches(naming(text))


def passage(score: float, start_line: int = 1, text: str = "x") -> Passage:
    return Passage(start_line, start_line, "", text, score, ("lexical",))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), max_size=10),
    st.randoms(use_true_random=False),
)
def test_the_order_is_total_and_a_successor_comes_first(
    scores: list[tuple[int, int]], pairs: list[tuple[int, int]], chance: random.Random
) -> None:
    count = len(scores)
    # Later ones replace earlier ones, so nothing replaces itself in the end.
    replaces = {(max(pair), min(pair)) for pair in pairs if len(set(pair)) == 2 and max(pair) <= count}
    texts = []
    for number in range(1, count + 1):
        lines = "\n".join(f"Supersedes [{old}](000{old}-x.md)" for new, old in sorted(replaces) if new == number)
        texts.append(f"# {number}. T\n\n## Status\n\nAccepted\n\n{lines}\n\n## Decision\n\nx\n")
    corpus = corpus_of(*texts)
    reasons = [
        Reason(SCOPE, corpus, record, (passage(score),), closeness)
        for record, (score, closeness) in zip(corpus.records, scores, strict=True)
    ]
    order = ranked(reasons)
    assert sorted(one.identity for one in order) == sorted(one.identity for one in reasons)
    position = {one.record.decision.number: place for place, one in enumerate(order)}
    assert all(position[new] < position[old] for new, old in replaces)
    if not replaces:
        assert [(-one.closeness, -one.score) for one in order] == sorted((-c, -s) for s, c in scores)
    chance.shuffle(reasons)
    assert ranked(reasons) == order


def test_records_that_replace_each_other_are_both_told() -> None:
    text = "# {0}. T\n\n## Status\n\nAccepted\n\nSupersedes [{1}](000{1}-x.md)\n\n## Decision\n\nx\n"
    corpus = corpus_of(text.format(1, 2), text.format(2, 1))
    reasons = [Reason(SCOPE, corpus, record, (passage(1.0),), 0) for record in corpus.records]
    assert len(ranked(reasons)) == 2


def test_a_mention_marks_the_passage_around_it_or_adds_its_section() -> None:
    text = "# 1. X\n\n## Context\n\n`a.py`\n\n## Decision\n\n" + "x\n" * 100 + "`a.py` and `b.py`\n"
    record = corpus_of(text).records[0]
    found = Passage(3, 6, "X > Context", "## Context\n\n`a.py`\n", 0.7, ("dense", "lexical"))
    reason = with_mentions(
        Reason(SCOPE, corpus_of(text), record, (found,), 0), Subject("a.py").matches(record), text, 0.7
    )
    assert [(one.start_line, one.end_line, one.legs) for one in reason.passages] == [
        (3, 6, ("dense", "lexical", "mention"))
    ]
    reason = with_mentions(
        Reason(SCOPE, corpus_of(text), record, (found,), 0), Subject("b.py").matches(record), text, 0.7
    )
    named = ranked([reason])[0].passages[0]
    assert (named.title, named.legs) == ("1. X > Decision", ("mention",))
    assert named.start_line <= 109 <= named.end_line < named.start_line + 40
    assert named.text == "\n".join(text.split("\n")[named.start_line - 1 : named.end_line])


def test_texts_are_cut_at_a_line_where_the_answer_grows_too_long() -> None:
    corpus = corpus_of("# 1. X\n\n## Decision\n\nx\n")
    long = Reason(SCOPE, corpus, corpus.records[0], (passage(2.0, text="ab\ncd"), passage(1.0, text="ef\ngh")), 0)
    shown, cut = within_budget([long], 8)
    assert ([one.text for one in shown[0].passages], cut) == (["ab\ncd", "ef"], 1)
    assert within_budget([long], 10) == ([long], 0)
