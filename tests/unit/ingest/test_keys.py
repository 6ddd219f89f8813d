"""Names fit a database index, and different ones stay different."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.ingest.keys import MAX_NAME_BYTES, fitted


@given(st.text(max_size=200))
def test_names_that_fit_stay_as_they_are(name: str) -> None:
    assert fitted(name, 2000) == name


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_longer_ones_are_bounded_and_stay_different(first: str, second: str) -> None:
    long = "ü" * MAX_NAME_BYTES
    a, b = fitted(long + first), fitted(long + second)
    assert len(a.encode()) <= MAX_NAME_BYTES
    assert a.startswith("ü" * 100)
    assert (a == b) is (first == second)
