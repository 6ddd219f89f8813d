"""Words that stand in any question: having them in common says nothing."""

from __future__ import annotations

COMMON_WORDS = frozenset(
    """
    a about an and any are as at be been but by can could did do does for from had has have how i if in instead into is
    it its me my no not of on or our should so such than that the their there these they this to us use used uses using
    was we were what when where which who why will with would you your
    """.split()  # noqa: SIM905  # a column of quoted words is no easier to read
)
