"""What the assets of every pipeline share in Dagster: settings, what is told of a partition, and when something follows a run."""

from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg

from assets.project import Project
from resources.engine import RunReport
from resources.io_managers import counts_metadata, summary_metadata
from resources.ledger import PartitionRow

IO_MANAGER = "units"
Describe = Callable[[RunReport, PartitionRow], Mapping[str, Any]]


def after_attempt() -> dg.AutomationCondition[Any]:
    """Run when something upstream was attempted, also if all of it failed, and once for a burst of events.

    `AutomationCondition.eager` would wait for ever on a missing tile; without `since_last_handled` an update in a run is lost.
    """
    something_new = dg.AutomationCondition.any_deps_updated() | dg.AutomationCondition.any_deps_match(
        dg.AutomationCondition.execution_failed().newly_true()
    )
    return (
        something_new.since_last_handled()
        & ~dg.AutomationCondition.any_deps_in_progress()
        & ~dg.AutomationCondition.in_progress()
    ).with_label("after_attempt")


def asset_settings(project: Project, partitions: dg.PartitionsDefinition, *, owner: str) -> dict[str, Any]:
    """Settings that every asset of a pipeline has: its partitions, its group, its IO manager, many partitions in one run."""
    return {
        "partitions_def": partitions,
        "group_name": project.shape.group,
        "owners": [owner],
        "io_manager_key": IO_MANAGER,
        "backfill_policy": dg.BackfillPolicy.multi_run(max_partitions_per_run=project.config.sensors.partitions_per_run),
    }


def describe(report: RunReport, row: PartitionRow) -> Mapping[str, Any]:
    """Metadata of a partition: counts, and the five numbers of the run."""
    return {**counts_metadata(row), **summary_metadata(report.summary)}


def describe_page(project: Project, uri_of: Callable[[str], str]) -> Describe:
    """Metadata of a window's page: where it lies, and the counts. `uri_of` gives its URI for a window."""

    def found(report: RunReport, row: PartitionRow) -> Mapping[str, Any]:
        return {"page": dg.MetadataValue.path(str(project.store.path(uri_of(row.partition)))), **describe(report, row)}

    return found
