"""What runs a model's graph. Each backend is a module of its own, imported when a model asks for it.

Invariant: a backend is given token ids and returns sentence vectors; it neither tokenizes nor decides what is batched.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

Float32Array = npt.NDArray[np.float32]
Int64Array = npt.NDArray[np.int64]

__all__ = ["Backend", "Float32Array", "Int64Array", "Lane"]


class Lane(StrEnum):
    """Which threads a batch runs on: those of bulk work, or the one that is kept free for queries."""

    BULK = "bulk"
    QUERY = "query"


class Backend(Protocol):
    """A model in memory. Its methods are safe to call from several threads.

    ``threads`` passages run at once, and one query beside them.
    """

    @property
    def threads(self) -> int: ...

    def infer(self, input_ids: Int64Array, attention_mask: Int64Array, lane: Lane) -> Float32Array:
        """Run one batch: two arrays of rows x tokens, padded on the right; return float32, rows x dimensions."""
        ...
