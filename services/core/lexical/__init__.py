"""BM25 over terms that are given, as immutable files that a manifest can publish by their SHA-256.

The package keeps one promise: **the same live documents give the same scores, to the last bit, whatever edits led to
them** (cold, incremental, shuffled, deleted and added again). tantivy finds candidates; its own scores count deleted
documents and add in single precision, so they are never returned: ``scoring`` states how the exact ones are computed
and why no document that belongs in the answer can be missed.

A directory of an index holds exactly the files that ``build`` and ``update`` return:

* ``lexical.json``: format, tokenizer, and the forward files with the rows of them that are dead;
* ``forward-NNNNNN.bin``: for a batch of documents, their ids, lengths and term counts (what exact scoring reads);
* ``dead-NNNNNN-NNNNNN.bin``: rows of a forward file that were deleted;
* ``meta.json`` and the segment files of tantivy.
"""

from __future__ import annotations

from services.core.lexical.document import FIELD_WEIGHTS, LexicalDocument
from services.core.lexical.layout import FORMAT, IndexFile, count_documents
from services.core.lexical.reader import LexicalHit, LexicalHits, LexicalIndex
from services.core.lexical.writer import build, update

__all__ = [
    "FIELD_WEIGHTS",
    "FORMAT",
    "IndexFile",
    "LexicalDocument",
    "LexicalHit",
    "LexicalHits",
    "LexicalIndex",
    "build",
    "count_documents",
    "update",
]
