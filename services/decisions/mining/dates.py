"""Days as people write them: ISO, day first with slashes or dots, and months by name."""

from __future__ import annotations

import datetime
import re

_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_PATTERN = re.compile(
    rf"""(?<![\w/.-])(?:
      (?P<iso>(\d{{4}})[-/.](\d{{1,2}})[-/.](\d{{1,2}})(?!\d))
    | (?P<compact>(20\d\d)([01]\d)([0-3]\d)(?!\w))
    | (?P<day_first>(\d{{1,2}})[-/.](\d{{1,2}})[-/.](\d{{4}}|\d\d)(?![\d/]))
    | (?P<month_first>{_MONTH}[\s-]{{1,3}}{_DAY}(?:\s*,\s*|[\s-]{{1,3}})(\d{{4}})(?!\d))
    | (?P<named_day>{_DAY}[\s-]{{1,3}}(?:of\s)?{_MONTH}(?:\s*,\s*|[\s-]{{1,3}})(\d{{4}})(?!\d))
    | (?P<year_named>(\d{{4}})[\s-]{{1,3}}{_MONTH}[\s-]{{1,3}}{_DAY}(?!\d))
    )""",
    re.IGNORECASE | re.VERBOSE,
)


def find_date(text: str) -> datetime.date | None:
    """Return the first day named in ``text``; a month without its day is none."""
    found = find_dates(text, limit=1)
    return found[0][1] if found else None


def find_dates(text: str, limit: int = 50) -> list[tuple[int, datetime.date]]:
    """Return up to ``limit`` (offset, day) pairs in order."""
    found: list[tuple[int, datetime.date]] = []
    for match in _PATTERN.finditer(text):
        day = _day(match)
        if day is not None:
            found.append((match.start(), day))
            if len(found) == limit:
                break
    return found


def _day(match: re.Match[str]) -> datetime.date | None:
    kind = match.lastgroup or ""
    parts = [part for part in match.groups()[_first_group(kind) :] if part is not None][:3]
    if kind in ("iso", "compact"):
        return _make(int(parts[0]), int(parts[1]), int(parts[2]))
    if kind == "day_first":
        return _make(_year(parts[2]), int(parts[1]), int(parts[0]))
    if kind == "month_first":
        return _make(int(parts[2]), _MONTHS[parts[0].lower()], int(parts[1]))
    if kind == "named_day":
        return _make(int(parts[2]), _MONTHS[parts[1].lower()], int(parts[0]))
    return _make(int(parts[0]), _MONTHS[parts[1].lower()], int(parts[2]))


def _first_group(kind: str) -> int:
    return _PATTERN.groupindex[kind]


def _year(text: str) -> int:
    return int(text) if len(text) == 4 else 2000 + int(text)


def _make(year: int, month: int, day: int) -> datetime.date | None:
    if month > 12 >= day:
        # No such month: only the other order can be meant (5-26-2021, 2023-24-05).
        month, day = day, month
    try:
        return datetime.date(year, month, day)
    except ValueError:
        return None
