"""Lines that nobody writes cost what their length costs: no expression over them takes its square."""

from __future__ import annotations

import time

import pytest

from services.decisions.mining.markdown import read_markdown
from services.ingest.extraction import extract
from services.ingest.extraction.tokens import estimate_tokens
from tests.support.extraction import assert_whole

_LENGTH = 60_000
_LIMIT_S = 8.0  # a square takes minutes
_SPACES, _NBSP = " " * _LENGTH, "\xa0" * _LENGTH


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.adoc", f"= Title{_SPACES}x\n\ntext\n"),
        ("b.adoc", f"= {_SPACES}\n"),
        ("a.org", f"* Title{_SPACES}:x\n\ntext\n"),
        ("a.md", f"## {'[' * _LENGTH}\n"),
        ("b.md", f"## {'<' * _LENGTH}\n"),
        ("c.md", f"## Title{_SPACES}x\n"),
        ("d.md", f"## Title{_NBSP}x\n"),
        ("e.md", f"Title {'{#a' * (_LENGTH // 3)}\n====\n"),
        ("a.sql", f"SELECT 1;{_SPACES}x\n"),
        ("a.go", f"package a\n\nvar x = 1{_SPACES}x\n"),
        ("a.js", f"const x = 1;{_SPACES})x\n"),
        ("a.rst", f"Title{_SPACES}x\n=====\n\n:a:{_SPACES}`\n"),
        ("a.yaml", f"a: b{_SPACES}#x\n"),
        ("a.toml", f"a = 1{_SPACES}x\n"),
        ("a.srt", f"1\n00:00:01,000 -->{_SPACES}x\ntext\n"),
    ],
)
def test_a_line_costs_what_its_length_costs(path: str, text: str) -> None:
    begun = time.process_time()
    found = extract(path, text, module="", count_tokens=estimate_tokens, budget_tokens=254)
    assert time.process_time() - begun < _LIMIT_S
    assert_whole(found, text)


@pytest.mark.parametrize("fill", [_NBSP, _SPACES, "{#a" * (_LENGTH // 3)])
def test_the_title_of_a_decision_costs_what_its_length_costs(fill: str) -> None:
    begun = time.process_time()
    document = read_markdown(f"# 1. Use H2{fill}x\n\n## Status\n\nAccepted\n")
    assert time.process_time() - begun < _LIMIT_S
    assert [heading.level for heading in document.headings] == [1, 2]
