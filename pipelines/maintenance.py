"""Jobs that keep house: sweep and deep verification. Each with its schedule."""

from collections import Counter
from collections.abc import Sequence

import dagster as dg

from pipelines.checks import Opened
from pipelines.findings import units_match_outputs
from pipelines.schedules import schedule_status
from pipelines.watched import Watched
from resources.sweep import Keep, Swept, holding_runs, sweep_staging, sweep_superseded

Job = tuple[dg.JobDefinition, dg.ScheduleDefinition]
_SHOWN = 100


def sweep_job(opened: Opened, *, is_on: bool) -> Job:
    """Nightly: abandoned staging files, and superseded outputs whose time is over."""

    @dg.op
    def sweep_files(context: dg.OpExecutionContext) -> None:
        project = opened()
        retention = project.config.retention
        removed: list[Swept] = []
        kept: Counter[Keep] = Counter()
        removed += sweep_staging(
            project.ledger,
            project.store,
            living_runs=holding_runs(project.ledger, project.leases),
            older_than_s=retention.staging_hours * 3600.0,
            dry_run=False,
            kept=kept,
        )
        days = retention.superseded_days
        removed += sweep_superseded(project.ledger, project.store, project.leases, older_than_days=days, dry_run=False)
        size = sum(item.size_bytes for item in removed)
        context.log.info(f"swept files={len(removed)} bytes={size} kept_staged={kept.total()}")
        context.add_output_metadata(
            {
                "files": len(removed),
                "bytes": size,
                "kept_staged": kept.total(),
                "removed": "\n".join(f"{item.uri}: {item.why}" for item in removed[:_SHOWN]),
            }
        )

    @dg.job(name="sweep", description="Removes abandoned staging files and superseded outputs whose time is over.")
    def sweep_store() -> None:
        sweep_files()

    schedule = dg.ScheduleDefinition(
        name="nightly_sweep",
        job=sweep_store,
        cron_schedule="17 3 * * *",
        execution_timezone="UTC",
        default_status=schedule_status(is_on),
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
        default_status=schedule_status(is_on),
    )
    return verify_outputs, schedule
