"""G9 and G10: length-prefixed fields, and what changes a fingerprint."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.ingest.fingerprint import content_hash, embedding_fingerprint, pipeline_hash

text = st.text(max_size=20)


@given(text, text, text, text)
def test_fields_that_join_alike_hash_differently(a: str, b: str, c: str, d: str) -> None:
    same = (a, b) == (c, d)
    assert (content_hash(a, b, "", "", "", b"", "full") == content_hash(c, d, "", "", "", b"", "full")) is same
    assert (embedding_fingerprint(a, b) == embedding_fingerprint(c, d)) is same


def test_a_moved_boundary_is_another_content() -> None:
    assert content_hash("ab", "c", "", "", "", b"", "full") != content_hash("a", "bc", "", "", "", b"", "full")


def test_every_field_counts() -> None:
    base = ("package", "module", "title", "text", "python", b"pipeline", "full")
    hashes = {content_hash(*base)}
    for place, field in enumerate(base):
        changed = list(base)
        changed[place] = field + (b"x" if isinstance(field, bytes) else "x")  # type: ignore[operator]
        hashes.add(content_hash(*changed))  # type: ignore[arg-type]
    assert len(hashes) == len(base) + 1


def test_the_pipeline_hash_covers_embedder_back_end_late_interaction_and_yaml() -> None:
    base = ("model", "tantivy", "", b"version: 1\n")
    variants = {
        pipeline_hash(*base),
        pipeline_hash("other", *base[1:]),
        pipeline_hash(base[0], "other", *base[2:]),
        pipeline_hash(*base[:2], "colbert", base[3]),
        pipeline_hash(*base[:3], b"version: 1\n# a comment\n"),
    }
    assert len(variants) == 5
