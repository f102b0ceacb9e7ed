"""What the assets of every pipeline share in Dagster: the IO manager's key, and when something is made of a window's units."""

from typing import Any

import dagster as dg

from assets.project import Project

IO_MANAGER = "units"


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
