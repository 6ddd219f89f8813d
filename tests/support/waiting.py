"""Waiting for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Return when a condition holds; the test fails when it does not come to."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to this"
        time.sleep(0.05)
