"""A query's vector is compact, can't be changed, and is written so that every bit comes back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.search.steps.base import QueryVector

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(FLOATS, min_size=1, max_size=20))
def test_what_is_written_for_the_database_reads_back_bit_for_bit(numbers: list[float]) -> None:
    packed = np.array(numbers, dtype="<f4").tobytes()
    written = QueryVector(packed).text
    assert written[0] + written[-1] == "[]"
    back = np.array([float(one) for one in written[1:-1].split(",")])
    assert back.astype("<f4").tobytes() == packed


@given(st.lists(FLOATS, min_size=1, max_size=20))
def test_its_numbers_are_those_that_were_packed(numbers: list[float]) -> None:
    values = QueryVector(np.array(numbers, dtype="<f4").tobytes()).values
    assert values.dtype == np.float32
    assert values.tolist() == numbers
    assert all(math.copysign(1, a) == math.copysign(1, b) for a, b in zip(values.tolist(), numbers, strict=True))


def test_its_numbers_can_not_be_changed() -> None:
    vector = QueryVector(np.ones(8, dtype="<f4").tobytes())
    with pytest.raises(ValueError, match="read-only"):
        vector.values[0] = 2
