"""When a content's fixity is due within a period: at a time that its digest decides, so that the reading is spread evenly."""

from __future__ import annotations

from datetime import datetime

from resources.windows import BatchWindow


def slot_of(sha256: str, period: BatchWindow) -> datetime:
    """The moment within the half-open `period` from which a content is to be read again."""
    share = int(sha256[:12], 16) / 16**12
    return period.start + (period.end - period.start) * share


def is_due(sha256: str, period: BatchWindow, *, known_since: datetime, now: datetime) -> bool:
    """Whether a content's slot has come. One that was captured after its slot was read then, and is due in the next period."""
    slot = slot_of(sha256, period)
    return known_since <= slot <= now
