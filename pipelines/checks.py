"""The asset checks: what must be true at the end of every run, and what must be true all the time."""

from collections.abc import Callable

import dagster as dg

from assets.scenes.model import SceneListing
from pipelines.findings import LETTERS_CHECK, SCENES_CHECK, UNITS_CHECK, open_dead_letters, scenes_left_out, units_match_outputs
from pipelines.watched import ProjectLike, Watched

Opened = Callable[[], ProjectLike]


def units_check(watched: Watched, opened: Opened) -> dg.AssetChecksDefinition:
    """`completed_units_match_outputs` of one asset, over the partitions of the run it is part of; blocking."""

    @dg.asset_check(
        name=UNITS_CHECK,
        asset=watched.key,
        blocking=True,
        description="Planned units, units recorded complete and outputs that exist, compared as sets; names each discrepancy.",
    )
    def completed_units_match_outputs(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        project = opened()
        partitions = scope(project, watched, context.run)
        return units_match_outputs(project, watched, partitions, run_id=context.run.run_id).as_result()

    return completed_units_match_outputs


def scope(project: ProjectLike, watched: Watched, run: dg.DagsterRun) -> list[str]:
    """Partitions that a run worked on. A run without partitions looks at all that are planned."""
    row = project.ledger.run(run.run_id)
    if row is not None and row.asset == watched.asset:
        return list(row.partitions)
    return watched.partitions_of(run) or [found.partition for found in project.ledger.partition_rows(watched.asset)]


def letters_check(watched: Watched, opened: Opened) -> dg.AssetChecksDefinition:
    """`no_open_dead_letters`: stands until each is replayed, superseded or dismissed."""

    @dg.asset_check(
        name=LETTERS_CHECK,
        asset=watched.key,
        description="Lists the open dead letters: what is quarantined and why.",
    )
    def no_open_dead_letters() -> dg.AssetCheckResult:
        return open_dead_letters(opened(), watched).as_result()

    return no_open_dead_letters


def scenes_check(watched: Watched, listed: Callable[[], SceneListing]) -> dg.AssetChecksDefinition:
    """`no_scene_left_out`: undated, future, too early or waiting scenes, and files that are no scenes."""

    @dg.asset_check(
        name=SCENES_CHECK,
        asset=watched.key,
        description="Lists what the source holds and no window takes: undated, future, too early, outside, waiting, no scene.",
    )
    def no_scene_left_out() -> dg.AssetCheckResult:
        return scenes_left_out(watched, listed()).as_result()

    return no_scene_left_out
