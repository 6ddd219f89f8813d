"""The tokenizer that index and query share."""

from __future__ import annotations

import unicodedata
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.text import MAX_TERM_CHARS, query_tokens, tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getUserName", ["getusername", "get", "user", "name"]),
        ("get_user_name", ["getusername", "get", "user", "name"]),
        ("HTTPServer2", ["httpserver2", "http", "server", "2"]),
        ("XMLHttpRequest", ["xmlhttprequest", "xml", "http", "request"]),
        ("utf8", ["utf8", "utf", "8"]),
        ("__init__", ["init"]),
        ("_private", ["privat"]),
        ("connections connected", ["connect", "connect"]),
        ("os.path.join(a)", ["os", "path", "join", "a"]),
        ("3f2a9c41", ["3f2a9c41"]),
        ("___", []),
        ("", []),
    ],
)
def test_identifiers_are_split_and_kept_whole(text: str, expected: list[str]) -> None:
    assert tokens(text) == query_tokens(text) == expected


def test_words_that_unicode_spells_in_several_ways_are_one_term() -> None:
    assert tokens("Straße") == tokens("STRASSE")
    assert tokens("naïve") == tokens(unicodedata.normalize("NFD", "naïve")) == tokens("naive")
    assert tokens("ｆｕｌｌ") == tokens("full")
    assert tokens("ﬁle") == tokens("file")


def test_scripts_without_spaces_are_cut_into_pairs() -> None:
    assert query_tokens("数据库") == ["数据", "据库"]
    assert tokens("数据库") == ["数", "据", "库", "数据", "据库"]
    assert query_tokens("猫") == ["猫"]
    assert "猫" in tokens("黒猫です")


def test_mixed_scripts_are_told_apart() -> None:
    assert query_tokens("parse解析器2") == ["pars", "解析", "析器", "2"]


def test_marks_stay_with_their_letters() -> None:
    assert tokens("हिन्दी भाषा") == ["हिन्दी", "भाषा"]


def test_a_shared_character_is_no_evidence() -> None:
    assert not set(query_tokens("数学")) & set(tokens("数据"))


@given(st.text(max_size=60))
def test_terms_are_words_of_bounded_length(text: str) -> None:
    for term in tokens(text):
        assert term.split() == [term]
        assert len(term) <= MAX_TERM_CHARS
        assert term.encode()


@given(st.text(max_size=40), st.text(max_size=40))
def test_text_is_cut_at_white_space_whatever_stands_beside(left: str, right: str) -> None:
    assert tokens(f"{left} {right}") == tokens(left) + tokens(right)


@given(st.text(max_size=60))
def test_a_text_has_every_term_that_a_query_for_it_looks_up(text: str) -> None:
    assert set(query_tokens(text)) <= set(tokens(text))


@given(st.lists(st.from_regex(r"[a-z]{2,6}", fullmatch=True), min_size=2, max_size=4))
def test_camel_and_snake_spelling_are_found_by_each_other(words: list[str]) -> None:
    snake, camel = "_".join(words), "".join(word.capitalize() for word in words)
    assert "".join(words) in tokens(snake)
    assert "".join(words) in tokens(camel)


def test_threads_get_the_terms_that_one_thread_gets() -> None:
    texts = [f"running{n} quickly connections_{n} Größe{n}" for n in range(300)]
    expected = [tokens(text.swapcase()) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: tokens(text.swapcase()), texts)) == expected
