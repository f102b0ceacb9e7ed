"""Jobs that keep house: sweep, deep verification, replay of exhausted retries. Each with its schedule."""

from collections.abc import Callable, Sequence
from typing import Literal

import dagster as dg

from pipelines.checks import Opened
from pipelines.findings import units_match_outputs
from pipelines.watched import ProjectLike, Watched
from resources.errors import Verdict
from resources.sweep import Swept, holding_runs, sweep_staging, sweep_superseded

Job = tuple[dg.JobDefinition, dg.ScheduleDefinition]
_SHOWN = 100


def _status(is_on: bool) -> dg.DefaultScheduleStatus:
    return dg.DefaultScheduleStatus.RUNNING if is_on else dg.DefaultScheduleStatus.STOPPED


def sweep_job(opened: Opened, *, is_on: bool) -> Job:
    """Nightly: abandoned staging files, and superseded outputs whose time is over."""

    @dg.op
    def sweep_files(context: dg.OpExecutionContext) -> None:
        project = opened()
        retention = project.config.retention
        removed: list[Swept] = []
        removed += sweep_staging(
            project.ledger,
            project.store,
            living_runs=holding_runs(project.ledger, project.leases),
            older_than_s=retention.staging_hours * 3600.0,
            dry_run=False,
        )
        removed += sweep_superseded(project.ledger, project.store, older_than_days=retention.superseded_days, dry_run=False)
        size = sum(item.size_bytes for item in removed)
        context.log.info(f"swept files={len(removed)} bytes={size}")
        context.add_output_metadata(
            {"files": len(removed), "bytes": size, "removed": "\n".join(f"{item.uri}: {item.why}" for item in removed[:_SHOWN])}
        )

    @dg.job(name="sweep", description="Removes abandoned staging files and superseded outputs whose time is over.")
    def sweep_store() -> None:
        sweep_files()

    schedule = dg.ScheduleDefinition(
        name="nightly_sweep", job=sweep_store, cron_schedule="17 3 * * *", execution_timezone="UTC", default_status=_status(is_on)
    )
    return sweep_store, schedule


def verification_job(watched: Sequence[Watched], opened: Opened, *, is_on: bool) -> Job:
    """Weekly: every recorded output is read and its digest compared; what differs is done again."""

    @dg.op
    def compare_digests(context: dg.OpExecutionContext) -> None:
        project = opened()
        failed = []
        for item in watched:
            names = [row.partition for row in project.ledger.partition_rows(item.asset)]
            if not names:
                continue
            finding = units_match_outputs(project, item, names, run_id=context.run_id, deep=True)
            context.log.info(f"verified asset={item.asset} partitions={len(names)} passed={finding.passed}")
            context.instance.report_runless_asset_event(finding.as_evaluation())
            if not finding.passed:
                failed.append(f"{item.asset}: {finding.description}")
        if failed:
            raise dg.Failure("; ".join(failed), allow_retries=False)

    @dg.job(name="deep_verification", description="Reads every recorded output and compares its digest with the ledger.")
    def verify_outputs() -> None:
        compare_digests()

    schedule = dg.ScheduleDefinition(
        name="weekly_deep_verification",
        job=verify_outputs,
        cron_schedule="43 4 * * 0",
        execution_timezone="UTC",
        default_status=_status(is_on),
    )
    return verify_outputs, schedule


def replay_exhausted(project: ProjectLike, *, rounds_max: int) -> int:
    """Replay open dead letters of exhausted retries, those of late rounds left to people; how many.

    What was quarantined for another reason gives the same answer again, and a rejected input whose content changed is another
    input.
    """
    letters = [
        letter.id for letter in project.ledger.dead_letters() if letter.verdict is Verdict.RETRY and letter.round <= rounds_max
    ]
    return project.ledger.replay(letters, who="schedule") if letters else 0


def replay_job(
    opened: Opened, *, every: Literal["hour", "day"], is_on: bool, replay: Callable[..., int] = replay_exhausted
) -> Job:
    """Hourly or daily: exhausted retries are asked for again, through the same path as new work."""

    @dg.op
    def replay_letters(context: dg.OpExecutionContext) -> None:
        project = opened()
        number = replay(project, rounds_max=project.config.retry.attempts_max)
        context.log.info(f"replayed letters={number}")
        context.add_output_metadata({"replayed": number})

    @dg.job(
        name="replay_exhausted_retries",
        description="Replays dead letters of exhausted retries; the failed-partition sensor runs them.",
    )
    def replay_exhausted_retries() -> None:
        replay_letters()

    schedule = dg.ScheduleDefinition(
        name="hourly_replay" if every == "hour" else "daily_replay",
        job=replay_exhausted_retries,
        cron_schedule="7 * * * *" if every == "hour" else "7 6 * * *",
        execution_timezone="UTC",
        default_status=_status(is_on),
    )
    return replay_exhausted_retries, schedule
