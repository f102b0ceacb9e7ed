"""Runs that died without a word: their process and their code server are gone, and Dagster shows them STARTED for ever.

Run monitoring asks the code server about its runs, and a new code server knows nothing of the old one's. The ledger knows
better: a run that lives holds its leases and beats.
"""

import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg
import psutil

from pipelines.checks import Opened
from pipelines.watched import ProjectLike, Watched
from resources.alerts import AlertFact, Severity, enqueue
from resources.ledger import RunRow
from resources.opening import boot_id

_ON = dg.DefaultSensorStatus.RUNNING


def dead_run_sensor(
    watched: Sequence[Watched], opened: Opened, *, interval_s: int, name: str = "dead_runs", status: dg.DefaultSensorStatus = _ON
) -> dg.SensorDefinition:
    """Reports as failed a run that is shown STARTED, whose leases are free and whose heartbeat is old: nobody else would."""

    @dg.sensor(
        name=name,
        asset_selection=dg.AssetSelection.assets(*(item.key for item in watched)),
        minimum_interval_seconds=interval_s,
        default_status=status,
        description="Finds runs whose process and code server died together: Dagster shows them STARTED for ever.",
    )
    def dead_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        found = report_dead_runs(context.instance, opened(), now=datetime.now(UTC))
        return dg.SkipReason("; ".join(found) or "every run that is shown STARTED is alive")

    return dead_runs


def report_dead_runs(instance: dg.DagsterInstance, project: ProjectLike, *, now: datetime) -> list[str]:
    """Report dead runs as failed and put each into the outbox of alerts; what was found, in words.

    After a crash between the two: the alert is written first, so that a run that is reported was said.
    """
    said = []
    statuses = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
    for record in instance.get_run_records(dg.RunsFilter(statuses=statuses)):
        run = record.dagster_run
        row = project.ledger.run(run.run_id)
        if row is None or not is_dead(project, row, now=now):
            continue
        seen = (row.ended_at or row.heartbeat_at or row.started_at).isoformat(timespec="seconds")
        words = f"run {run.run_id[:8]} of {row.asset} is dead: last sign of life {seen}, process {row.pid} on {row.host}"
        fact = AlertFact(
            fingerprint=f"dead-run|{run.run_id}",
            title=f"A run of {row.asset} died without a word",
            body=f"{words}. It is reported as failed; the failed-partition sensor asks for what is left.",
            severity=Severity.WARNING,
        )
        enqueue(project.ledger, [fact])
        instance.report_run_failed(run, f"Tilewright: {words}. Its process and its code server are gone.")
        said.append(words)
    return said


def is_dead(project: ProjectLike, row: RunRow, *, now: datetime) -> bool:
    """No sign of life for the configured time, no lease held, and its process, where that can be seen from here, gone."""
    last = max(moment for moment in (row.started_at, row.heartbeat_at, row.ended_at) if moment is not None)
    if now - last < timedelta(seconds=project.config.sensors.heartbeat_timeout_s):
        return False
    if project.leases.held(item.partition_id for item in project.ledger.holders() if item.run_id == row.run_id):
        return False
    return not _process_lives(row)


def _process_lives(row: RunRow) -> bool:
    if row.host != socket.gethostname() or row.boot_id != boot_id():
        return False
    try:
        return psutil.Process(row.pid).create_time() <= row.started_at.timestamp() + 1.0
    except psutil.NoSuchProcess:
        return False
