"""Path globs mean what the proto says, and their expressions are safe."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.search.store import glob_regex


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("*.py", "a.py", True),
        ("*.py", "b/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "b/c/a.py", True),
        ("src/**", "src/a/b", True),
        ("src/**", "srcs/a", False),
        ("a?.py", "ab.py", True),
        ("a?.py", "a/.py", False),
        ("[ab].py", "a.py", True),
        ("[!ab].py", "a.py", False),
        ("a+b.(py)", "a+b.(py)", True),
        ("größe 日本.md", "größe 日本.md", True),
        ("a.b", "axb", False),
    ],
)
def test_globs(glob: str, path: str, matches: bool) -> None:
    assert bool(re.search(glob_regex(glob), path)) is matches


@given(st.text(alphabet=st.characters(blacklist_characters="*?["), max_size=30))
def test_text_without_wildcards_matches_itself_alone(text: str) -> None:
    assert re.fullmatch(glob_regex(text).removeprefix("^").removesuffix("$"), text)
