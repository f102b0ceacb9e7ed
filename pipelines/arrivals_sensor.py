"""The scene arrivals sensor: a scene that is new, changed or gone wakes its window; and the standing check on scenes left out."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import dagster as dg

from assets.planning import ASSET as TILES
from assets.project import Project
from assets.scenes.model import Scene, SceneListing, SceneVerdict
from assets.stock import PLAN_MARKER, list_scenes, manifest_fingerprint
from pipelines.arrivals import WindowNews, decide_wakes, dump_memory, parse_memory
from pipelines.findings import scenes_left_out
from pipelines.schedules import window_requests
from pipelines.standing_checks import Telling
from pipelines.watched import Watched, read_living
from resources.alerts import AlertFact, Severity, keep_standing
from resources.errors import EnvironmentUnfit

_UNSETTLED = (SceneVerdict.UNSETTLED, SceneVerdict.WAITING)
_GRACE_INTERVALS = 3
_WAKES_MAX = 5
_GIVEN_UP = "unplanned|"


def arrivals_sensor(
    tiles: Watched, manifest: Watched, project: Project, *, status: dg.DefaultSensorStatus, name: str = "scene_arrivals"
) -> dg.SensorDefinition:
    """Wakes the windows whose scenes changed, each change once, when its files stand still."""
    sensors = project.config.sensors

    @dg.sensor(
        name=name,
        job_name=tiles.jobs[0],
        minimum_interval_seconds=sensors.interval_s,
        default_status=status,
        description="Runs a window again when a scene of it is new, changed or gone; files still being written are not taken.",
    )
    def scene_arrivals(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return arrivals_tick(context.instance, project, tiles, manifest, cursor=context.cursor)

    return scene_arrivals


def arrivals_tick(
    instance: dg.DagsterInstance, project: Project, tiles: Watched, manifest: Watched, *, cursor: str | None
) -> dg.SensorResult:
    """One tick. After a crash: the cursor stands where it was; a window woken twice is planned once."""
    now = project.ledger.clock()
    told = Telling.parse(cursor)
    try:
        listing = list_scenes(project, now=now)
    except EnvironmentUnfit as error:
        return dg.SensorResult(skip_reason=error.message, cursor=cursor)
    living = read_living(instance, project, tiles, now=now)
    wakes = decide_wakes(
        window_news(project, listing, exists=set(manifest.order()), planned=planned_windows(project, now=now)),
        memory=parse_memory(told.rest),
        busy={name.partition("|")[0] for name in living},
        now=now,
        wakes_max=max(1, project.config.sensors.requests_per_tick // max(1, _runs_per_window(project))),
        pause_s=project.config.sensors.request_timeout_s,
        times_max=_WAKES_MAX,
    )
    keep_standing(project.ledger, [_given_up(window) for window in wakes.given_up], prefix=_GIVEN_UP)
    requests = []
    for window in wakes.windows:
        number = project.ledger.next_request_number()
        requests += window_requests(
            tiles,
            list(project.grid.partitions),
            window,
            sensors=project.config.sensors,
            run_key=f"arrivals|{window}|request={number}",
            only_due=True,
        )
    evaluations, told = told.tell(instance, [scenes_left_out(manifest, listing)], rest=dump_memory(wakes.memory))
    said = None if requests else "; ".join(wakes.notes) or "every window is planned as its scenes are"
    return dg.SensorResult(run_requests=requests, asset_events=list(evaluations), cursor=told.dump(), skip_reason=said)


def _given_up(window: str) -> AlertFact:
    return AlertFact(
        fingerprint=f"{_GIVEN_UP}{window}",
        title=f"Window {window} is not planned as its scenes are",
        body=f"{_WAKES_MAX} runs were asked for and none of them planned it. 'tilewright run --window {window}' does so now.",
        severity=Severity.FAILURE,
        repeats=True,
    )


def planned_windows(project: Project, *, now: datetime) -> set[str]:
    """Windows that have a plan in the ledger."""
    names = project.ledger.settled_partitions(TILES)
    due = project.ledger.due_partitions(TILES, now=now)
    return {name.partition("|")[0] for name in names} | {row.partition.partition("|")[0] for row in due}


def window_news(project: Project, listing: SceneListing, *, exists: set[str], planned: set[str]) -> Iterator[WindowNews]:
    """What the source has for each window that has scenes or a plan."""
    by_window: dict[str, list[Scene]] = {window: [] for window in planned}
    for scene in listing.scenes:
        if scene.window is not None:
            by_window.setdefault(scene.window, []).append(scene)
    delay = timedelta(minutes=project.config.window.delay_minutes, seconds=_GRACE_INTERVALS * project.config.sensors.interval_s)
    markers = project.ledger.markers(PLAN_MARKER)
    for window, scenes in by_window.items():
        marker = markers.get(window)
        fingerprint = manifest_fingerprint(tuple(scenes))
        settled = [scene for scene in scenes if scene.verdict not in _UNSETTLED]
        yield WindowNews(
            window=window,
            fingerprint=manifest_fingerprint(tuple(settled)),
            is_planned=marker is not None,
            is_planned_so=marker is not None and marker.manifest_fingerprint == fingerprint,
            has_scenes=bool(settled),
            is_being_written=any(scene.verdict is SceneVerdict.UNSETTLED for scene in scenes),
            opens_at=project.calendar.window(window).end + delay if window in exists else None,
        )


def _runs_per_window(project: Project) -> int:
    return -(-len(project.grid.partitions) // project.config.sensors.partitions_per_run)
