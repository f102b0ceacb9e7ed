"""What the source of scenes holds, told as every pipeline tells it."""

from __future__ import annotations

from assets.scenes.model import Scene, SceneListing, SceneVerdict
from assets.stock import manifest_fingerprint
from assets.survey import LeftOut, Survey, WindowSurvey

NO_SCENE = "NO_SCENE"
_UNSETTLED = (SceneVerdict.UNSETTLED, SceneVerdict.WAITING)
_LEFT_OUT = (
    SceneVerdict.UNDATED,
    SceneVerdict.IN_FUTURE,
    SceneVerdict.BEFORE_FIRST_WINDOW,
    SceneVerdict.AFTER_LAST_WINDOW,
    SceneVerdict.OUTSIDE_AREA,
    SceneVerdict.WAITING,
)


def survey_of(listing: SceneListing) -> Survey:
    """The survey of a listing; left out are scenes in no window or waiting for bands, and files that are no scenes."""
    by_window: dict[str, list[Scene]] = {}
    for scene in listing.scenes:
        if scene.window is not None:
            by_window.setdefault(scene.window, []).append(scene)
    return Survey(
        windows={window: _window(scenes) for window, scenes in by_window.items()},
        left_out=(
            *(LeftOut(scene.scene_id, scene.verdict.value, scene.reason) for scene in listing.with_verdict(*_LEFT_OUT)),
            *strangers(listing),
        ),
        inputs=len(listing.scenes),
        accepted=len(listing.accepted),
    )


def not_used(listing: SceneListing, *, window: str | None = None) -> tuple[LeftOut, ...]:
    """Scenes of the window (or of none) that no tile is made from, then files that are no scenes; each with its reason."""
    scenes = [scene for scene in listing.scenes if not scene.is_accepted and (window is None or scene.window in (window, None))]
    return (*(LeftOut(scene.scene_id, scene.verdict.value, scene.reason) for scene in scenes), *strangers(listing))


def strangers(listing: SceneListing) -> tuple[LeftOut, ...]:
    """Files of the source that are no scenes."""
    return tuple(LeftOut(other.uri, NO_SCENE, other.reason) for other in listing.strangers)


def _window(scenes: list[Scene]) -> WindowSurvey:
    settled = [scene for scene in scenes if scene.verdict not in _UNSETTLED]
    return WindowSurvey(
        fingerprint_now=manifest_fingerprint(scenes),
        fingerprint_settled=manifest_fingerprint(settled),
        has_inputs=bool(settled),
        is_being_written=any(scene.verdict is SceneVerdict.UNSETTLED for scene in scenes),
    )
