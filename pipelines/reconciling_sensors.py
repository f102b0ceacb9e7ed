"""Sensors that bring ledger and Dagster together: failed partitions and ends of runs. Thin: they read, decide
elsewhere, write.

A plain sensor over ended runs by time of update, not a run-status sensor: those take five runs a tick and pass over a run when
the tick fails, and a run that only a report ends must be seen too.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import dagster as dg

from pipelines.checks import Opened, scope
from pipelines.failed_partitions import Bounds, Decision, RequestState, Shown, decide, request_rows
from pipelines.findings import UNITS_CHECK, units_match_outputs
from pipelines.watched import (
    ATTEMPT_TAG,
    REQUEST_TAG,
    EndedSince,
    ProjectLike,
    Watched,
    as_ended,
    read_ended,
    read_launched,
    read_living,
    read_statuses,
    run_request,
)
from resources.alerts import AlertFact, Severity, keep_standing
from resources.errors import TilewrightError
from resources.ledger import RequestRow
from resources.probe import probe

Probe = Callable[[ProjectLike], Sequence[str]]
_CHECKS_PER_TICK = 25
_ON = dg.DefaultSensorStatus.RUNNING


def project_probe(project: ProjectLike) -> list[str]:
    """What makes the project's store or source unfit now."""
    return probe(project.config, project.ledger)


def bounds_of(project: ProjectLike) -> Bounds:
    """The configured bounds of a tick."""
    sensors, retry = project.config.sensors, project.config.retry
    return Bounds(
        requests_per_tick=sensors.requests_per_tick,
        partitions_per_run=sensors.partitions_per_run,
        heals_per_tick=sensors.heals_per_tick,
        request_timeout_s=sensors.request_timeout_s,
        fruitless_max=retry.attempts_max,
        pause_base_s=retry.later_base_s,
        pause_cap_s=retry.later_cap_s,
    )


def failed_partition_sensor(
    watched: Watched, opened: Opened, *, interval_s: int, probe: Probe = project_probe, status: dg.DefaultSensorStatus = _ON
) -> dg.SensorDefinition:
    """Asks for runs of exactly the partitions that are due, and shows as done what is settled."""

    @dg.sensor(
        name=f"failed_partitions_of_{watched.asset}",
        job_name=watched.jobs[0],
        minimum_interval_seconds=interval_s,
        default_status=status,
        description="Runs what the ledger says is due, and nothing else; shows settled partitions as done without a run.",
    )
    def failed_partitions(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return tick(context.instance, opened(), watched, cursor=context.cursor, probe=probe)

    return failed_partitions


def tick(
    instance: dg.DagsterInstance, project: ProjectLike, watched: Watched, *, cursor: str | None, probe: Probe = project_probe
) -> dg.SensorResult:
    """One tick of the failed-partition sensor.

    After a crash: requests are recorded before they are handed to Dagster, so that one that got lost is asked for again in
    time, and none is made twice.
    """
    ledger, now = project.ledger, project.ledger.clock()
    ended, place = read_ended(instance, EndedSince.parse(cursor, now=datetime.now(UTC)))
    requests = ledger.requests(watched.asset)
    asked = [row.number for row in requests.values() if row.state == RequestState.REQUESTED]
    # the ledger first: what settles after it was read is merely healed one tick later
    due = ledger.due_partitions(watched.asset, now=now)
    settled = ledger.settled_partitions(watched.asset)
    statuses = read_statuses(instance, watched)
    shown = Shown(
        materialized=statuses.materialized,
        failed=statuses.failed,
        in_progress=statuses.in_progress,
        living=read_living(instance, project, watched, now=now),
        launched=read_launched(instance, asked),
        ended=[as_ended(record, watched) for record in ended],
    )
    problems = list(probe(project))
    decision = decide(
        due=due,
        settled=settled,
        shown=shown,
        requests=requests,
        order=watched.order(),
        problems=problems,
        now=now,
        bounds=bounds_of(project),
    )
    ledger.write_requests(watched.asset, decision.changes)
    _say_stuck(project, watched, decision)
    heals, amended = _verified_heals(project, watched, decision)
    run_requests = []
    asked_for: list[RequestRow] = []
    rows = {row.partition: row for row in due}
    for ask in decision.asks:
        number = ledger.next_request_number()
        run_key = f"{watched.asset}|{ask.start}|{ask.end}|request={number}"
        asked_for += request_rows(ask, number=number, run_key=run_key, due=rows, now=now)
        run_requests.append(
            run_request(
                watched,
                ask.partitions,
                run_key=run_key,
                window=ask.window,
                max_runtime_s=project.config.sensors.max_runtime_s,
                only_due=True,
                tags={REQUEST_TAG: str(number), ATTEMPT_TAG: str(ask.attempt)},
            )
        )
    ledger.write_requests(watched.asset, asked_for)
    notes = [*decision.notes, *amended]
    if heals:
        notes.append(f"{len(heals)} settled partitions are shown as done now")
    said = None if run_requests else "; ".join(notes) or "nothing is due"
    return dg.SensorResult(run_requests=run_requests, asset_events=heals, cursor=place.dump(), skip_reason=said)


def _verified_heals(
    project: ProjectLike, watched: Watched, decision: Decision
) -> tuple[list[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation], list[str]]:
    """Events that show settled partitions as done, after a look whether their outputs are there: green must be true."""
    names = list(decision.heals)
    if not names:
        return [], []
    from resources.amends import make_amends
    from resources.reconciliation import reconcile

    found = reconcile(project.ledger, project.store, asset=watched.asset, partitions=names)
    notes = []
    if not found.agrees:
        amends = make_amends(project.ledger, project.store, found.discrepancies)
        notes = [f"{len(found.discrepancies)} discrepancies met while healing, {amends.returned} units are PENDING again"]
    rows = {row.partition: row for row in project.ledger.partition_rows(watched.asset, names=names) if row.is_settled}
    return [
        dg.AssetMaterialization(
            watched.key,
            partition=name,
            metadata={
                "healed": True,
                "planned": rows[name].units,
                "complete": rows[name].complete,
                "quarantined": rows[name].quarantined,
                "dismissed": rows[name].dismissed,
                "state": "EMPTY" if rows[name].units == 0 else "SETTLED",
            },
        )
        for name in names
        if name in rows
    ], notes


def _say_stuck(project: ProjectLike, watched: Watched, decision: Decision) -> None:
    prefix = f"stuck|{watched.asset}|"
    facts = []
    if decision.stuck:
        names = ", ".join(decision.stuck[:20])
        facts = [
            AlertFact(
                fingerprint=f"{prefix}partitions",
                title=f"{len(decision.stuck)} partitions of {watched.asset} are given up until someone launches them",
                body=f"Several runs in a row got nowhere and changed nothing: {names}. Look at their last run, then launch them.",
                severity=Severity.FAILURE,
                repeats=True,
            )
        ]
    keep_standing(project.ledger, facts, prefix=prefix)


def run_end_sensor(
    watched: Sequence[Watched], opened: Opened, *, interval_s: int, name: str = "run_end", status: dg.DefaultSensorStatus = _ON
) -> dg.SensorDefinition:
    """Evaluates `completed_units_match_outputs` for every run that ended without having done so itself: failed, cancelled,
    killed.
    """

    @dg.sensor(
        name=name,
        asset_selection=dg.AssetSelection.assets(*(item.key for item in watched)),
        minimum_interval_seconds=interval_s,
        default_status=status,
        description="Compares units and outputs after each run, however it ended: Dagster skips the checks of a failed step.",
    )
    def run_end(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return run_end_tick(context.instance, opened(), watched, cursor=context.cursor)

    return run_end


def run_end_tick(
    instance: dg.DagsterInstance, project: ProjectLike, watched: Sequence[Watched], *, cursor: str | None
) -> dg.SensorResult:
    """One tick of the run-end sensor. After a crash: the cursor stands where it was, and the runs are looked at again."""
    ended, place = read_ended(instance, EndedSince.parse(cursor, now=datetime.now(UTC)), limit=_CHECKS_PER_TICK)
    evaluations: list[dg.AssetCheckEvaluation] = []
    said = []
    try:
        for record in ended:
            run = record.dagster_run
            for item in watched:
                names = scope(project, item, run) if item.partitions_of(run) else item.written_by(run, project.ledger)
                if not names or _has_evaluated(instance, run, item):
                    continue
                found = units_match_outputs(project, item, names, run_id=run.run_id)
                evaluations.append(found.as_evaluation())
                said.append(f"{item.asset} of run {run.run_id[:8]} ({run.status.value}): {found.description}")
    except TilewrightError as error:
        return dg.SensorResult(skip_reason=f"not evaluated, will be: {error.message}", cursor=cursor)
    return dg.SensorResult(
        asset_events=list(evaluations),
        cursor=place.dump(),
        skip_reason="; ".join(said) or "no run ended that is still to be looked at",
    )


def _has_evaluated(instance: dg.DagsterInstance, run: dg.DagsterRun, watched: Watched) -> bool:
    """True when the run evaluated the check itself: what it found, it has amended, so that a second look would find nothing."""
    records = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION).records
    for record in records:
        event = record.event_log_entry.dagster_event
        found = event.event_specific_data if event is not None else None
        if isinstance(found, dg.AssetCheckEvaluation) and (found.asset_key, found.check_name) == (watched.key, UNITS_CHECK):
            return True
    return False
