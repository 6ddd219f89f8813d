"""Hashes that decide what is the same: content, pipeline and embedding (DESIGN §5).

Every field is length-prefixed, so ("ab", "c") never equals ("a", "bc").
"""

from __future__ import annotations

import hashlib

# Raise when the same text and model would give another vector.
EMBEDDING_FORMAT = b"undercroft-embedding-1"
_CONTENT_FORMAT = b"undercroft-content-1"
_PIPELINE_FORMAT = b"undercroft-pipeline-1"


def embedding_fingerprint(model_digest: str, embedded_text: str) -> bytes:
    """Hash what determines a vector: format, model identity, and the text as ``chunks.model_input`` makes it."""
    return _hash(EMBEDDING_FORMAT, model_digest.encode(), embedded_text.encode())


def content_hash(package: str, module: str, title: str, text: str, language: str, pipeline: bytes, tier: str) -> bytes:
    """Hash what a chunk says and by which pipeline it was made."""
    words = (package, module, title, text, language)
    return _hash(_CONTENT_FORMAT, *(word.encode() for word in words), pipeline, tier.encode())


def pipeline_hash(embedder: str, lexical: str, late_interaction: str, pipeline: bytes) -> bytes:
    """Hash what turns files into chunks: embedder identity, search back end, late interaction, ``ingestion.yaml``."""
    return _hash(_PIPELINE_FORMAT, embedder.encode(), lexical.encode(), late_interaction.encode(), pipeline)


def _hash(*fields: bytes) -> bytes:
    hasher = hashlib.sha256()
    for field in fields:
        hasher.update(len(field).to_bytes(8, "big"))
        hasher.update(field)
    return hasher.digest()
