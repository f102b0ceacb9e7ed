"""Batch windows: contiguous, half-open, in UTC, named by their start."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.config import WindowConfig
from resources.windows import WindowCalendar

EVERY = ("hour", "day", "week", "month", "year")


def calendar(every: str = "day", start: str = "2026-01-01T00:00:00Z", end: str | None = None) -> WindowCalendar:
    facts: dict[str, Any] = {"every": every, "start": start} | ({} if end is None else {"end": end})
    return WindowCalendar(WindowConfig(**facts))


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("every", "key", "start", "end"),
    [
        ("hour", "2026-03-29T02", utc(2026, 3, 29, 2), utc(2026, 3, 29, 3)),
        ("day", "2026-03-29", utc(2026, 3, 29), utc(2026, 3, 30)),
        ("week", "2026-03-26", utc(2026, 3, 26), utc(2026, 4, 2)),
        ("month", "2026-03", utc(2026, 3, 1), utc(2026, 4, 1)),
        ("year", "2026", utc(2026, 1, 1), utc(2027, 1, 1)),
    ],
)
def test_a_time_belongs_to_the_window_that_holds_it(every: str, key: str, start: datetime, end: datetime) -> None:
    """A window is named by its start and holds its start but not its end; weeks begin on the weekday of the first one."""
    found = calendar(every).window_of(utc(2026, 3, 29, 2, 30))
    assert found is not None
    assert (found.key, found.start, found.end) == (key, start, end)
    assert calendar(every).window_of(start) == found
    assert calendar(every).window_of(end) != found
    assert calendar(every).window(key) == found


def test_a_time_without_a_zone_is_utc() -> None:
    """A naive time is UTC, and a time in another zone is converted before it is sorted into a day."""
    days = calendar()
    assert days.window_of(datetime(2026, 1, 5, 23)) == days.window_of(utc(2026, 1, 5, 1))
    late = datetime(2026, 1, 5, 23, tzinfo=timezone(timedelta(hours=-5)))
    found = days.window_of(late)
    assert found is not None
    assert found.key == "2026-01-06"


def test_times_outside_have_no_window() -> None:
    """Before the first window, and at or after the configured end, there is none."""
    days = calendar(end="2026-01-03T00:00:00Z")
    assert days.window_of(utc(2025, 12, 31, 23, 59)) is None
    assert days.window_of(utc(2026, 1, 2, 23, 59)) is not None
    assert days.window_of(utc(2026, 1, 3)) is None


def test_a_start_or_end_inside_a_window_takes_the_whole_window() -> None:
    """A configured start is floored and an end is raised to the window's edge: no window is cut."""
    days = calendar(start="2026-01-01T15:00:00Z", end="2026-01-02T01:00:00Z")
    assert [window.key for window in days.windows(utc(2027, 1, 1))] == ["2026-01-01", "2026-01-02"]


def test_only_windows_that_have_ended_are_listed() -> None:
    """Without a configured end, a window is there once it is over."""
    days = calendar()
    assert [window.key for window in days.windows(utc(2026, 1, 3))] == ["2026-01-01", "2026-01-02"]
    assert [window.key for window in days.windows(utc(2026, 1, 2, 23, 59))] == ["2026-01-01"]
    assert list(days.windows(utc(2025, 1, 1))) == []


def test_the_window_that_is_not_over_is_open() -> None:
    """Unless an end is configured: then all windows up to it are listed, whatever the time."""
    found = calendar().open_window(utc(2026, 1, 2, 23, 59))
    assert found is not None
    assert found.key == "2026-01-02"
    assert calendar().open_window(utc(2025, 1, 1)) is None
    assert calendar(end="2026-01-05T00:00:00Z").open_window(utc(2026, 1, 2)) is None


@pytest.mark.parametrize(
    ("every", "key"),
    [
        ("day", "2025-12-31"),
        ("day", "2026-1-5"),
        ("day", "../../etc"),
        ("week", "2026-01-02"),
        ("month", "2026-13"),
        ("hour", "2026-01-01"),
        ("year", "1999"),
    ],
)
def test_a_key_that_no_window_has_is_refused(every: str, key: str) -> None:
    """Keys out of range, in another form, or not on a window's edge are refused."""
    with pytest.raises(ValueError):  # noqa: PT011
        calendar(every).window(key)


@pytest.mark.parametrize(
    ("every", "line"),
    [("hour", "0 * * * *"), ("day", "0 0 * * *"), ("week", "0 0 * * 4"), ("month", "0 0 1 * *"), ("year", "0 0 1 1 *")],
)
def test_the_cron_line_names_the_edges(every: str, line: str) -> None:
    """The cron line fires at the windows' edges; 2026-01-01 is a Thursday."""
    assert calendar(every).cron == line


def test_leap_days_and_year_ends() -> None:
    """February of a leap year and December have their whole length."""
    months = calendar("month", start="2023-12-01T00:00:00Z", end="2024-04-01T00:00:00Z")
    assert [(window.end - window.start).days for window in months.windows(utc(2024, 1, 1))] == [31, 31, 29, 31]
    years = calendar("year", start="2024-05-05T00:00:00Z", end="2026-01-01T00:00:00Z")
    assert [(window.end - window.start).days for window in years.windows(utc(2024, 1, 1))] == [366, 365]


@given(
    every=st.sampled_from(EVERY),
    start=st.datetimes(datetime(2000, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),
    after=st.timedeltas(timedelta(0), timedelta(days=800)),
)
def test_every_time_has_exactly_one_window(every: str, start: datetime, after: timedelta) -> None:
    """From the first start on, each time lies in one window, whose key leads back to it and whose end begins the next."""
    windows = WindowCalendar(WindowConfig(every=every, start=start))  # type: ignore[arg-type]
    moment = start + after
    found = windows.window_of(moment)
    assert found is not None
    assert found.start <= moment < found.end
    assert windows.window(found.key) == found
    following = windows.window_of(found.end)
    assert following is not None
    assert following.start == found.end
    assert windows.window_of(found.end - timedelta(microseconds=1)) == found
