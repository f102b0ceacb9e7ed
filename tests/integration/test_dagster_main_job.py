"""The definitions of the main job over real scenes: arrivals, the window's run, its checks, and what follows by automation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from pipelines.arrivals_sensor import arrivals_tick
from pipelines.assembly import SCHEDULE, WatchedAssets
from pipelines.definitions import build_defs, parts_of
from pipelines.findings import UNITS_CHECK
from pipelines.reconciling_sensors import run_end_tick, tick
from resources.units import UnitState
from tests.support.tile_projects import WINDOW, TileProject

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in beta", "ignore:.*is currently in preview")
OUTPUTS = ("tile_catalogue", "window_report")


@dataclass
class Stand:
    """A project of scenes with its definitions and instance."""

    tiles: TileProject
    instance: dg.DagsterInstance
    arrivals_cursor: str | None = None

    @property
    def definitions(self) -> dg.Definitions:
        return build_defs(project=self.tiles.project)

    @property
    def main(self) -> WatchedAssets:
        return parts_of(self.tiles.project).watched

    def arrive(self) -> list[dg.RunRequest]:
        """One tick of the arrivals sensor."""
        main = self.main
        found = arrivals_tick(self.instance, self.tiles.project, main.units, main.manifest, cursor=self.arrivals_cursor)
        self.arrivals_cursor = found.cursor
        return list(found.run_requests or ())

    def execute(self, *requests: dg.RunRequest) -> list[dg.ExecuteInProcessResult]:
        """Execute run requests in turn."""
        return [
            self.definitions.resolve_job_def(request.job_name or "window_tiles").execute_in_process(
                instance=self.instance,
                tags=dict(request.tags),
                partition_key=request.partition_key,
                asset_selection=request.asset_selection,
                raise_on_error=False,
            )
            for request in requests
        ]


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    """A project without scenes yet."""
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        yield Stand(TileProject(tmp_path / "project"), instance)


def test_a_scene_wakes_its_window_and_what_follows_follows(stand: Stand) -> None:
    """A new scene wakes its window once; its run's checks pass; catalogue and report are asked for once, and again for a late
    scene.
    """
    assert stand.arrive() == []
    conditions = dg.evaluate_automation_conditions(defs=stand.definitions, instance=stand.instance)
    stand.tiles.add_scene("first")
    requests = stand.arrive()
    assert [request.tags["tilewright/batch_window"] for request in requests] == [WINDOW]
    (result,) = stand.execute(*requests)
    assert result.success
    checks = {item.check_name: item for item in result.get_asset_check_evaluations()}
    assert checks[UNITS_CHECK].passed
    assert checks[UNITS_CHECK].metadata["complete"].value == len(stand.tiles.rows(UnitState.COMPLETE)) > 0
    assert stand.arrive() == []

    def requested() -> set[str]:
        nonlocal conditions
        conditions = dg.evaluate_automation_conditions(defs=stand.definitions, instance=stand.instance, cursor=conditions.cursor)
        return {name for name in OUTPUTS if WINDOW in conditions.get_requested_partitions(dg.AssetKey([name]))}

    follows = requested()
    assert "tile_catalogue" in follows
    outputs = stand.definitions.resolve_job_def("window_outputs")
    assert outputs.execute_in_process(instance=stand.instance, partition_key=WINDOW).success
    assert requested() == set()
    stand.tiles.add_scene("late", column=128, columns=128, base=900)
    (result,) = stand.execute(*stand.arrive())
    assert result.success
    assert "tile_catalogue" in requested()


def test_the_schedule_runs_the_window_that_closed_in_one_request(stand: Stand) -> None:
    """The window schedule asks once for all tiles of the window that closed, and the run sees all of them."""
    stand.tiles.add_scene("first")
    schedule = stand.definitions.get_repository_def().get_schedule_def(SCHEDULE)
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    context = dg.build_schedule_context(instance=stand.instance, scheduled_execution_time=datetime(2026, 1, 2, 0, 30, tzinfo=UTC))
    found = schedule.evaluate_tick(context)
    requests = list(found.run_requests or ())
    assert len(requests) == 1
    (result,) = stand.execute(*requests)
    assert result.success
    main = stand.main
    names = [f"{WINDOW}|{name}" for name in stand.tiles.project.grid.partitions]
    shown = stand.instance.get_status_by_partition(main.units.key, names, main.units.partitions_def) or {}
    assert {status.value for status in shown.values() if status} == {"MATERIALIZED"}
    assert len(shown) == len(names)
    run = stand.tiles.project.ledger.run(result.run_id)
    assert run is not None
    assert list(run.partitions) == names


def test_an_output_deleted_behind_the_ledgers_back_is_found_and_made_again(stand: Stand) -> None:
    """The check-only job names the missing tile; the failed-partition sensor asks for its partition alone, which makes it
    again.
    """
    stand.tiles.add_scene("first")
    stand.execute(*stand.arrive())
    lost = stand.tiles.rows(UnitState.COMPLETE)[0]
    stand.tiles.project.store.remove(lost.output_uri)
    checked = stand.definitions.resolve_job_def("standing_checks").execute_in_process(
        instance=stand.instance, raise_on_error=False
    )
    found = [item for item in checked.get_asset_check_evaluations() if item.check_name == UNITS_CHECK and not item.passed]
    assert len(found) == 1
    assert lost.output_uri in str(found[0].description)
    decided = tick(stand.instance, stand.tiles.project, stand.main.units, cursor=None)
    assert [request.partition_key for request in decided.run_requests or ()] == [lost.partition]
    (result,) = stand.execute(*(decided.run_requests or ()))
    assert result.success
    assert stand.tiles.project.store.size(lost.output_uri) == lost.output_size


def test_every_asset_has_its_check_and_every_job_runs_in_process(stand: Stand) -> None:
    """Each asset has the reconciliation check, names of sensors and schedules are stable, and no step gets a process of its
    own.
    """
    repository = stand.definitions.get_repository_def()
    checks = {(key.asset_key.to_user_string(), key.name) for key in repository.asset_graph.asset_check_keys}
    assets = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
    assert assets == {"scene_manifest", "tiles", "tile_catalogue", "window_report"}
    assert {(name, UNITS_CHECK) for name in assets} <= checks
    assert {job.executor_def.name for job in repository.get_all_jobs()} == {"in_process"}
    running = {sensor.name for sensor in repository.sensor_defs if sensor.default_status is dg.DefaultSensorStatus.RUNNING}
    assert running == {
        "alerts",
        "automation",
        "dead_runs",
        "open_dead_letters",
        "run_end",
        *(f"failed_partitions_of_{name}" for name in assets),
    }


def test_a_manifest_that_a_run_of_tiles_wrote_is_checked_too(stand: Stand) -> None:
    """The run-end sensor evaluates the manifest's check for the window whose manifest a run of tiles wrote on the way."""
    stand.arrive()
    stand.tiles.add_scene("first")
    (result,) = stand.execute(*stand.arrive())
    assert result.success
    main = stand.main
    found = run_end_tick(stand.instance, stand.tiles.project, [main.units, main.manifest], cursor=None)
    evaluated = [event for event in found.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    assert [(event.asset_key.to_user_string(), event.check_name, event.passed) for event in evaluated] == [
        ("scene_manifest", UNITS_CHECK, True)
    ]
    assert evaluated[0].metadata["complete"].value == 1
