"""A query made ready: its terms with exact weights, and what tantivy is asked so that its scores come near."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tantivy

from services.core.lexical.layout import TEXT_FIELD
from services.core.lexical.scoring import K1, ApproximateStatistics, Floats, Statistics
from services.core.lexical.segment import OpenSegment

#: A query keeps its rarest terms; a pasted log of hundreds of words gains nothing from the common ones.
MAX_QUERY_TERMS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """The terms that count, in byte order.

    ``numbers`` holds for each segment the number of each term in it. No document that tantivy scores ``s`` has an
    exact score above ``ratio * s + slack``.
    """

    terms: tuple[str, ...]
    frequencies: tuple[int, ...]
    idfs: Floats
    numbers: tuple[tuple[int | None, ...], ...]
    tantivy: tantivy.Query
    ratio: float
    slack: float


@dataclass(frozen=True, slots=True)
class SortedTerms:
    """Query terms told apart: those to look up, those that no document has, and those too many."""

    known: tuple[str, ...]
    unknown: tuple[str, ...]
    ignored: tuple[str, ...]


def sort_terms(terms: Sequence[str], segments: Sequence[OpenSegment]) -> SortedTerms:
    """Tell the distinct ``terms`` apart, each part in byte order."""
    frequencies = {term: frequency(term, segments) for term in sorted(set(terms), key=str.encode)}
    known = [term for term, documents in frequencies.items() if documents]
    # sorted() keeps byte order among equals, so which terms are dropped does not depend on the query's order.
    ignored = set(sorted(known, key=frequencies.__getitem__)[MAX_QUERY_TERMS:])
    return SortedTerms(
        known=tuple(term for term in known if term not in ignored),
        unknown=tuple(term for term, documents in frequencies.items() if not documents),
        ignored=tuple(term for term in known if term in ignored),
    )


def frequency(term: str, segments: Sequence[OpenSegment]) -> int:
    """Return how many live documents have ``term``."""
    return sum(segment.frequency(segment.forward.number(term)) for segment in segments)


def prepare(
    terms: tuple[str, ...],
    segments: Sequence[OpenSegment],
    *,
    exact: Statistics,
    searcher: tantivy.Searcher,
    schema: tantivy.Schema,
    approximate: ApproximateStatistics,
) -> Query:
    """Weigh ``terms``, each of which a live document has."""
    numbers = tuple(tuple(segment.forward.number(term) for term in terms) for segment in segments)
    frequencies = tuple(
        sum(segment.frequency(of_segment[place]) for segment, of_segment in zip(segments, numbers, strict=True))
        for place in range(len(terms))
    )
    idfs = [exact.idf(documents) for documents in frequencies]
    slack = 0.0
    clauses = []
    for term, idf in zip(terms, idfs, strict=True):
        boost = approximate.boost(idf, searcher.doc_freq(TEXT_FIELD, term))
        if boost is None:
            slack += idf * (K1 + 1.0)
            boost = 1.0
        clause = tantivy.Query.term_query(schema, TEXT_FIELD, term, index_option="freq")
        clauses.append((tantivy.Occur.Should, tantivy.Query.boost_query(clause, boost)))
    return Query(
        terms=terms,
        frequencies=frequencies,
        idfs=np.array(idfs, dtype=np.float64),
        numbers=numbers,
        tantivy=tantivy.Query.boolean_query(clauses),
        ratio=approximate.ratio(exact, len(terms)),
        slack=slack,
    )


def read_approximate(
    searcher: tantivy.Searcher, schema: tantivy.Schema, segments: Sequence[OpenSegment]
) -> ApproximateStatistics | None:
    """Return the statistics that tantivy scores with, from its own explanation; None where no document has a term."""
    for segment in segments:
        live = np.flatnonzero(segment.frequencies)
        if len(live):
            term = segment.forward.term(int(live[0]))
            query = tantivy.Query.term_query(schema, TEXT_FIELD, term, index_option="freq")
            _, address = searcher.search(query, 1).hits[0]
            explanation = json.loads(query.explain(searcher, address).to_json())
            documents, mean_length = _explained(explanation, "N, "), _explained(explanation, "avgdl, ")
            if documents is None or mean_length is None:
                raise RuntimeError("This release of tantivy explains its scores in other words than release 0.27.")
            return ApproximateStatistics(documents=int(documents), mean_length=mean_length)
    return None


def _explained(explanation: dict[str, object], description: str) -> float | None:
    """Return the value whose description begins so; tantivy offers no other way to its statistics."""
    value, details = explanation["value"], explanation.get("details", [])
    if str(explanation["description"]).startswith(description) and isinstance(value, float | int):
        return float(value)
    if isinstance(details, list):
        for detail in details:
            found = _explained(detail, description)
            if found is not None:
                return found
    return None
