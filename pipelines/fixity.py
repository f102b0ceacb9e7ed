"""Fixity in Dagster: a daily run of the period's share, and the standing check that fails by name while an object is not itself.

Nothing is repaired or deleted by itself: the check and its alert stand until the object holds its content again.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import dagster as dg

from assets.digitization.events import EventType
from assets.digitization.fixity import Mismatch, open_mismatches
from assets.digitization.project import DigitizationProject
from pipelines.findings import ROWS_SHOWN, Finding
from pipelines.schedules import closed_window, schedule_cron
from pipelines.standing_checks import Telling
from pipelines.watched import ATTEMPT_TAG, Watched, run_request
from resources.alerts import AlertFact, Severity, keep_standing
from resources.dagster_tables import table
from resources.keys import digest_of
from resources.windows import BatchWindow, WindowCalendar

FIXITY_CHECK = "no_fixity_mismatch"
_ALERTS = "fixity|"
_FACTS_MOST = 20
_CRON = "23 2 * * *"
_AFTERWARDS = timedelta(days=2)
"""How long after its end a period is still run, for what came due in its last hours."""
_EXPORTS_AFTER_MINUTES = int((_AFTERWARDS + timedelta(hours=4)).total_seconds() // 60)


def fixity_mismatches(watched: Watched, mismatches: Sequence[Mismatch]) -> Finding:
    """Fails by name while an object does not hold its content: object, expected and found."""
    if not mismatches:
        words = "every object that was read holds its content"
        return Finding(watched.key, FIXITY_CHECK, True, words, {"mismatches": 0})
    rows = [
        {"object": item.object[:200], "expected": item.expected, "found": item.found, "read": f"{item.at:%Y-%m-%d %H:%M}"}
        for item in mismatches[:ROWS_SHOWN]
    ]
    first = mismatches[0]
    words = f"{len(mismatches)} objects do not hold their content; {first.object}: expected {first.expected}, found {first.found}"
    metadata: dict[str, Any] = {"mismatches": len(mismatches), "objects": table(rows)}
    return Finding(watched.key, FIXITY_CHECK, False, words, metadata)


def fixity_check(watched: Watched, project: DigitizationProject) -> dg.AssetChecksDefinition:
    """`no_fixity_mismatch` of the fixity checks."""

    @dg.asset_check(
        name=FIXITY_CHECK,
        asset=watched.key,
        description="Lists the masters and copies that did not hold their content when they were last read.",
    )
    def no_fixity_mismatch() -> dg.AssetCheckResult:
        return fixity_mismatches(watched, open_mismatches(project, now=project.ledger.clock())).as_result()

    return no_fixity_mismatch


def mismatch_facts(mismatches: Sequence[Mismatch]) -> list[AlertFact]:
    """A standing fact for each object that does not hold its content; of many, as of a lost disk, one more for the rest."""
    facts = [
        AlertFact(
            fingerprint=f"{_ALERTS}{digest_of([item.object, item.expected, item.found])[:32]}",
            title=f"Fixity: {item.object} does not hold its content",
            body=(
                f"expected {item.expected}\nfound {item.found}\nread {item.at.isoformat(timespec='seconds')}.\n"
                "Nothing was changed. Restore the object; it is read again every day until it is well."
            ),
            severity=Severity.FAILURE,
            repeats=True,
        )
        for item in mismatches[:_FACTS_MOST]
    ]
    rest = len(mismatches) - len(facts)
    if rest:
        facts.append(
            AlertFact(
                fingerprint=f"{_ALERTS}rest",
                title=f"Fixity: {rest} more objects do not hold their content",
                body=f"The check {FIXITY_CHECK} lists them. Is a disk of masters or copies not mounted? Nothing was changed.",
                severity=Severity.FAILURE,
                repeats=True,
            )
        )
    return facts


def fixity_sensor(watched: Watched, project: DigitizationProject, *, interval_s: int) -> dg.SensorDefinition:
    """Keeps `no_fixity_mismatch` true in the UI, and says what does not hold its content until it does."""

    @dg.sensor(
        name="fixity_mismatches",
        asset_selection=dg.AssetSelection.assets(watched.key),
        minimum_interval_seconds=interval_s,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Evaluates the standing check on fixity when checks were recorded, and puts mismatches into the outbox.",
    )
    def mismatches_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return fixity_tick(context.instance, project, watched, cursor=context.cursor)

    return mismatches_sensor


def fixity_tick(
    instance: dg.DagsterInstance, project: DigitizationProject, watched: Watched, *, cursor: str | None
) -> dg.SensorResult:
    """One tick. Events are read only when checks were recorded since the last one, or a run has hidden what was said."""
    told = Telling.parse(cursor)
    rows = project.ledger.partition_rows(watched.asset)
    latest = instance.get_latest_materialization_event(watched.key)
    seen = [[row.partition, row.complete, row.pending, row.failed] for row in rows]
    mark = digest_of([seen, None if latest is None else str(latest.timestamp)])
    if mark == told.rest:
        return dg.SensorResult(skip_reason="no fixity check was recorded since the last look", cursor=cursor)
    mismatches = open_mismatches(project, now=project.ledger.clock())
    keep_standing(project.ledger, mismatch_facts(mismatches), prefix=_ALERTS)
    finding = fixity_mismatches(watched, mismatches)
    evaluations, told = told.tell(instance, [finding], rest=mark)
    return dg.SensorResult(asset_events=list(evaluations), cursor=told.dump(), skip_reason=finding.description)


def periods_at(calendar: WindowCalendar, moment: datetime) -> list[BatchWindow]:
    """The periods that a day's run works on: the current one, and in its first days the one before."""
    current = calendar.window_of(moment)
    if current is None:
        return []
    before = calendar.window_of(current.start - timedelta(microseconds=1))
    return [before, current] if before is not None and moment < before.end + _AFTERWARDS else [current]


def fixity_schedule(watched: Watched, project: DigitizationProject, *, status: dg.DefaultScheduleStatus) -> dg.ScheduleDefinition:
    """Daily: what has come due in the current period by now."""
    config = project.config

    @dg.schedule(
        name="daily_fixity",
        job_name=watched.jobs[0],
        cron_schedule=_CRON,
        execution_timezone="UTC",
        default_status=status,
        description=f"Reads the share of masters and copies that is due; all within a {config.fixity.every}.",
    )
    def daily_fixity(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest]:
        moment = context.scheduled_execution_time
        return [
            _request(watched, period.key, f"fixity|{period.key}|{moment.date().isoformat()}", project)
            for period in periods_at(project.fixity_calendar, moment)
        ]

    return daily_fixity


def exports_schedule(
    exports: Watched, project: DigitizationProject, *, status: dg.DefaultScheduleStatus
) -> dg.ScheduleDefinition:
    """Once a period, when its last checks are done: the preservation export of every window, which then tells of them.

    Not after each day's share, since a day reads something of nearly every window.
    """
    calendar, config = project.fixity_calendar, project.config

    @dg.schedule(
        name="fixity_exports",
        job_name=exports.jobs[0],
        cron_schedule=schedule_cron(calendar, _EXPORTS_AFTER_MINUTES),
        execution_timezone="UTC",
        default_status=status,
        description=f"Makes {exports.asset} again two days after a {config.fixity.every} of fixity checks, to tell of them.",
    )
    def fixity_exports(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        period = closed_window(calendar, context.scheduled_execution_time, delay_minutes=_EXPORTS_AFTER_MINUTES)
        if period is None or next(project.ledger.events(window=period.key, event_type=EventType.FIXITY.value), None) is None:
            return dg.SkipReason("nothing was read in the period that is over")
        return [
            _request(exports, row.partition, f"exports|{period.key}|{row.partition}", project)
            for row in project.ledger.partition_rows(exports.asset)
        ]

    return fixity_exports


def _request(watched: Watched, partition: str, run_key: str, project: DigitizationProject) -> dg.RunRequest:
    """One run of a partition as a whole."""
    return run_request(
        watched,
        [partition],
        run_key=run_key,
        window=partition,
        max_runtime_s=project.config.sensors.max_runtime_s,
        only_due=False,
        tags={ATTEMPT_TAG: "1"},
    )
