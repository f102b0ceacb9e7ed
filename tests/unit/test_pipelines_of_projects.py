"""One project file is of one pipeline: which sections it may have, which project opens, what its shape says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assets.pipeline_shape import shape_of
from resources.config import PIPELINES, Config, load_config
from resources.config_keys import configuration_keys
from resources.errors import ConfigurationError

MINIMAL = {
    "scenes": '[grid]\ntms = "WebMercatorQuad"\nzoom = 8\narea = "0,0,1,1"\n\n[[products]]\nname = "plain"\nbands = ["b1"]\n',
    "digitization": "",
    "inspections": "",
}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TILEWRIGHT_") and name != "TILEWRIGHT_CI"]:
        monkeypatch.delenv(name)


def load(folder: Path, pipeline: str, *, extra: str = "") -> Config:
    """The minimal configuration of a pipeline."""
    path = folder / "tilewright.toml"
    path.write_text(f'pipeline = "{pipeline}"\n{extra}\n[window]\nstart = 2026-01-01\n\n{MINIMAL[pipeline]}')
    return load_config(path)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_each_pipeline_loads_with_what_it_needs(pipeline: str, tmp_path: Path) -> None:
    """A window, and for scenes grid and products, suffice."""
    config = load(tmp_path, pipeline)
    assert config.pipeline == pipeline
    assert all(folder.parent == tmp_path for folder in config.input_dirs)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_shapes_name_distinct_assets(pipeline: str, tmp_path: Path) -> None:
    """No two assets of a pipeline share a name, and the names of its check and its sensor have its subject in them."""
    shape = shape_of(load(tmp_path, pipeline))
    names = [*shape.window_assets, *shape.more]
    assert len(set(names)) == len(names)
    assert shape.name == pipeline
    assert shape.left_out_check == f"no_{shape.subject}_left_out"
    assert shape.arrivals == f"{shape.subject}_arrivals"
    assert shape.plan_marker == f"{shape.units}.plan"


def test_a_file_without_the_key_is_of_scenes(tmp_path: Path) -> None:
    """Projects from before there were several pipelines go on as they are."""
    path = tmp_path / "tilewright.toml"
    path.write_text(f"[window]\nstart = 2026-01-01\n\n{MINIMAL['scenes']}")
    assert load_config(path).pipeline == "scenes"


def test_an_unknown_pipeline_is_refused_by_name(tmp_path: Path) -> None:
    """The message has the key, what was found and what is allowed, and nothing about sections of another pipeline."""
    path = tmp_path / "tilewright.toml"
    path.write_text('pipeline = "digitisation"\n[window]\nstart = 2026-01-01\n')
    with pytest.raises(ConfigurationError, match=r"pipeline: must be one of scenes, digitization, inspections") as caught:
        load_config(path)
    assert "'digitisation'" in str(caught.value)
    assert "grid" not in str(caught.value)


def test_sections_of_another_pipeline_are_refused(tmp_path: Path) -> None:
    """A grid in a project of masters is a mistake, and is said to be one."""
    path = tmp_path / "tilewright.toml"
    path.write_text(f'pipeline = "digitization"\n[window]\nstart = 2026-01-01\n\n{MINIMAL["scenes"]}')
    with pytest.raises(ConfigurationError, match="grid: no such key"):
        load_config(path)


def test_the_environment_decides_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`TILEWRIGHT_PIPELINE` overrides the key like any other."""
    monkeypatch.setenv("TILEWRIGHT_PIPELINE", "inspections")
    assert load(tmp_path, "digitization").pipeline == "inspections"


def test_reports_are_replayed_hourly_and_others_are_not(tmp_path: Path) -> None:
    """Replay is on and hourly for inspections; elsewhere it is off, and daily where a person switches it on."""
    found = {pipeline: load(tmp_path, pipeline) for pipeline in PIPELINES}
    assert {name: (config.replay_schedule, config.replay_every) for name, config in found.items()} == {
        "scenes": (False, "day"),
        "digitization": (False, "day"),
        "inspections": (True, "hour"),
    }


def test_keys_are_listed_once_or_for_the_pipeline_they_are_of() -> None:
    """What all share is listed once; a pipeline's own keys, and defaults it changes, name it."""
    keys = list(configuration_keys())
    places = [(key.pipeline, key.section, key.name) for key in keys]
    assert len(set(places)) == len(places)
    assert ("", "retry", "attempts_max") in places
    assert ("scenes", "grid", "zoom") in places
    assert ("inspections", "", "replay_every") in places
    assert ("scenes", "retry", "attempts_max") not in places
