"""When windows run: cron lines, the window that a tick is about, and the requests of a window."""

from __future__ import annotations

from datetime import UTC, datetime

import dagster as dg
import pytest

from pipelines.schedules import closed_window, schedule_cron, window_requests
from pipelines.watched import Watched
from resources.config import SensorConfig, WindowConfig
from resources.windows import WindowCalendar


def calendar(every: str, start: str = "2026-01-01") -> WindowCalendar:
    """Windows from a date on."""
    return WindowCalendar(WindowConfig.model_validate({"start": start, "every": every}))


@pytest.mark.parametrize(
    ("every", "delay_minutes", "expected"),
    [
        ("day", 30, "30 0 * * *"),
        ("day", 0, "0 0 * * *"),
        ("day", 24 * 60 + 90, "30 1 * * *"),
        ("hour", 30, "30 * * * *"),
        ("hour", 61, "1 * * * *"),
        ("week", 24 * 60 + 5, "5 0 * * 5"),
        ("month", 3 * 24 * 60 + 60, "0 1 4 * *"),
        ("year", 30, "30 0 1 1 *"),
    ],
)
def test_the_cron_line_is_the_edge_moved_on(every: str, delay_minutes: int, expected: str) -> None:
    """Each kind of window has its tick the delay after its edge; 2026-01-01 is a Thursday."""
    assert schedule_cron(calendar(every), delay_minutes) == expected


@pytest.mark.parametrize(
    ("every", "delay_minutes", "moment", "expected"),
    [
        ("day", 30, datetime(2026, 1, 6, 0, 30, tzinfo=UTC), "2026-01-05"),
        ("day", 30, datetime(2026, 1, 6, 0, 29, tzinfo=UTC), "2026-01-04"),
        ("day", 24 * 60, datetime(2026, 1, 6, 0, 0, tzinfo=UTC), "2026-01-04"),
        ("hour", 61, datetime(2026, 1, 1, 5, 1, tzinfo=UTC), "2026-01-01T03"),
        ("month", 60, datetime(2026, 3, 1, 1, 0, tzinfo=UTC), "2026-02"),
        ("day", 30, datetime(2026, 1, 1, 0, 30, tzinfo=UTC), None),
        ("day", 30, datetime(2025, 12, 1, 0, 30, tzinfo=UTC), None),
    ],
)
def test_a_tick_is_about_the_window_that_closed(every: str, delay_minutes: int, moment: datetime, expected: str | None) -> None:
    """The window whose end lies the delay or more before the tick; none before the first has closed."""
    found = closed_window(calendar(every), moment, delay_minutes=delay_minutes)
    assert (found.key if found is not None else None) == expected


def test_the_last_window_of_a_configured_end_is_run() -> None:
    """A tick after the configured end is about the last window."""
    windows = WindowCalendar(WindowConfig.model_validate({"start": "2026-01-01", "end": "2026-01-04"}))
    found = closed_window(windows, datetime(2026, 1, 4, 0, 30, tzinfo=UTC), delay_minutes=30)
    assert found is not None
    assert found.key == "2026-01-03"


def test_a_window_is_one_request_or_few() -> None:
    """All tiles of a window go into one ranged request, or into as few as the bound on partitions allows."""
    tiles = [f"t{number}" for number in range(5)]
    names = [f"w|{tile}" for tile in tiles]
    dimensions = {"batch_window": dg.StaticPartitionsDefinition(["w"]), "tile": dg.StaticPartitionsDefinition(tiles)}
    watched = Watched("tiles", dg.MultiPartitionsDefinition(dimensions), ("job",))
    one = window_requests(watched, names, "w", sensors=SensorConfig(), run_key="k", only_due=False)
    assert [(r.tags["dagster/asset_partition_range_start"], r.tags["dagster/asset_partition_range_end"]) for r in one] == [
        ("w|t0", "w|t4")
    ]
    few = window_requests(watched, names, "w", sensors=SensorConfig(partitions_per_run=2), run_key="k", only_due=True)
    assert [request.run_key for request in few] == ["k|0", "k|1", "k|2"]
    assert few[2].partition_key == "w|t4"
    assert {request.tags["tilewright/only_due"] for request in few} == {"true"}
    assert {request.tags["tilewright/batch_window"] for request in few} == {"w"}
