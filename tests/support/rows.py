"""Builders of row units and their rows for tests."""

from __future__ import annotations

from typing import Any

from resources.keys import digest_of
from resources.row_tables import row_uri
from resources.units import PlannedUnit, Row
from tests.support.ledgers import planned_unit


def event_row(number: int, **changes: Any) -> Row:
    """Preservation event `event-<number>`."""
    values: dict[str, Any] = {
        "event_id": f"event-{number}",
        "event_type": "messageDigestCalculation",
        "content_digest": digest_of(number),
        "operation": "sha256 v1",
        "outcome": "success",
        "detail": {"algorithm": "sha256", "share": 0.5},
        "linked": [["copy", "c" * 64]],
        "agent": "tilewright",
    }
    return Row("preservation_events", values | changes)


def event_unit(number: int) -> PlannedUnit:
    """The unit whose output is that event."""
    return planned_unit(number, uri=row_uri("preservation_events", f"event-{number}"), product="event")


def record_row(site: str, period: str, *, source: str = "reports/1.pdf", revision: str = "r", **changes: Any) -> Row:
    """An inspection record."""
    values: dict[str, Any] = {
        "site": site,
        "period": period,
        "source_uri": source,
        "content_digest": "d" * 64,
        "page_count": 3,
        "extraction_version": "1",
        "revision": revision,
        "fields": {"height_m": 41.5, "ok": True},
        "findings": [],
    }
    return Row("inspection_records", values | changes)


def record_unit(site: str, period: str, *, source: str = "reports/1.pdf") -> PlannedUnit:
    """The unit whose output is the record of a site and period, from one source."""
    return planned_unit(
        1, uri=row_uri("inspection_records", site, period), key=digest_of([site, source]), product="record", tile=None
    )
