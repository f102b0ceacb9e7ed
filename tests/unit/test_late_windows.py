"""Facts about windows that are late, and runs that stopped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pipelines.alerting import silent_window_facts, stopped_facts
from resources.config import WindowConfig
from resources.ledger import DuePartition, RunRow
from resources.units import RunOutcome
from resources.windows import WindowCalendar

CALENDAR = WindowCalendar(WindowConfig.model_validate({"start": "2026-01-01"}))
NOW = datetime(2026, 1, 10, 12, tzinfo=UTC)


def due(window: str, planned_at: datetime) -> DuePartition:
    """A partition of a window with a pending unit."""
    return DuePartition(f"{window}|t", window, "t", 1, 0, 0, 0, 0, None, 0, planned_at=planned_at)


def late(**changes: Any) -> list[str]:
    """Fingerprints of the windows that are late."""
    facts: dict[str, Any] = {
        "due": (),
        "planned": (),
        "now": NOW,
        "delay": timedelta(minutes=30),
        "deadline": timedelta(hours=24),
        "scheduled_since": None,
    }
    return [fact.fingerprint for fact in silent_window_facts(CALENDAR, **facts | changes)]


def test_an_unsettled_window_is_late_after_its_deadline() -> None:
    """A window planned when it closed and not settled a day later is late; one that closed today is not."""
    rows = [due("2026-01-05", datetime(2026, 1, 6, 0, 30, tzinfo=UTC)), due("2026-01-09", datetime(2026, 1, 10, tzinfo=UTC))]
    assert late(due=rows) == ["silent|2026-01-05"]


def test_an_old_window_that_was_just_planned_is_not_late() -> None:
    """A backfill of old windows has its deadline from its planning on."""
    assert late(due=[due("2026-01-02", NOW - timedelta(hours=1))]) == []


def test_a_window_whose_schedule_was_off_is_not_missed() -> None:
    """Windows that nobody scheduled are not late."""
    assert late(scheduled_since=None) == []


def test_a_window_whose_schedule_did_nothing_is_late() -> None:
    """With the schedule on since the 7th, the window of the 7th and 8th should have been planned by now; earlier ones not."""
    since = datetime(2026, 1, 7, 12, tzinfo=UTC)
    assert late(scheduled_since=since) == ["silent|2026-01-07", "silent|2026-01-08"]
    assert late(scheduled_since=since, planned={"2026-01-07"}) == ["silent|2026-01-08"]


def test_a_stopped_run_is_a_fact_and_an_interrupted_one_is_not() -> None:
    """An unfit environment is told once for each run it stopped; what a person interrupted is not."""

    def run(name: str, outcome: RunOutcome, reason: str) -> RunRow:
        return RunRow(name, "tiles", ("w|t",), 1, "host", "boot", NOW, ended_at=NOW, outcome=outcome, summary={"reason": reason})

    runs = [
        run("a", RunOutcome.STOPPED, "the disk is full"),
        run("b", RunOutcome.STOPPED, "interrupted"),
        run("c", RunOutcome.PARTIAL, "the source is unwell"),
    ]
    found = list(stopped_facts(runs, since=NOW - timedelta(hours=1)))
    assert [fact.fingerprint for fact in found] == ["stopped|a"]
    assert "the disk is full" in found[0].body
    assert list(stopped_facts(runs, since=NOW)) == []
