"""G32: page tokens are authenticated and bound to their request."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from undercroft.search.v1.search_service_pb2 import SearchRequest

from services.core.errors import InvalidArgument
from services.core.pages import PageTokens, load_key

pages = PageTokens(b"k" * 32)
request = SearchRequest(query="where", projects=["projects/a"], page_size=5)


@given(
    st.dictionaries(st.text(max_size=10), st.integers() | st.text(max_size=20) | st.lists(st.integers()), max_size=5)
)
def test_a_token_brings_its_position_back(position: dict[str, object]) -> None:
    assert pages.open(request, pages.seal(request, position)) == position  # type: ignore[arg-type]


def test_page_size_and_token_may_differ_and_nothing_else() -> None:
    token = pages.seal(request, {"offset": 5})
    again = SearchRequest(query="where", projects=["projects/a"], page_size=50, page_token=token)
    assert pages.open(again, token) == {"offset": 5}
    other = SearchRequest(query="where else", projects=["projects/a"])
    with pytest.raises(InvalidArgument):
        pages.open(other, token)


@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_a_changed_byte_is_refused(place: int, change: int) -> None:
    token = pages.seal(request, {"offset": 5})
    place %= len(token)
    changed = token[:place] + chr(33 + (ord(token[place]) - 33 + change) % 90) + token[place + 1 :]
    if changed.rstrip("=") == token:
        return
    try:
        opened = pages.open(request, changed)
    except InvalidArgument:
        return
    # The last character of base64 has bits that no byte is made of.
    assert place == len(token) - 1
    assert opened == {"offset": 5}


@given(st.text(max_size=100))
def test_nonsense_is_refused(token: str) -> None:
    with pytest.raises(InvalidArgument):
        pages.open(request, token)


def test_a_token_of_another_key_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        PageTokens(b"x" * 32).open(request, pages.seal(request, {"offset": 5}))


def test_services_share_the_key_of_a_folder(tmp_path: Path) -> None:
    key = load_key(tmp_path)
    assert load_key(tmp_path) == key
    assert len(key) == 32
    assert os.stat(tmp_path / "page-token.key").st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["page-token.key"]
