"""What `tilewright plan` says of scenes and files that no tile is made from, and of windows without anything."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from assets.forecast import WindowForecast
from assets.scenes.model import Scene, SceneListing, SceneVerdict
from assets.scenes_survey import NO_SCENE, not_used
from assets.sources.names import Stranger
from assets.survey import LeftOut
from pipelines.cli.plan import LEFT_OUT_SHOWN, _is_empty, _print_left_out

NOW = datetime(2024, 6, 1, tzinfo=UTC)


def scene(name: str, verdict: SceneVerdict, window: str | None) -> Scene:
    return Scene(name, verdict, "", acquired=NOW, window=window, reason=f"{name} is so")


LISTING = SceneListing(
    scenes=(
        scene("good", SceneVerdict.ACCEPTED, "2024-06-01"),
        scene("waits", SceneVerdict.WAITING, "2024-06-01"),
        scene("other-day", SceneVerdict.OUTSIDE_AREA, "2024-06-02"),
        scene("undated", SceneVerdict.UNDATED, None),
    ),
    strangers=(Stranger("readme.txt", "matches no pattern"),),
)


def test_whatever_is_not_used_is_named_with_its_reason() -> None:
    """Every scene but the accepted ones, then files that are no scenes; nothing is silently left out of a plan."""
    assert not_used(LISTING) == (
        LeftOut("waits", "WAITING", "waits is so"),
        LeftOut("other-day", "OUTSIDE_AREA", "other-day is so"),
        LeftOut("undated", "UNDATED", "undated is so"),
        LeftOut("readme.txt", NO_SCENE, "matches no pattern"),
    )


def test_a_window_s_plan_names_its_own_scenes_and_those_of_no_window() -> None:
    """A plan of one window leaves out what belongs to another."""
    assert [item.name for item in not_used(LISTING, window="2024-06-01")] == ["waits", "undated", "readme.txt"]


def test_many_files_left_out_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with a thousand other files does not bury the one scene that waits."""
    _print_left_out(
        [LeftOut(f"{number}.txt", NO_SCENE, "no pattern") for number in range(1000)] + [LeftOut("waits", "WAITING", "B4")]
    )
    output = capsys.readouterr().out
    assert output.count(".txt") == LEFT_OUT_SHOWN
    assert f"{NO_SCENE}: {1000 - LEFT_OUT_SHOWN} more" in output
    assert "waits" in output


def test_windows_of_which_there_is_nothing_to_say_are_empty() -> None:
    """A window with a scene, or with units, is told; the thousands without either are not."""
    assert _is_empty(WindowForecast("2024-06-01"))
    assert not _is_empty(WindowForecast("2024-06-01", inputs=1))
    assert not _is_empty(WindowForecast("2024-06-01", superseded=1))
