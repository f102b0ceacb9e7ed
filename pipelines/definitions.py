"""The code location: everything that Dagster loads, assembled from one configuration.

`build_defs` makes a whole location, for tests with parts of their own; `defs` is what workspace.yaml names, made only when
Dagster asks for it, so that importing this module needs no configuration.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from assets.project import Project, open_project
from assets.stock import MANIFEST, list_scenes
from assets.tile_assets import GROUP, IO_MANAGER, tile_assets
from assets.window_outputs import CATALOGUE, REPORT, ZONES
from pipelines.alerting import alerts_sensor
from pipelines.arrivals_sensor import arrivals_sensor
from pipelines.checks import letters_check, scenes_check, units_check
from pipelines.dead_runs import dead_run_sensor
from pipelines.maintenance import replay_job, sweep_job, verification_job
from pipelines.partitions import ProjectPartitions, project_partitions
from pipelines.reconciling_sensors import failed_partition_sensor, run_end_sensor
from pipelines.schedules import window_schedule
from pipelines.standing_checks import letters_sensor
from pipelines.watched import MAX_RUNTIME_TAG, Watched
from resources.io_managers import AtomicPromoteIOManager

TILES = "tiles"
TILES_JOB = "window_tiles"
MANIFEST_JOB = "window_manifest"
OUTPUTS_JOB = "window_outputs"
CHECKS_JOB = "standing_checks"
SCHEDULE = "windows"


@dataclass(frozen=True)
class MainJob:
    """The watched assets of the main job."""

    tiles: Watched
    manifest: Watched
    outputs: tuple[Watched, ...]

    @property
    def all(self) -> tuple[Watched, ...]:
        """All of them, tiles first."""
        return (self.tiles, self.manifest, *self.outputs)


def watched_assets(project: Project, partitions: ProjectPartitions) -> MainJob:
    """What sensors and checks of the main job look at."""
    names = [CATALOGUE, REPORT] if project.config.zones is None else [CATALOGUE, ZONES, REPORT]
    tiles = Watched(TILES, partitions.window_tiles, (TILES_JOB,))
    return MainJob(
        tiles=tiles,
        manifest=Watched(MANIFEST, partitions.windows, (MANIFEST_JOB,), written_with=tiles),
        outputs=tuple(Watched(name, partitions.windows, (OUTPUTS_JOB,)) for name in names),
    )


def build_defs(
    config_path: Path | str | None = None,
    *,
    project: Project | None = None,
    autostart: bool | None = None,
    replay_schedule: bool | None = None,
    executor: dg.ExecutorDefinition = dg.in_process_executor,
) -> dg.Definitions:
    """The code location of a configuration; what is given takes the place of what the configuration says.

    Raises `ConfigurationError` (file, key, found, allowed), or `EnvironmentUnfit` when the ledger cannot be reached.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=dg.BetaWarning)
        found = project or open_project(config_path)
        return _build(
            found,
            autostart=found.config.autostart if autostart is None else autostart,
            replay_schedule=found.config.replay_schedule if replay_schedule is None else replay_schedule,
            executor=executor,
        )


def _build(project: Project, *, autostart: bool, replay_schedule: bool, executor: dg.ExecutorDefinition) -> dg.Definitions:
    partitions = project_partitions(project.calendar, project.grid)
    main = watched_assets(project, partitions)
    config = project.config
    sensors = config.sensors

    def opened() -> Project:
        return project

    keeping = (
        sweep_job(opened, is_on=autostart),
        verification_job(main.all, opened, is_on=autostart),
        replay_job(opened, is_on=replay_schedule),
    )
    return dg.Definitions(
        assets=tile_assets(
            project, windows=partitions.windows, window_tiles=partitions.window_tiles, to_window=partitions.to_window
        ),
        asset_checks=[
            *(units_check(item, opened) for item in main.all),
            letters_check(main.tiles, opened),
            scenes_check(main.manifest, lambda: list_scenes(project, now=project.ledger.clock())),
        ],
        jobs=[*_jobs(main, max_runtime_s=sensors.max_runtime_s), *(job for job, _ in keeping)],
        schedules=[
            window_schedule(
                main.tiles,
                calendar=project.calendar,
                tiles=list(project.grid.partitions),
                window=config.window,
                sensors=sensors,
                name=SCHEDULE,
                status=dg.DefaultScheduleStatus.RUNNING if autostart else dg.DefaultScheduleStatus.STOPPED,
            ),
            *(schedule for _, schedule in keeping),
        ],
        sensors=[
            *(failed_partition_sensor(item, opened, interval_s=sensors.interval_s) for item in main.all),
            run_end_sensor(main.all, opened, interval_s=sensors.interval_s),
            dead_run_sensor(main.all, opened, interval_s=sensors.interval_s),
            letters_sensor(main.tiles, opened, interval_s=sensors.interval_s),
            arrivals_sensor(
                main.tiles,
                main.manifest,
                project,
                status=dg.DefaultSensorStatus.RUNNING if autostart else dg.DefaultSensorStatus.STOPPED,
            ),
            alerts_sensor(main.all, opened, calendar=project.calendar, schedule_name=SCHEDULE, interval_s=sensors.interval_s),
            dg.AutomationConditionSensorDefinition(
                "automation",
                target=dg.AssetSelection.groups(GROUP),
                default_status=dg.DefaultSensorStatus.RUNNING,
                minimum_interval_seconds=sensors.interval_s,
            ),
        ],
        resources={IO_MANAGER: AtomicPromoteIOManager(config_path=str(config.path))},
        executor=executor,
    )


def _jobs(main: MainJob, *, max_runtime_s: int) -> "Sequence[dg.JobDefinition | dg.UnresolvedAssetJobDefinition]":
    tags = {MAX_RUNTIME_TAG: str(max_runtime_s)}
    selection = dg.AssetSelection.assets
    return [
        dg.define_asset_job(
            TILES_JOB,
            selection(main.tiles.key),
            description="Tiles over a range of partitions of one window.",
            tags=tags,
        ),
        dg.define_asset_job(
            MANIFEST_JOB,
            selection(main.manifest.key),
            description="The manifest of a window.",
            tags=tags,
        ),
        dg.define_asset_job(
            OUTPUTS_JOB,
            selection(*(item.key for item in main.outputs)),
            description="Catalogue, statistics and report of a window.",
            tags=tags,
        ),
        dg.define_asset_job(
            CHECKS_JOB,
            dg.AssetSelection.checks_for_assets(main.tiles.key, main.manifest.key),
            description="The checks of tiles and scenes alone; computes nothing.",
        ),
    ]


@dg.definitions
def defs() -> dg.Definitions:
    """The location of the configuration that `TILEWRIGHT_CONFIG` names."""
    return build_defs()
