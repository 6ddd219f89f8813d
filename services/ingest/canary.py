"""Self-recall: what was put into an index is found in it again.

A checksum tells that a file is as it was written; this tells that it was written right (turbovec#303 loses what is
added after a load).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from services.core.lexical import LexicalDocument, LexicalIndex
from services.core.vectors import Page, VectorIndex

#: How many documents or vectors are looked up.
SAMPLE = 8


def sample_of(ids: Sequence[int]) -> list[int]:
    """Choose up to ``SAMPLE`` ids, spread evenly, the first and the last among them."""
    if len(ids) <= SAMPLE:
        return list(ids)
    return [ids[place * (len(ids) - 1) // (SAMPLE - 1)] for place in range(SAMPLE)]


def lexical_problem(index: LexicalIndex, documents: int, sample: Iterable[LexicalDocument]) -> str:
    """Return what is wrong with a lexical index that should hold so many documents; empty when nothing is."""
    if len(index) != documents:
        return f"holds {len(index)} documents instead of {documents}"
    for document in sample:
        terms = [*document.name, *document.title, *document.body]
        if not terms:
            continue
        rarest = min(terms, key=index.frequency)
        found = index.search([rarest], 1, allowed_ids=[document.id])
        if [hit.id for hit in found.hits] != [document.id]:
            return f"does not find document {document.id} by its own words"
    return ""


def dense_problem(index: VectorIndex, vectors: int, sample: Iterable[Page]) -> str:
    """Return what is wrong with a vector index that should hold so many vectors; empty when nothing is."""
    if len(index) != vectors:
        return f"holds {len(index)} vectors instead of {vectors}"
    if not all(index.recalls(page) for page in sample):
        return "does not find a vector by itself"
    return ""
