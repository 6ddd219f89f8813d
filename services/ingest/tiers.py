"""What of a package is embedded. All of it is indexed in any case: words, symbols, references (DESIGN §5).

Tiers choose among the chunks that there are, so that a chunk has the same text, lines and vector in every tier, and a
package that is given another tier embeds only what it has not embedded before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from services.ingest.chunks import Chunk, ChunkKind, Extraction, SymbolKind

# Characters of a module that its page may have.
MAX_PAGE_CHARS = 8000


class Tier(StrEnum):
    FULL = "full"
    DOC_PAGES = "doc_pages"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class TierRule:
    """Gives the packages whose name fits a glob their tier."""

    glob: str
    tier: Tier


def tier_of(package: str, rules: Sequence[TierRule], *, is_dependency: bool) -> Tier:
    """Return the tier of a package: that of the first rule that fits, else full for own packages, pages for others."""
    for rule in rules:
        if fnmatchcase(package, rule.glob):
            return rule.tier
    return Tier.DOC_PAGES if is_dependency else Tier.FULL


def embedded_keys(extraction: Extraction, tier: Tier) -> frozenset[str]:
    """Return the keys of the chunks of a file that are embedded."""
    if tier is Tier.FULL:
        return frozenset(chunk.key for chunk in extraction.chunks)
    if tier is Tier.NONE:
        return frozenset()
    if not extraction.module:
        return frozenset(chunk.key for chunk in extraction.chunks if chunk.kind is ChunkKind.SECTION)
    return _page(extraction)


def _page(extraction: Extraction) -> frozenset[str]:
    """Choose what documents a module, in its order, until the page is full."""
    has_docstring = any(one.kind is SymbolKind.MODULE and one.summary for one in extraction.symbols)
    keys: set[str] = set()
    size = 0
    for chunk in extraction.chunks:
        if not (_is_public_definition(chunk) or (has_docstring and _is_module_head(chunk))):
            continue
        size += len(chunk.text)
        if size > MAX_PAGE_CHARS:
            break
        keys.add(chunk.key)
    return frozenset(keys)


def _is_module_head(chunk: Chunk) -> bool:
    return chunk.kind is ChunkKind.MODULE and chunk.ordinal == 0


def _is_public_definition(chunk: Chunk) -> bool:
    """Tell whether a chunk begins a top-level class or function without a leading underscore."""
    is_top_level = chunk.qualified_name == f"{chunk.module}.{chunk.name}"
    is_definition = chunk.kind in (ChunkKind.CLASS, ChunkKind.FUNCTION) and chunk.ordinal == 0
    return is_definition and is_top_level and not chunk.name.startswith("_")
