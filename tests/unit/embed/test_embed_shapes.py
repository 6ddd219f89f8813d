"""How texts are grouped: a text's padded length depends on nothing but itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.embed.shapes import LENGTH_STEP_TOKENS, MOST_ROWS, MOST_TOKENS, batches, bucket_of, rows_of

MAX_LENGTHS = st.sampled_from([100, 128, 250, 256, 512, 2000, 8192])


@st.composite
def planned(draw: st.DrawFn) -> tuple[list[int], int]:
    max_length = draw(MAX_LENGTHS)
    return draw(st.lists(st.integers(1, max_length), max_size=80)), max_length


@given(planned())
def test_every_text_runs_exactly_once_at_the_bucket_of_its_own_length(case: tuple[list[int], int]) -> None:
    lengths, max_length = case
    plan = batches(lengths, max_length)
    assert sorted(index for batch in plan for index in batch.indexes) == list(range(len(lengths)))
    for batch in plan:
        for index in batch.indexes:
            assert batch.bucket == bucket_of(lengths[index], max_length)


@given(planned())
def test_batches_stay_within_the_bounds_that_keep_memory_flat(case: tuple[list[int], int]) -> None:
    lengths, max_length = case
    for batch in batches(lengths, max_length):
        rows = len(batch.indexes)
        assert rows & (rows - 1) == 0
        assert rows <= MOST_ROWS
        assert rows == 1 or rows * batch.bucket <= MOST_TOKENS


@given(st.integers(1, 8192), MAX_LENGTHS)
def test_a_bucket_holds_its_text_and_wastes_less_than_one_step(length: int, max_length: int) -> None:
    length = min(length, max_length)
    bucket = bucket_of(length, max_length)
    assert length <= bucket <= max_length
    assert bucket - length < max(LENGTH_STEP_TOKENS, length / 16)


@given(st.integers(1, 511))
def test_the_lengths_of_common_models_keep_their_buckets(length: int) -> None:
    """Vectors depend on the bucket: moving one would make every stored vector of its texts another one."""
    assert bucket_of(length, 512) == -(-length // 16) * 16


@pytest.mark.parametrize(("max_length", "most"), [(512, 100), (8192, 160)])
def test_the_shapes_of_a_model_are_few(max_length: int, most: int) -> None:
    buckets = {bucket_of(length, max_length) for length in range(1, max_length + 1)}
    assert sum(rows_of(bucket).bit_length() for bucket in buckets) <= most


@given(planned())
def test_texts_run_one_by_one_where_rows_are_not_independent(case: tuple[list[int], int]) -> None:
    lengths, max_length = case
    assert all(len(batch.indexes) == 1 for batch in batches(lengths, max_length, most_rows=1))


def test_a_text_of_no_tokens_has_a_shape_too() -> None:
    assert rows_of(bucket_of(0, 256)) >= 1
    assert bucket_of(0, 256) == bucket_of(1, 256)
