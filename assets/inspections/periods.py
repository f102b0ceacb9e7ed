"""Periods as people write them, and the moment at which each begins: what puts a report into its batch window."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

_WORDS = re.compile(
    r"(?P<year>\d{4})(?:-(?:Q(?P<quarter>[1-4])|H(?P<half>[12])|W(?P<week>\d{2})|(?P<month>\d{2})(?:-(?P<day>\d{2}))?))?",
    re.IGNORECASE,
)
ALLOWED = "a year, half, quarter, month, week or day, e.g. 2026, 2026-H1, 2026-Q2, 2026-05, 2026-W07 or 2026-05-31"


def period_start(period: str) -> datetime | None:
    """The first moment of a period, UTC; None for a period that is written in another way."""
    found = _WORDS.fullmatch(period.strip())
    if found is None:
        return None
    year = int(found["year"])
    try:
        if found["week"]:
            first = date.fromisocalendar(year, int(found["week"]), 1)
        else:
            month = 3 * int(found["quarter"]) - 2 if found["quarter"] else 6 * int(found["half"]) - 5 if found["half"] else 1
            first = date(year, int(found["month"] or month), int(found["day"] or 1))
    except ValueError:
        return None
    return datetime(first.year, first.month, first.day, tzinfo=UTC)
