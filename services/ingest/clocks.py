"""What the time of a file is worth as a hint."""

from __future__ import annotations

_GRANULARITY_NS = 50_000_000
_COARSE_GRANULARITY_NS = 2_000_000_000


def is_racy(mtime_ns: int, read_ns: int) -> bool:
    """Tell whether a file with this time, read at ``read_ns``, could have changed since without another time to show.

    Its file system's clock may stand still between the two; one that counts whole seconds, longer.
    """
    coarse = mtime_ns % 1_000_000_000 == 0
    # A time well in the future comes from no clock of now: another edit would not show the same one.
    return abs(read_ns - mtime_ns) < (_COARSE_GRANULARITY_NS if coarse else _GRANULARITY_NS)
