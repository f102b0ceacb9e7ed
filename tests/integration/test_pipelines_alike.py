"""Every pipeline's definitions: the same jobs, schedules, sensors and checks, told apart by names alone."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from assets.pipeline_shape import PipelineShape, shape_of
from pipelines.definitions import build_defs
from resources.config import load_config

pytestmark = pytest.mark.filterwarnings("ignore:.*is currently in beta", "ignore:.*is currently in preview")
SCENES = '[grid]\ntms = "WebMercatorQuad"\nzoom = 8\narea = "0,0,1,1"\n\n[[products]]\nname = "plain"\nbands = ["b1"]\n'
PROJECTS = {"scenes": SCENES, "digitization": "", "inspections": ""}


def loaded(folder: Path, pipeline: str) -> tuple[PipelineShape, dg.Definitions]:
    """The definitions of a project with little more than a window."""
    for name in ("scenes", "masters", "reports"):
        (folder / name).mkdir()
    path = folder / "tilewright.toml"
    path.write_text(
        f'pipeline = "{pipeline}"\n\n[window]\nstart = 2026-01-01\nend = 2026-01-04\n\n[alerts]\nletter_deadline_hours = 48\n\n'
        + PROJECTS[pipeline]
    )
    definitions = build_defs(path)
    dg.Definitions.validate_loadable(definitions)
    return shape_of(load_config(path)), definitions


@pytest.mark.parametrize("pipeline", PROJECTS)
def test_every_pipeline_gets_the_same(pipeline: str, tmp_path: Path) -> None:
    """Each watched asset has its check and its sensor, and the pipeline has the standing checks, jobs, schedules and sensors."""
    shape, definitions = loaded(tmp_path, pipeline)
    repository = definitions.get_repository_def()
    graph = repository.asset_graph
    watched = {*shape.window_assets, *shape.more}
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} == watched
    assert {graph.get(key).group_name for key in graph.get_all_asset_keys()} == {shape.group}
    checks = {(key.asset_key.to_user_string(), key.name) for key in graph.asset_check_keys}
    assert checks >= {(name, "completed_units_match_outputs") for name in watched}
    assert checks >= {(shape.units, "no_open_dead_letters"), (shape.units, "no_overdue_dead_letter")}
    assert (shape.manifest, shape.left_out_check) in checks
    assert {sensor.name for sensor in repository.sensor_defs} >= {
        *(f"failed_partitions_of_{name}" for name in watched),
        *("run_end", "dead_runs", "open_dead_letters", shape.arrivals, "source_recovery", "alerts", "automation"),
    }
    assert {schedule.name for schedule in repository.schedule_defs} >= {
        *("windows", "nightly_sweep", "weekly_deep_verification"),
        "hourly_replay" if pipeline == "inspections" else "daily_replay",
    }
    assert {job.name for job in repository.get_all_jobs()} >= {
        *(shape.units_job, "window_manifest", "window_outputs", "standing_checks"),
        *("sweep", "deep_verification", "replay_exhausted_retries"),
    }


@pytest.mark.parametrize("pipeline", PROJECTS)
def test_what_is_made_of_a_window_runs_after_each_attempt(pipeline: str, tmp_path: Path) -> None:
    """All outputs of a window, and nothing else, are run by automation, under one condition for every pipeline."""
    shape, definitions = loaded(tmp_path, pipeline)
    graph = definitions.get_repository_def().asset_graph
    conditions = {
        key.to_user_string(): graph.get(key).automation_condition
        for key in graph.get_all_asset_keys()
        if graph.get(key).automation_condition is not None
    }
    assert set(conditions) == set(shape.outputs)
    assert {condition.get_label() for condition in conditions.values() if condition is not None} == {"after_attempt"}
