"""The assets of digitization, as Dagster sees them: masters, access copies, and the record of what happened to them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from assets.automation_assets import Describe, after_attempt, asset_settings, describe, describe_page
from assets.digitization.capturing import list_masters
from assets.digitization.copies_batch import CopiesBatch
from assets.digitization.event_batch import EventsBatch
from assets.digitization.export import export_batch
from assets.digitization.fixity import FixityBatch
from assets.digitization.masters import Master
from assets.digitization.project import DigitizationProject
from assets.digitization.report import report_batch, report_uri
from assets.digitization.shape import COPIES, FIXITY, MANIFEST, REPORT
from assets.digitization.stock import manifest_batch, window_masters
from resources.engine import Engine
from resources.io_managers import UnitsOutput
from resources.ledger import UnitRow

OWNER = "team:digitization"
_FEW_UNITS = 200


def digitization_assets(
    project: DigitizationProject, *, windows: dg.PartitionsDefinition, fixity_periods: dg.PartitionsDefinition
) -> list[dg.AssetsDefinition]:
    """Assets of digitization: of batch windows, and fixity checks of periods of their own."""
    of_window = asset_settings(project, windows, owner=OWNER)

    @dg.asset(
        name=MANIFEST,
        description="Every file of a window's batches: digest captured at ingest, format, size, colour, resolution. Parquet.",
        kinds={"python", "parquet"},
        **of_window,
    )
    def master_manifest(context: dg.AssetExecutionContext) -> UnitsOutput:
        listing = list_masters(project, now=project.ledger.clock())
        batch = manifest_batch(project, context.partition_keys, listing)
        described = {window: window_masters(project, window, listing) for window in context.partition_keys}
        return UnitsOutput(batch, project.engine(inline=True), context.add_asset_metadata, _describe_masters(described))

    @dg.asset(
        description="JPEG 2000 copies of the masters first captured in a window, one for each content.",
        kinds={"python", "jpeg2000"},
        deps=[master_manifest],
        **of_window,
    )
    def access_copies(context: dg.AssetExecutionContext) -> UnitsOutput:
        batch = CopiesBatch(project, context.partition_keys, run_id=context.run.run_id)
        for window in batch.refreshed:
            found = _masters_metadata(batch.stock[window].masters)
            context.log_event(dg.AssetMaterialization(MANIFEST, partition=window, metadata=found))
        return UnitsOutput(batch, project.engine(), context.add_asset_metadata, describe)

    @dg.asset(
        description="What happened to each content: ingestion, digest, structure check, migration. Rows of the ledger database.",
        kinds={"python", "sql"},
        deps=[access_copies],
        automation_condition=after_attempt(),
        **of_window,
    )
    def preservation_events(context: dg.AssetExecutionContext) -> UnitsOutput:
        batch = EventsBatch(project, context.partition_keys)
        engine = _engine(project, batch.asset, batch.partitions, "assets.digitization.events")
        return UnitsOutput(batch, engine, context.add_asset_metadata, describe)

    @dg.asset(
        description="One PREMIS 3.0 document for each object captured in a window, and a Parquet table of all their events.",
        kinds={"python", "xml", "parquet"},
        deps=[preservation_events],
        automation_condition=after_attempt(),
        **of_window,
    )
    def premis_export(context: dg.AssetExecutionContext) -> UnitsOutput:
        batch = export_batch(project, context.partition_keys)
        engine = _engine(project, batch.asset, batch.partitions, "assets.digitization.export")
        return UnitsOutput(batch, engine, context.add_asset_metadata, describe)

    @dg.asset(
        name=REPORT,
        description="One page about a window: copies by state, batches, what was refused and why, what was converted.",
        kinds={"python", "html"},
        ins={"copy_units": dg.AssetIn(COPIES)},
        deps=[premis_export],
        automation_condition=after_attempt(),
        **of_window,
    )
    def batch_report(context: dg.AssetExecutionContext, copy_units: list[UnitRow]) -> UnitsOutput:
        batch = report_batch(project, context.partition_keys, copy_units)
        return UnitsOutput(batch, project.engine(inline=True), context.add_asset_metadata, describe_page(project, report_uri))

    @dg.asset(
        name=FIXITY,
        description="Masters and copies read again, a share of them each day; what differs is an event and fails a check.",
        kinds={"python", "sql"},
        **asset_settings(project, fixity_periods, owner=OWNER),
    )
    def fixity_checks(context: dg.AssetExecutionContext) -> UnitsOutput:
        batch = FixityBatch(project, context.partition_keys)
        engine = project.engine(preload=("assets.digitization.fixity",))
        return UnitsOutput(batch, engine, context.add_asset_metadata, describe)

    return [master_manifest, access_copies, preservation_events, premis_export, batch_report, fixity_checks]


def _engine(project: DigitizationProject, asset: str, partitions: Sequence[str], module: str) -> Engine:
    """Workers for many units, which they record in groups; this process for few, which are done before a worker has started."""
    open_units = sum(row.pending + row.failed for row in project.ledger.partition_rows(asset, names=partitions))
    return project.engine(inline=open_units <= _FEW_UNITS, preload=(module,))


def _describe_masters(masters: Mapping[str, tuple[Master, ...]]) -> Describe:
    return lambda report, row: {**_masters_metadata(masters[row.partition]), **describe(report, row)}


def _masters_metadata(masters: tuple[Master, ...]) -> Mapping[str, Any]:
    verdicts = Counter(master.verdict.value for master in masters)
    return {
        "masters": len(masters),
        "bytes": sum(master.size_bytes for master in masters),
        "verdicts": ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())) or "none",
    }
