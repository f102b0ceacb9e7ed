"""A survey tells what wakes a window: what is there, what has settled, and what no window takes."""

from __future__ import annotations

from dataclasses import replace

from assets.scenes.model import Scene, SceneListing, SceneVerdict
from assets.scenes_survey import survey_of
from assets.sources.names import Stranger
from assets.stock import manifest_fingerprint
from assets.survey import NOTHING, LeftOut, Survey

WINDOW = "2026-01-01"
WHOLE = Scene(scene_id="a", verdict=SceneVerdict.ACCEPTED, digest="d1", window=WINDOW)
WRITING = replace(WHOLE, scene_id="b", digest="d2", verdict=SceneVerdict.UNSETTLED)
UNDATED = replace(WHOLE, scene_id="c", digest="d3", verdict=SceneVerdict.UNDATED, window=None, reason="no date")


def found(*scenes: Scene) -> Survey:
    return survey_of(SceneListing(scenes=scenes, strangers=(Stranger("readme.txt", "no pattern"),)))


def test_a_window_is_told_as_it_is_and_as_it_has_settled() -> None:
    """A file that is being written changes what is there, not what has settled, and holds its window back."""
    still, moving = found(WHOLE).of(WINDOW), found(WHOLE, WRITING).of(WINDOW)
    assert (still.has_inputs, still.is_being_written) == (True, False)
    assert moving.is_being_written
    assert moving.fingerprint_settled == still.fingerprint_settled == still.fingerprint_now
    assert moving.fingerprint_now != still.fingerprint_now
    assert not found(WRITING).of(WINDOW).has_inputs


def test_an_emptied_window_is_told_like_one_that_never_had_anything() -> None:
    """A plan made from nothing is in step with a source that holds nothing: it is not woken for ever."""
    assert found(UNDATED).of(WINDOW) == NOTHING
    assert manifest_fingerprint(()) == NOTHING.fingerprint_now


def test_what_no_window_takes_is_named() -> None:
    """Undated scenes and files that are no scenes are left out with their reasons; a rejected scene is a dead letter instead."""
    survey = found(WHOLE, UNDATED, replace(WHOLE, scene_id="r", digest="d4", verdict=SceneVerdict.REJECTED))
    assert survey.left_out == (LeftOut("c", "UNDATED", "no date"), LeftOut("readme.txt", "NO_SCENE", "no pattern"))
    assert (survey.inputs, survey.accepted) == (3, 1)
