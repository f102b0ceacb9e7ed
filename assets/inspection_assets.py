"""The assets of inspections, as Dagster sees them: reports, their records, and what is made of a window's records."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

import dagster as dg

from assets.automation_assets import Describe, after_attempt, asset_settings, describe, describe_page
from assets.inspections.listing import ListedReport
from assets.inspections.page import page_batch, page_uri
from assets.inspections.project import InspectionsProject
from assets.inspections.records_batch import RecordsBatch
from assets.inspections.shape import MANIFEST, PAGE, RECORDS
from assets.inspections.stock import list_batch
from assets.inspections.table import table_batch
from resources.dagster_tables import table
from resources.engine import RunReport
from resources.io_managers import UnitsOutput
from resources.ledger import PartitionRow, UnitRow
from resources.units import UnitState

OWNER = "team:inspections"
_REASONS_SHOWN = 25


def inspection_assets(project: InspectionsProject, *, windows: dg.PartitionsDefinition) -> list[dg.AssetsDefinition]:
    """Assets of inspections; all of batch windows."""
    of_window = asset_settings(project, windows, owner=OWNER)

    @dg.asset(
        name=MANIFEST,
        description="Every report that the source lists for a window: site, period, address, where it says so. Parquet.",
        kinds={"python", "parquet"},
        **of_window,
    )
    def report_list(context: dg.AssetExecutionContext) -> UnitsOutput:
        listing = project.list_reports(now=project.ledger.clock())
        batch = list_batch(project, context.partition_keys, listing)
        listed = {window: listing.of_window(window) for window in context.partition_keys}
        return UnitsOutput(batch, project.engine(inline=True), context.add_asset_metadata, _describe_list(listed))

    @dg.asset(
        name=RECORDS,
        description="One record for each site and period, read from its report. Rows of the ledger database, with their history.",
        kinds={"python", "sql"},
        deps=[report_list],
        **of_window,
    )
    def inspection_records(context: dg.AssetExecutionContext) -> UnitsOutput:
        batch = RecordsBatch(project, context.partition_keys, run_id=context.run.run_id)
        for window in batch.refreshed:
            found = _listed(tuple(batch.stock[window].reports.values()))
            context.log_event(dg.AssetMaterialization(MANIFEST, partition=window, metadata=found))
        return UnitsOutput(batch, project.engine(), context.add_asset_metadata, _describe_records(project))

    upstream = dg.AssetIn(RECORDS)

    @dg.asset(
        description="The records of a window as Parquet, each with address, content digest, page count, version and unit key.",
        kinds={"python", "parquet"},
        ins={"record_units": upstream},
        automation_condition=after_attempt(),
        **of_window,
    )
    def inspection_table(context: dg.AssetExecutionContext, record_units: list[UnitRow]) -> UnitsOutput:
        batch = table_batch(project, context.partition_keys, record_units)
        return UnitsOutput(batch, project.engine(inline=True), context.add_asset_metadata, describe)

    @dg.asset(
        name=PAGE,
        description="One page about a window: records by state, dead letters and why, conflicts, equal contents.",
        kinds={"python", "html"},
        ins={"record_units": upstream},
        deps=[inspection_table],
        automation_condition=after_attempt(),
        **of_window,
    )
    def inspection_page(context: dg.AssetExecutionContext, record_units: list[UnitRow]) -> UnitsOutput:
        batch = page_batch(project, context.partition_keys, record_units)
        return UnitsOutput(batch, project.engine(inline=True), context.add_asset_metadata, describe_page(project, page_uri))

    return [report_list, inspection_records, inspection_table, inspection_page]


def _describe_list(listed: Mapping[str, tuple[ListedReport, ...]]) -> Describe:
    return lambda report, row: {**_listed(listed[row.partition]), **describe(report, row)}


def _listed(reports: tuple[ListedReport, ...]) -> Mapping[str, Any]:
    return {
        "reports": len(reports),
        "sites": len({report.site for report in reports}),
        "hosts": ", ".join(sorted({report.host for report in reports})[:10]) or "none",
    }


def _describe_records(project: InspectionsProject) -> Describe:
    def found(report: RunReport, row: PartitionRow) -> Mapping[str, Any]:
        said: dict[str, Any] = dict(describe(report, row))
        if row.quarantined:
            said["dead_letters"] = _reasons(project, row)
        return said

    return found


def _reasons(project: InspectionsProject, row: PartitionRow) -> dg.TableMetadataValue:
    units = project.ledger.planned(RECORDS, [row.partition])
    quarantined = (unit for unit in units if unit.state is UnitState.QUARANTINED)
    rows = [
        {
            "report": str(unit.spec.get("uri", ""))[:200],
            "kind": unit.error_kind or "",
            "reason": (unit.reason or "")[:300],
            "attempts": unit.attempts,
        }
        for unit in islice(quarantined, _REASONS_SHOWN)
    ]
    return table(rows, columns=("report", "kind", "reason", "attempts"), numbers=("attempts",))
