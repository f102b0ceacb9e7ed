"""The arrivals sensor: a scene, master or report that is new, changed or gone wakes its window; and what is left out is named."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

import dagster as dg

from assets.project import Project
from assets.survey import Survey
from pipelines.arrivals import WindowNews, decide_wakes, dump_memory, parse_memory
from pipelines.findings import inputs_left_out
from pipelines.schedules import window_requests
from pipelines.standing_checks import Telling
from pipelines.watched import Watched, read_living
from resources.alerts import AlertFact, Severity, keep_standing
from resources.errors import EnvironmentUnfit

_GRACE_INTERVALS = 3
_WAKES_MAX = 5
_GIVEN_UP = "unplanned|"


def arrivals_sensor(
    units: Watched, manifest: Watched, project: Project, *, status: dg.DefaultSensorStatus
) -> dg.SensorDefinition:
    """Wakes the windows whose source changed, each change once, when its files stand still."""
    subject = project.shape.subject

    @dg.sensor(
        name=project.shape.arrivals,
        job_name=units.jobs[0],
        minimum_interval_seconds=project.config.sensors.interval_s,
        default_status=status,
        description=f"Runs a window again when a {subject} of it is new, changed or gone; what is still being written waits.",
    )
    def arrivals(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return arrivals_tick(context.instance, project, units, manifest, cursor=context.cursor)

    return arrivals


def arrivals_tick(
    instance: dg.DagsterInstance, project: Project, units: Watched, manifest: Watched, *, cursor: str | None
) -> dg.SensorResult:
    """One tick. After a crash: the cursor stands where it was; a window woken twice is planned once."""
    now = project.ledger.clock()
    told = Telling.parse(cursor)
    try:
        survey = project.survey(now=now)
    except EnvironmentUnfit as error:
        return dg.SensorResult(skip_reason=error.message, cursor=cursor)
    living = read_living(instance, project, units, now=now)
    news = {item.window: item for item in window_news(project, survey, exists=set(manifest.order()), now=now)}
    wakes = decide_wakes(
        news.values(),
        memory=parse_memory(told.rest),
        busy={name.partition("|")[0] for name in living},
        now=now,
        wakes_max=max(1, project.config.sensors.requests_per_tick // max(1, _runs_per_window(project, news))),
        pause_s=project.config.sensors.request_timeout_s,
        times_max=_WAKES_MAX,
    )
    keep_standing(project.ledger, [_given_up(window) for window in wakes.given_up], prefix=_GIVEN_UP)
    requests = []
    for window in wakes.windows:
        number = project.ledger.next_request_number()
        requests += window_requests(
            units,
            project.partitions_of(window),
            window,
            sensors=project.config.sensors,
            run_key=f"arrivals|{window}|request={number}",
            only_due=True,
        )
    finding = inputs_left_out(manifest, survey, check=project.shape.left_out_check, subject=project.shape.subject)
    evaluations, told = told.tell(instance, [finding], rest=dump_memory(wakes.memory))
    said = None if requests else "; ".join(wakes.notes) or "every window is planned as its source is"
    return dg.SensorResult(run_requests=requests, asset_events=list(evaluations), cursor=told.dump(), skip_reason=said)


def _given_up(window: str) -> AlertFact:
    return AlertFact(
        fingerprint=f"{_GIVEN_UP}{window}",
        title=f"Window {window} is not planned as its source is",
        body=f"{_WAKES_MAX} runs were asked for and none of them planned it. 'tilewright run --window {window}' does so now.",
        severity=Severity.FAILURE,
        repeats=True,
    )


def window_news(project: Project, survey: Survey, *, exists: set[str], now: datetime) -> Iterator[WindowNews]:
    """What the source has for each window that has inputs or a plan."""
    delay = timedelta(minutes=project.config.window.delay_minutes, seconds=_GRACE_INTERVALS * project.config.sensors.interval_s)
    markers = project.ledger.markers(project.shape.plan_marker)
    for window in sorted(survey.windows.keys() | _planned_windows(project, now=now)):
        marker = markers.get(window)
        found = survey.of(window)
        yield WindowNews(
            window=window,
            fingerprint=found.fingerprint_settled,
            is_planned=marker is not None,
            is_planned_so=marker is not None and marker.manifest_fingerprint == found.fingerprint_now,
            has_inputs=found.has_inputs,
            is_being_written=found.is_being_written,
            opens_at=project.calendar.window(window).end + delay if window in exists else None,
        )


def _planned_windows(project: Project, *, now: datetime) -> set[str]:
    names = project.ledger.settled_partitions(project.shape.units)
    due = project.ledger.due_partitions(project.shape.units, now=now)
    return {name.partition("|")[0] for name in names} | {row.partition.partition("|")[0] for row in due}


def _runs_per_window(project: Project, news: Mapping[str, WindowNews]) -> int:
    # every window has as many
    some = next(iter(news), None)
    return 1 if some is None else -(-len(project.partitions_of(some)) // project.config.sensors.partitions_per_run)
