"""The asset checks: what must be true at the end of every run, and what must be true all the time."""

from collections.abc import Callable
from datetime import timedelta

import dagster as dg

from assets.project import Project
from pipelines.findings import (
    LETTERS_CHECK,
    OVERDUE_CHECK,
    UNITS_CHECK,
    inputs_left_out,
    open_dead_letters,
    overdue_dead_letters,
    units_match_outputs,
)
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


def overdue_check(watched: Watched, opened: Opened, *, deadline: timedelta) -> dg.AssetChecksDefinition:
    """`no_overdue_dead_letter`: nobody has looked after a dead letter for longer than the configured deadline."""

    @dg.asset_check(
        name=OVERDUE_CHECK,
        asset=watched.key,
        description="Lists the dead letters that have been open for longer than alerts.letter_deadline_hours.",
    )
    def no_overdue_dead_letter() -> dg.AssetCheckResult:
        return overdue_dead_letters(opened(), watched, deadline=deadline).as_result()

    return no_overdue_dead_letter


def left_out_check(watched: Watched, project: Project) -> dg.AssetChecksDefinition:
    """`no_scene_left_out` and its like: undated, future, too early or waiting things of the source, and files that are none."""
    shape = project.shape

    @dg.asset_check(
        name=shape.left_out_check,
        asset=watched.key,
        description=f"Lists what the source holds and no window takes, each with its reason: no {shape.subject} vanishes.",
    )
    def nothing_left_out() -> dg.AssetCheckResult:
        survey = project.survey(now=project.ledger.clock())
        return inputs_left_out(watched, survey, check=shape.left_out_check, subject=shape.subject).as_result()

    return nothing_left_out
