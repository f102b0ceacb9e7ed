"""The decision of the arrivals sensor: which windows a change of scenes wakes, and when not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pipelines.arrivals import Wakes, WindowNews, Woken, decide_wakes, dump_memory, parse_memory

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CHANGED = WindowNews(
    window="w1",
    fingerprint="a",
    is_planned=True,
    is_planned_so=False,
    has_inputs=True,
    is_being_written=False,
    opens_at=NOW - timedelta(hours=1),
)


def decided(*news: WindowNews, **changes: Any) -> Wakes:
    """The decision over these windows."""
    facts: dict[str, Any] = {"memory": {}, "busy": (), "now": NOW, "wakes_max": 5, "pause_s": 600.0, "times_max": 3}
    return decide_wakes(news, **facts | changes)


def test_a_change_wakes_its_window_once() -> None:
    """A changed window is woken, and not again for the same change while its run may still come."""
    first = decided(CHANGED)
    assert first.windows == ("w1",)
    again = decided(CHANGED, memory=first.memory, now=NOW + timedelta(seconds=30))
    assert again.windows == ()
    assert again.memory == first.memory


def test_another_change_wakes_it_again() -> None:
    """What changes after the wake wakes anew."""
    first = decided(CHANGED)
    assert decided(replace(CHANGED, fingerprint="b"), memory=first.memory).windows == ("w1",)


def test_a_wake_that_came_to_nothing_is_repeated_and_ends() -> None:
    """When the window is still not planned as it is, it is woken again, later each time, and at last only spoken of."""
    memory = decided(CHANGED).memory
    assert decided(CHANGED, memory=memory, now=NOW + timedelta(seconds=599)).windows == ()
    second = decided(CHANGED, memory=memory, now=NOW + timedelta(seconds=600))
    assert second.windows == ("w1",)
    assert decided(CHANGED, memory=second.memory, now=NOW + timedelta(seconds=600 + 1199)).windows == ()
    third = decided(CHANGED, memory=second.memory, now=NOW + timedelta(seconds=600 + 1200))
    assert third.windows == ("w1",)
    last = decided(CHANGED, memory=third.memory, now=NOW + timedelta(days=30))
    assert last.windows == ()
    assert "look at their runs" in last.notes[0]
    assert (third.given_up, last.given_up) == ((), ("w1",))


def test_a_planned_window_is_quiet_and_forgotten() -> None:
    """Once planned as it is, a window needs no memory."""
    found = decided(replace(CHANGED, is_planned_so=True), memory={"w1": Woken("a", NOW)})
    assert (found.windows, dict(found.memory), found.notes) == ((), {}, ())


def test_files_still_being_written_are_waited_for() -> None:
    """A window with an unsettled file is not woken yet."""
    assert decided(replace(CHANGED, is_being_written=True)).windows == ()


def test_a_window_that_is_not_over_is_waited_for() -> None:
    """A window without a partition yet cannot be run."""
    assert decided(replace(CHANGED, opens_at=None)).windows == ()


def test_an_unplanned_window_is_its_schedules_first() -> None:
    """A window that was never planned is left to its schedule until that should have run, then woken."""
    fresh = replace(CHANGED, is_planned=False, opens_at=NOW + timedelta(minutes=1))
    assert decided(fresh).windows == ()
    assert decided(fresh, now=NOW + timedelta(minutes=1)).windows == ("w1",)


def test_a_planned_window_is_woken_before_its_schedule() -> None:
    """A late change of a planned window waits for nobody."""
    assert decided(replace(CHANGED, opens_at=NOW + timedelta(days=1))).windows == ("w1",)


def test_an_unplanned_window_without_scenes_is_nobodys_business() -> None:
    """Nothing there and nothing planned: quiet."""
    assert decided(replace(CHANGED, is_planned=False, has_inputs=False)).windows == ()


def test_scenes_that_are_all_gone_wake_a_planned_window() -> None:
    """When every scene of a planned window was withdrawn, its plan must follow."""
    assert decided(replace(CHANGED, has_inputs=False)).windows == ("w1",)


def test_a_busy_window_is_looked_at_afterwards() -> None:
    """A window that a living run works on is not woken beside it, and the change is not forgotten."""
    found = decided(CHANGED, busy={"w1"})
    assert (found.windows, dict(found.memory)) == ((), {})


def test_wakes_are_bounded() -> None:
    """No tick wakes more windows than the bound; the rest is said."""
    found = decided(*(replace(CHANGED, window=f"w{number}") for number in range(4)), wakes_max=2)
    assert found.windows == ("w0", "w1")
    assert "2 windows wait for the next tick" in found.notes[0]


def test_memory_survives_a_cursor() -> None:
    """What a cursor holds is what was remembered."""
    memory = {"w1": Woken("a", NOW, 2), "w2": Woken("b", NOW)}
    assert parse_memory(dump_memory(memory)) == memory
    assert parse_memory(None) == {}
