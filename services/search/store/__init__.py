"""What search reads. Every statement takes a scope: the project, visible to the caller, and one generation of it."""

from services.search.store.chunks import chunk_with_neighbours, chunks_of_contents, list_chunks
from services.search.store.contents import (
    Located,
    allowed_contents,
    locate,
    named_contents,
    score_contents,
    score_vectors,
)
from services.search.store.files import facets, file_text
from services.search.store.filters import glob_regex
from services.search.store.generations import generation_row, live_generations, renew_leases, sidecars
from services.search.store.symbols import references, symbols

__all__ = [
    "Located",
    "allowed_contents",
    "chunk_with_neighbours",
    "chunks_of_contents",
    "facets",
    "file_text",
    "generation_row",
    "glob_regex",
    "list_chunks",
    "live_generations",
    "locate",
    "named_contents",
    "references",
    "renew_leases",
    "score_contents",
    "score_vectors",
    "sidecars",
    "symbols",
]
