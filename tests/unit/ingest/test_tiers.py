"""Tiers: which chunks of a file are embedded."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.ingest.chunks import Extraction
from services.ingest.extraction import extract
from services.ingest.extraction.tokens import estimate_tokens
from services.ingest.tiers import MAX_PAGE_CHARS, Tier, TierRule, embedded_keys, tier_of

MODULE = '''"""What the module is for."""

import os

LIMIT = 3


def public(value):
    """Say it."""
    return _private(value)


def _private(value):
    return value


class Tool:
    """A tool."""

    def use(self):
        return 1


class _Hidden:
    pass
'''


def take(text: str, path: str = "pkg/mod.py", module: str = "pkg.mod") -> Extraction:
    return extract(path, text, module=module, count_tokens=estimate_tokens, budget_tokens=254)


def names(extraction: Extraction, tier: Tier) -> set[str]:
    keys = embedded_keys(extraction, tier)
    return {chunk.qualified_name for chunk in extraction.chunks if chunk.key in keys}


def test_a_page_is_the_docstring_and_the_public_top_level() -> None:
    assert names(take(MODULE), Tier.DOC_PAGES) == {"pkg.mod", "pkg.mod.public", "pkg.mod.Tool"}


def test_a_module_without_a_docstring_has_no_head_on_its_page() -> None:
    assert names(take(MODULE.partition("\n")[2]), Tier.DOC_PAGES) == {"pkg.mod.public", "pkg.mod.Tool"}


def test_documents_are_on_pages_whole_and_other_text_is_not() -> None:
    readme = take("# One\n\ntext\n\n# Two\n\nmore\n", "README.md", "")
    assert len(embedded_keys(readme, Tier.DOC_PAGES)) == len(readme.chunks) == 2
    assert not embedded_keys(take("[section]\nkey = 1\n", "setup.cfg", ""), Tier.DOC_PAGES)


def test_a_page_ends_when_it_is_full() -> None:
    functions = (f"def f_{n}():\n" + f'    """{"word " * 60}"""\n' for n in range(100))
    extraction = take("\n\n".join(functions))
    keys = embedded_keys(extraction, Tier.DOC_PAGES)
    chosen = [chunk for chunk in extraction.chunks if chunk.key in keys]
    assert sum(len(chunk.text) for chunk in chosen) <= MAX_PAGE_CHARS
    assert chosen == list(extraction.chunks[: len(chosen)])
    assert 20 < len(chosen) < 100


@pytest.mark.parametrize("module", ["json", "logging", "email"])
def test_pages_are_part_of_the_whole_and_nothing_of_none(module: str) -> None:
    for path in sorted(Path(str(resources.files(module))).glob("*.py")):
        extraction = take(path.read_text(), path.name, f"{module}.{path.stem}")
        whole = embedded_keys(extraction, Tier.FULL)
        assert len(whole) == len(extraction.chunks)
        assert embedded_keys(extraction, Tier.DOC_PAGES) <= whole
        assert not embedded_keys(extraction, Tier.NONE)


def test_own_packages_are_full_and_dependencies_are_pages_unless_a_rule_says_otherwise() -> None:
    assert tier_of("app", (), is_dependency=False) is Tier.FULL
    assert tier_of("requests", (), is_dependency=True) is Tier.DOC_PAGES
    rules = (TierRule("req*", Tier.NONE), TierRule("requests", Tier.FULL))
    assert tier_of("requests", rules, is_dependency=True) is Tier.NONE, "the first rule that fits counts"


@given(st.text("ab-", min_size=1), st.lists(st.tuples(st.text("ab-*?", min_size=1), st.sampled_from(Tier)), max_size=4))
def test_a_rule_with_a_star_for_all_fits_all(package: str, rules: list[tuple[str, Tier]]) -> None:
    chosen = tier_of(package, [TierRule(*one) for one in rules] + [TierRule("*", Tier.NONE)], is_dependency=False)
    assert chosen is Tier.NONE or chosen in [tier for _, tier in rules]
