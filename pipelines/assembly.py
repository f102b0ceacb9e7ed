"""What every pipeline gets in Dagster, from the same factories: checks, sensors, schedules, jobs. Nothing here knows one of them.

A pipeline gives its parts: its assets, which of them are watched, and what it has beyond the others. Each watched asset gets the
check and the sensor of its units; the pipeline as a whole gets the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

import dagster as dg

from assets.automation_assets import IO_MANAGER
from assets.pipeline_shape import MANIFEST_JOB, OUTPUTS_JOB, PipelineShape
from assets.project import Project
from pipelines.alerting import alerts_sensor
from pipelines.arrivals_sensor import arrivals_sensor
from pipelines.checks import left_out_check, letters_check, overdue_check, units_check
from pipelines.dead_runs import dead_run_sensor
from pipelines.maintenance import sweep_job, verification_job
from pipelines.reconciling_sensors import failed_partition_sensor, run_end_sensor
from pipelines.replaying import recovery_sensor, replay_job
from pipelines.schedules import schedule_status, window_schedule
from pipelines.standing_checks import letters_sensor
from pipelines.watched import MAX_RUNTIME_TAG, Watched
from resources.io_managers import AtomicPromoteIOManager

CHECKS_JOB = "standing_checks"
SCHEDULE = "windows"
AnyJob: TypeAlias = "dg.JobDefinition | dg.UnresolvedAssetJobDefinition"


@dataclass(frozen=True)
class WatchedAssets:
    """The assets of a pipeline whose partitions the ledger knows. `more` have partitions of their own, not batch windows."""

    manifest: Watched
    units: Watched
    outputs: tuple[Watched, ...]
    more: tuple[Watched, ...] = ()

    @property
    def of_windows(self) -> tuple[Watched, ...]:
        """Those of batch windows, the units first."""
        return (self.units, self.manifest, *self.outputs)

    @property
    def all(self) -> tuple[Watched, ...]:
        """All of them, the units first."""
        return (*self.of_windows, *self.more)


def watch(
    shape: PipelineShape,
    *,
    windows: dg.PartitionsDefinition[str],
    units: dg.PartitionsDefinition[str] | None = None,
    more: Sequence[Watched] = (),
) -> WatchedAssets:
    """The watched assets of a shape over its windows; `units`: the partitions of the units, where they are more than windows."""
    made = Watched(shape.units, units or windows, (shape.units_job,))
    return WatchedAssets(
        manifest=Watched(shape.manifest, windows, (MANIFEST_JOB,), written_with=made),
        units=made,
        outputs=tuple(Watched(name, windows, (OUTPUTS_JOB,)) for name in shape.outputs),
        more=tuple(more),
    )


@dataclass(frozen=True)
class PipelineParts:
    """What a pipeline brings; all that every pipeline has is added by `assemble`."""

    assets: Sequence[dg.AssetsDefinition]
    watched: WatchedAssets
    checks: Sequence[dg.AssetChecksDefinition] = ()
    jobs: Sequence[AnyJob] = ()
    schedules: Sequence[dg.ScheduleDefinition] = ()
    sensors: Sequence[dg.SensorDefinition] = field(default_factory=tuple)


def assemble(
    project: Project, parts: PipelineParts, *, autostart: bool, replay_schedule: bool, executor: dg.ExecutorDefinition
) -> dg.Definitions:
    """The definitions of a pipeline: its parts, and what every pipeline has.

    `autostart` says whether the window schedule, arrivals, sweep and deep verification run unasked.
    """

    def opened() -> Project:
        return project

    config, watched = project.config, parts.watched
    keeping = (
        sweep_job(opened, is_on=autostart),
        verification_job(watched.all, opened, is_on=autostart),
        replay_job(opened, every=config.replay_every, is_on=replay_schedule, plan_again=project.plan_again),
    )
    return dg.Definitions(
        assets=parts.assets,
        asset_checks=[*_checks(project, watched), *parts.checks],
        jobs=[*_jobs(project, watched), *(job for job, _ in keeping), *parts.jobs],
        schedules=[
            window_schedule(
                watched.units,
                calendar=project.calendar,
                partitions_of=project.partitions_of,
                window=config.window,
                sensors=config.sensors,
                name=SCHEDULE,
                status=schedule_status(autostart),
            ),
            *(schedule for _, schedule in keeping),
            *parts.schedules,
        ],
        sensors=[
            *_sensors(project, watched, autostart=autostart),
            recovery_sensor(watched.units, opened, interval_s=config.sensors.interval_s, is_on=replay_schedule),
            *parts.sensors,
        ],
        resources={IO_MANAGER: AtomicPromoteIOManager(config_path=str(config.path))},
        executor=executor,
    )


def _checks(project: Project, watched: WatchedAssets) -> list[dg.AssetChecksDefinition]:
    def opened() -> Project:
        return project

    checks = [units_check(item, opened) for item in watched.all]
    checks += [letters_check(watched.units, opened), left_out_check(watched.manifest, project)]
    deadline = _letter_deadline(project)
    return checks if deadline is None else [*checks, overdue_check(watched.units, opened, deadline=deadline)]


def _sensors(project: Project, watched: WatchedAssets, *, autostart: bool) -> list[dg.SensorDefinition]:
    def opened() -> Project:
        return project

    interval_s = project.config.sensors.interval_s
    return [
        *(failed_partition_sensor(item, opened, interval_s=interval_s) for item in watched.all),
        run_end_sensor(watched.all, opened, interval_s=interval_s),
        dead_run_sensor(watched.all, opened, interval_s=interval_s),
        letters_sensor(watched.units, opened, interval_s=interval_s, deadline=_letter_deadline(project)),
        arrivals_sensor(
            watched.units,
            watched.manifest,
            project,
            status=dg.DefaultSensorStatus.RUNNING if autostart else dg.DefaultSensorStatus.STOPPED,
        ),
        alerts_sensor(watched.of_windows, opened, calendar=project.calendar, schedule_name=SCHEDULE, interval_s=interval_s),
        dg.AutomationConditionSensorDefinition(
            "automation",
            target=dg.AssetSelection.groups(project.shape.group),
            default_status=dg.DefaultSensorStatus.RUNNING,
            minimum_interval_seconds=interval_s,
        ),
    ]


def _jobs(project: Project, watched: WatchedAssets) -> list[AnyJob]:
    shape, tags = project.shape, {MAX_RUNTIME_TAG: str(project.config.sensors.max_runtime_s)}

    def job(name: str, *chosen: Watched, description: str) -> AnyJob:
        selection = dg.AssetSelection.assets(*(item.key for item in chosen))
        return dg.define_asset_job(name, selection, description=description, tags=tags)

    return [
        job(shape.units_job, watched.units, description=f"{shape.units} over a range of partitions of one window."),
        job(MANIFEST_JOB, watched.manifest, description=f"What the source holds for a window: every {shape.subject}."),
        job(OUTPUTS_JOB, *watched.outputs, description=f"What is made of a window's {shape.units}: {', '.join(shape.outputs)}."),
        *(job(item.jobs[0], item, description=f"{item.asset} over a range of its partitions.") for item in watched.more),
        dg.define_asset_job(
            CHECKS_JOB,
            dg.AssetSelection.checks_for_assets(watched.units.key, watched.manifest.key),
            description=f"The checks of {shape.units} and {shape.manifest} alone; computes nothing.",
        ),
    ]


def _letter_deadline(project: Project) -> timedelta | None:
    hours = project.config.alerts.letter_deadline_hours
    return None if hours is None else timedelta(hours=hours)
