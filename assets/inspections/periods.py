"""Periods as people write them: the one form of each, and the moment at which it begins, which puts a report into its window."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, date, datetime

from resources.config_inspections import ENGLISH_MONTHS

_WORDS = re.compile(
    r"(?P<year>[0-9]{4})(?:-(?:Q(?P<quarter>[1-4])|H(?P<half>[12])|W(?P<week>[0-9]{2})|"
    r"(?P<month>[0-9]{2})(?:-(?P<day>[0-9]{2}))?))?",
    re.IGNORECASE,
)
_PART = re.compile(
    r"(?P<part>[qh][1-4])\s*[/ -]?\s*(?P<year>[0-9]{4})|(?P<y>[0-9]{4})\s*[/ -]?\s*(?P<p>[qh][1-4])", re.IGNORECASE
)
_NUMBERED = re.compile(r"(?P<month>[0-9]{1,2})[/.](?P<year>[0-9]{4})")
ALLOWED = "a year, half, quarter, month, week or day, e.g. 2026, 2026-H1, 2026-Q2, 2026-05, 2026-W07 or 2026-05-31"


def period_start(period: str) -> datetime | None:
    """The first moment of a period in its one form, UTC; None for what has none."""
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


def normal_period(text: str, *, months: Sequence[str] = ENGLISH_MONTHS) -> str:
    """The one form of a period: 2026-Q1 for Q1 2026, 2026-05 for 05/2026 and May 2026, as `ALLOWED` says.

    What is not understood stays as it is, with single spaces. Applied twice it gives the same.
    """
    plain = " ".join(unicodedata.normalize("NFC", text).split())
    form = plain
    if part := _PART.fullmatch(plain):
        form = f"{part['year'] or part['y']}-{part['part'] or part['p']}"
    elif numbered := _NUMBERED.fullmatch(plain):
        form = f"{numbered['year']}-{int(numbered['month']):02}"
    else:
        named, _, year = plain.rpartition(" ")
        month = _month(named.removesuffix("."), months)
        if month is not None and re.fullmatch("[0-9]{4}", year):
            form = f"{year}-{month:02}"
    return form.upper() if period_start(form) is not None else plain


def _month(named: str, months: Sequence[str]) -> int | None:
    folded = named.casefold()
    return next((at for at, name in enumerate(months, start=1) if folded in (name.casefold(), name[:3].casefold())), None)
