"""The IO manager through which every output of the project is written: the engine behind Dagster's `handle_output`.

Closes the gap between what Dagster shows and what is done. A run that returns normally marks every partition of it materialized;
so when some are not settled, one materialization is logged for each that is, and then the step fails, without op retries: the
ledger says what is due, and the failed-partition sensor asks for exactly that.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import dagster as dg

from resources.config import load_config
from resources.dagster_tables import table
from resources.engine import Batch, Engine, Progress, RunReport
from resources.errors import ErrorKind
from resources.ledger import Ledger, PartitionRow, UnitRow
from resources.opening import open_project_ledger, open_project_store
from resources.outputs import Outputs
from resources.units import RUNNABLE_STATES, RunOutcome, RunSummary, UnitState

REASONS_SHOWN = 25
ONLY_DUE_TAG = "tilewright/only_due"


@dataclass(frozen=True, slots=True)
class UnitsOutput:
    """What an asset returns: a batch, the engine that does it, and how its results are told to Dagster.

    `add_metadata(metadata, partition_key=...)` is the execution context's; `describe(report, row)` gives a partition's metadata.
    """

    batch: Batch
    engine: Engine
    add_metadata: Callable[..., None]
    describe: Callable[[RunReport, PartitionRow], Mapping[str, Any]]


class AtomicPromoteIOManager(dg.ConfigurableIOManager):
    """Does what is missing of a batch of units and walks stage, validate, promote, record for each.

    `load_input` hands on only what the ledger says is complete and the store confirms. `config_path`: the project's configuration
    file; empty: as the environment says.
    """

    config_path: str = ""

    # Dagster takes a generator too, and only that lets events out before a failure
    def handle_output(  # type: ignore[override]
        self, context: dg.OutputContext, obj: UnitsOutput
    ) -> Iterator[Any]:
        """Run the batch. Raises `dagster.Failure` unless every partition of the run is settled.

        After a crash: the run's next try, or any other run of these partitions, goes on where this one stopped.
        """
        if not isinstance(obj, UnitsOutput):
            raise dg.Failure(
                f"asset {context.asset_key.to_user_string()} returned {type(obj).__name__}; allowed: UnitsOutput",
                allow_retries=False,
            )
        run = context.step_context.dagster_run
        report = obj.engine.run(
            obj.batch,
            run_id=context.run_id,
            requested_by=_requested_by(run.tags),
            only_due=run.tags.get(ONLY_DUE_TAG) == "true",
            on_progress=lambda progress: context.log.info(progress_line(obj.batch.asset, progress)),
        )
        for discrepancy in report.discrepancies:
            context.log.warning(f"discrepancy kind={discrepancy.kind} unit={discrepancy.unit_key} {discrepancy.message}")
        context.log.info(summary_line(report))
        settled = report.settled
        if len(settled) == len(report.partitions) == len(obj.batch.partitions) and report.stopped_by is None:
            for row in settled:
                obj.add_metadata(dict(obj.describe(report, row)), partition_key=row.partition)
            return
        for row in settled:
            context.log_event(
                dg.AssetMaterialization(context.asset_key, partition=row.partition, metadata=dict(obj.describe(report, row)))
            )
        if settled:
            yield {}  # Dagster collects what was logged only when the generator yields, and not at all once it raises
        raise dg.Failure(
            description=failure_text(report),
            metadata={"incomplete": incomplete_table(obj.engine.ledger, report)},
            allow_retries=False,
        )

    def load_input(self, context: dg.InputContext) -> list[UnitRow]:
        """Units planned in the upstream partitions. A COMPLETE one whose output is not there as recorded is handed on as PENDING.

        Raises `EnvironmentUnfit` when the store is not the one the ledger remembers.
        """
        config = load_config(self.config_path or None)
        ledger = open_project_ledger(config)
        store = open_project_store(config, ledger)
        rows = list(ledger.planned(context.asset_key.to_user_string(), list(context.asset_partition_keys)))
        sizes = Outputs(store, ledger).listings().sizes(row.output_uri for row in rows)
        return [_confirmed(row, sizes) for row in rows]


def _confirmed(row: UnitRow, sizes: Mapping[str, int]) -> UnitRow:
    if row.state is not UnitState.COMPLETE or sizes.get(row.output_uri) == row.output_size:
        return row
    return replace(row, state=UnitState.PENDING, error_kind=ErrorKind.OUTPUT_MISSING, reason="its output is missing or differs")


def progress_line(asset: str, progress: Progress) -> str:
    """One structured line about a run under way."""
    return (
        f"progress asset={asset} done={progress.done} planned={progress.planned} running={progress.running} "
        f"window={progress.window} tile={progress.tile or '-'} unit={progress.unit_key[:16]}"
    )


def summary_line(report: RunReport) -> str:
    """One structured line about a run that is over."""
    summary = report.summary
    windows = ",".join(dict.fromkeys(row.window or "-" for row in report.partitions))
    return (
        f"summary asset={report.asset} window={windows} outcome={summary.outcome} processed={summary.processed} "
        f"skipped={summary.skipped} failed={summary.failed} quarantined={summary.quarantined} "
        f"not_attempted={summary.not_attempted}"
    )


def failure_text(report: RunReport) -> str:
    """Why a run is red and what happens next, for a person."""
    summary = report.summary
    if report.stopped_by is not None:
        why = report.stopped_by.message
        return f"The run stopped early: {why}. No unit was charged. Mend that, then launch the partitions again."
    lines = [
        f"{summary.failed} failed and {summary.not_attempted} not attempted of {summary.planned} planned units; "
        f"{summary.processed} processed, {summary.skipped} skipped, {summary.quarantined} quarantined."
    ]
    if report.held_elsewhere:
        name, holder = next(iter(sorted(report.held_elsewhere.items())))
        lines.append(
            f"{len(report.held_elsewhere)} partitions are held by another run (e.g. {name} by {holder}) and were left alone."
        )
    if summary.reason:
        lines.append(summary.reason)
    if summary.failed:
        lines.append("Failed units are tried again by the failed-partition sensor; 'tilewright units --state FAILED' lists them.")
    return " ".join(lines)


def incomplete_table(ledger: Ledger, report: RunReport) -> dg.TableMetadataValue:
    """Units of a run that are not complete, with their reasons, for the UI."""
    states = [*RUNNABLE_STATES, UnitState.RUNNING, UnitState.QUARANTINED]
    names = {row.partition for row in report.partitions if row.units != row.complete}
    incomplete = (row for row in ledger.planned(report.asset, names) if row.state in states)
    rows = [
        {
            "unit": row.key[:16],
            "product": row.product,
            "window": row.window,
            "tile": row.tile or "",
            "state": row.state.value,
            "attempts": row.attempts,
            "kind": row.error_kind or "",
            "reason": (row.reason or "")[:300],
        }
        for row in islice(incomplete, REASONS_SHOWN)
    ]
    columns = ("unit", "product", "window", "tile", "state", "attempts", "kind", "reason")
    return table(rows, columns=columns, numbers=("attempts",))


def counts_metadata(row: PartitionRow) -> dict[str, Any]:
    """Numbers of one partition, for its materialization."""
    return {
        "planned": row.units,
        "complete": row.complete,
        "quarantined": row.quarantined,
        "dismissed": row.dismissed,
        "state": "EMPTY" if row.units == 0 else ("SETTLED, with quarantined units" if row.quarantined else "COMPLETE"),
    }


def summary_metadata(summary: RunSummary) -> dict[str, Any]:
    """The five numbers of a run, for metadata."""
    return {
        "run_processed": summary.processed,
        "run_skipped": summary.skipped,
        "run_outcome": RunOutcome(summary.outcome).value,
    }


def _requested_by(tags: Mapping[str, str]) -> str:
    for tag in ("dagster/sensor_name", "dagster/schedule_name", "dagster/backfill", "tilewright/requested_by"):
        if tag in tags:
            return f"{tag.removeprefix('dagster/')}={tags[tag]}"
    return "by hand"
