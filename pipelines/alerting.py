"""Which facts a person must know, read from the ledger by a separate step after the batches; and the sensor that tells them.

A fact goes into the outbox first and is delivered next; no step of a run ever talks to a channel. Quarantine stands until it is
resolved: silence must be told apart from being well.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

import dagster as dg

from pipelines.checks import Opened
from pipelines.reconciling_sensors import Probe, project_probe
from pipelines.watched import ProjectLike, Watched
from resources.alerts import AlertFact, Severity, deliver, enqueue, keep_standing, open_channels
from resources.engine import INTERRUPTED
from resources.keys import digest_of
from resources.ledger import DeadLetter, DuePartition, RunRow
from resources.units import RunOutcome
from resources.windows import WindowCalendar

_RUNS_READ = 200
_WINDOWS_LOOKED_BACK = 30


def letter_fact(letter: DeadLetter) -> AlertFact:
    """The standing fact of one open dead letter."""
    where = " ".join(part for part in (letter.product, letter.window, letter.tile) if part)
    return AlertFact(
        fingerprint=f"letter|{letter.id}",
        title=f"Quarantined: {letter.name} ({letter.kind})",
        body=(
            f"{letter.reason}\n{where or letter.subject} {letter.subject_key[:16]}, {letter.attempts} attempts, "
            f"since {letter.first_at.isoformat(timespec='seconds')}.\n"
            f"Replay: tilewright quarantine replay {letter.id}. Dismiss: tilewright quarantine dismiss {letter.id}."
        ),
        severity=Severity.FAILURE,
        repeats=True,
    )


def stopped_facts(runs: Iterable[RunRow], *, since: datetime) -> Iterator[AlertFact]:
    """A fact for each run that an unfit environment stopped since then; a run that a person interrupted is none."""
    for run in runs:
        reason = str((run.summary or {}).get("reason", ""))
        if run.outcome is not RunOutcome.STOPPED or run.ended_at is None or run.ended_at <= since or reason == INTERRUPTED:
            continue
        yield AlertFact(
            fingerprint=f"stopped|{run.run_id}",
            title=f"A run of {run.asset} stopped early",
            body=f"{reason}\nNo unit was charged. Run {run.run_id}, {len(run.partitions)} partitions.",
            severity=Severity.FAILURE,
        )


def silent_window_facts(
    calendar: WindowCalendar,
    *,
    due: Iterable[DuePartition],
    planned: Iterable[str],
    now: datetime,
    delay: timedelta,
    deadline: timedelta,
    scheduled_since: datetime | None,
) -> Iterator[AlertFact]:
    """A standing fact for each window that should be settled by now and is not.

    Planned ones are late when their deadline has passed since they closed and since they were last planned. A window that was
    never planned is late only if its schedule was running (`scheduled_since`) when its run was to start.
    """
    late: dict[str, datetime] = {}
    for row in due:
        if row.window is None:
            continue
        try:
            begun = calendar.window(row.window).end + delay
        except ValueError:
            continue
        since = max(begun, row.planned_at or begun)
        late[row.window] = max(late.get(row.window, since), since)
    for window, since in sorted(late.items()):
        if now > since + deadline:
            yield _silent(window, f"Its units are not settled, {_hours(now - since)} after they were to begin.")
    if scheduled_since is None:
        return
    known = {*planned, *late}
    closed = [found for found in calendar.windows(now) if found.end <= now][-_WINDOWS_LOOKED_BACK:]
    for found in closed:
        begun = found.end + delay
        if found.key not in known and begun >= scheduled_since and now > begun + deadline:
            yield _silent(
                found.key, f"Its scheduled run was to start {begun.isoformat(timespec='minutes')} and never planned it."
            )


def _silent(window: str, words: str) -> AlertFact:
    return AlertFact(
        fingerprint=f"silent|{window}",
        title=f"Window {window} is late",
        body=f"{words} 'tilewright status --window {window}' says where it stands.",
        severity=Severity.WARNING,
        repeats=True,
    )


def _hours(span: timedelta) -> str:
    return f"{span.total_seconds() / 3600:.1f} h"


def alerts_sensor(
    watched: Sequence[Watched],
    opened: Opened,
    *,
    calendar: WindowCalendar,
    schedule_name: str | None,
    interval_s: int,
    name: str = "alerts",
    probe: Probe = project_probe,
) -> dg.SensorDefinition:
    """Puts new facts into the outbox and delivers what is due."""

    @dg.sensor(
        name=name,
        asset_selection=dg.AssetSelection.assets(*(item.key for item in watched)),
        minimum_interval_seconds=interval_s,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Dead letters, failed checks, stopped and dead runs, late windows: into the outbox, then to every channel.",
    )
    def alerts(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        since = None if schedule_name is None else scheduled_since(context.instance, schedule_name)
        return alerts_tick(opened(), watched, calendar=calendar, cursor=context.cursor, scheduled=since, probe=probe)

    return alerts


def alerts_tick(
    project: ProjectLike,
    watched: Sequence[Watched],
    *,
    calendar: WindowCalendar,
    cursor: str | None,
    scheduled: datetime | None,
    probe: Probe = project_probe,
) -> dg.SensorResult:
    """One tick. After a crash: facts are found again, and one that was sent and not yet noted is sent once more."""
    ledger, config = project.ledger, project.config
    now = ledger.clock()
    letters = [letter_fact(letter) for letter in ledger.dead_letters()]
    mark = digest_of([[fact.fingerprint, fact.body] for fact in letters])
    if mark != cursor:
        # standing facts are written only when they changed: ten thousand open letters are no ten thousand writes a tick
        keep_standing(ledger, letters, prefix="letter|")
    enqueue(ledger, stopped_facts(ledger.runs(limit=_RUNS_READ), since=now - timedelta(days=2)))
    problems = probe(project)
    unfit = [
        AlertFact(f"unfit|{digest_of(text.split(':')[0])[:16]}", "No run can start", text, Severity.FAILURE, repeats=True)
        for text in problems
    ]
    keep_standing(ledger, unfit, prefix="unfit|")
    late: dict[str, AlertFact] = {}
    for item in watched:
        settled = ledger.settled_partitions(item.asset)
        facts = silent_window_facts(
            calendar,
            due=ledger.due_partitions(item.asset, now=now),
            planned={name.partition("|")[0] for name in settled},
            now=now,
            delay=timedelta(minutes=config.window.delay_minutes),
            deadline=timedelta(hours=config.window.deadline_hours),
            scheduled_since=scheduled if item is watched[0] else None,
        )
        late.update({fact.fingerprint: fact for fact in facts})
    keep_standing(ledger, list(late.values()), prefix="silent|")
    report = deliver(ledger, open_channels(config.alerts.urls), now=now, repeat_every=timedelta(hours=config.alerts.repeat_hours))
    words = f"{report.messages_sent} messages sent, {report.waiting} alerts wait"
    if not config.alerts.urls:
        words = f"{report.due} alerts wait; no channel is configured (alerts.urls)"
    elif report.failed_channels:
        words += f"; channels that did not answer: {', '.join(report.failed_channels)}"
    return dg.SensorResult(skip_reason=words, cursor=mark)


def scheduled_since(instance: dg.DagsterInstance, schedule_name: str) -> datetime | None:
    """Since when a schedule has been running; None when it is switched off or never was on."""
    from datetime import UTC

    for state in instance.all_instigator_state():
        if state.name == schedule_name and state.is_running:
            started = getattr(state.instigator_data, "start_timestamp", None)
            return None if started is None else datetime.fromtimestamp(started, UTC)
    return None
