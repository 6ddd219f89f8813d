"""Which texts share a batch, and at which padded length.

A text's length bucket is a function of its own token count alone. Lengths are multiples of 16, above 512 tokens of a
sixteenth of the power of two below them, and rows are powers of two: a model that reads 8,192 tokens sees 159 shapes,
since OpenVINO keeps memory for each (openvinotoolkit/openvino#34289).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LENGTH_STEP_TOKENS = 16
# Up to here every step is the shortest; from here on a bucket is padded by a sixteenth of its length at most.
_EVEN_TOKENS = 512
_STEPS_PER_DOUBLING = 16
MOST_ROWS = 64
MOST_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Batch:
    """Indexes of texts that run together at one padded length."""

    bucket: int
    indexes: tuple[int, ...]


def bucket_of(length: int, max_length: int) -> int:
    """Round a token count up to its padded length, at least one step and never above the model's maximum."""
    length = max(length, 1)
    step = LENGTH_STEP_TOKENS
    if length > _EVEN_TOKENS:
        step = (1 << (length - 1).bit_length() - 1) // _STEPS_PER_DOUBLING
    return min(-(-length // step) * step, max_length)


def rows_of(bucket: int) -> int:
    """Return the most rows of a batch of this padded length, a power of two."""
    rows = max(1, min(MOST_ROWS, MOST_TOKENS // bucket))
    return 1 << (rows.bit_length() - 1)


def batches(lengths: Sequence[int], max_length: int, *, most_rows: int | None = None) -> list[Batch]:
    """Group texts by bucket, shortest bucket first, into batches of a power of two rows.

    ``lengths`` are token counts; ``most_rows`` lowers the number of rows of a batch.
    """
    groups: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        groups.setdefault(bucket_of(length, max_length), []).append(index)
    planned: list[Batch] = []
    for bucket, indexes in sorted(groups.items()):
        most = rows_of(bucket) if most_rows is None else min(rows_of(bucket), most_rows)
        start = 0
        while start < len(indexes):
            left = min(most, len(indexes) - start)
            rows = 1 << (left.bit_length() - 1)
            planned.append(Batch(bucket=bucket, indexes=tuple(indexes[start : start + rows])))
            start += rows
    return planned
