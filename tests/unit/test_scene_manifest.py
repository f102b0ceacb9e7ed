"""The scene manifest: a table of scenes that comes back as it was, in equal bytes."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path

import geopandas as gpd
import numpy as np
import pyarrow.parquet as pq
import pytest

from assets.scenes.manifest import COLUMNS, manifest_frame, read_manifest, scenes_from_frame, validate_manifest, write_manifest
from assets.scenes.model import Scene, SceneVerdict
from resources.errors import ErrorKind, UnitRejected
from tests.support.sources import AT_180, look, source_config, write_raster

KEY = "ab" * 32


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scene, ...]:
    """One scene of most verdicts, with odd nodata, an odd name and a footprint at 180 degrees."""
    root = tmp_path_factory.mktemp("source")
    folder = root / "scenes"
    write_raster(folder / "good_20200101.tif", np.ones((2, 8, 8), "float32"), nodata=float("nan"))
    write_raster(folder / "pacific_20200102.tif", crs="EPSG:32660", place=AT_180)
    write_raster(folder / "new\nline_20200103.tif", nodata=3)
    (folder / "bad_20200104.tif").write_bytes(b"")
    write_raster(folder / "undated_20200230.tif")
    write_raster(folder / "old_19990101.tif")
    return look(source_config(root)).scenes


def test_scenes_come_back_as_they_were(scenes: tuple[Scene, ...], tmp_path: Path) -> None:
    """Every field of every scene, footprint and NaN nodata included, survives the frame and the file."""
    path = tmp_path / "manifest.parquet"
    metrics = write_manifest(scenes, KEY, path)
    assert metrics == {
        "scenes": 6,
        "verdicts": {"ACCEPTED": 3, "BEFORE_FIRST_WINDOW": 1, "REJECTED": 1, "UNDATED": 1},
    }
    for found in (scenes_from_frame(manifest_frame(scenes)), read_manifest(path)):
        assert [plain(scene) for scene in found] == [plain(scene) for scene in scenes]


def plain(scene: Scene) -> str:
    return str(scene.to_json())


def test_scenes_travel(scenes: tuple[Scene, ...]) -> None:
    """Scenes survive pickling and JSON, so that workers and the ledger can hold them."""
    for scene in scenes:
        assert plain(pickle.loads(pickle.dumps(scene))) == plain(scene)
        assert plain(Scene.from_json(scene.to_json())) == plain(scene)


def test_the_manifest_is_geoparquet_that_others_read(scenes: tuple[Scene, ...], tmp_path: Path) -> None:
    """GeoPandas opens it with its columns, times in UTC, and footprints in WGS 84."""
    path = tmp_path / "manifest.parquet"
    write_manifest(scenes, KEY, path)
    frame = gpd.read_parquet(path)
    assert tuple(frame.columns) == (*COLUMNS, "geometry")
    assert frame.crs.to_authority() == ("OGC", "CRS84")
    assert list(frame["scene_id"]) == sorted(frame["scene_id"])
    row = frame.set_index("scene_id").loc["good_20200101"]
    assert row["acquired"] == datetime(2020, 1, 1, tzinfo=UTC)
    assert (row["dtype"], row["nodata"], row["verdict"], row["window"]) == ("float32", "nan", "ACCEPTED", "2020-01")
    assert b"ab" * 32 in pq.read_schema(path).metadata[b"tilewright"]


def test_equal_scenes_give_equal_bytes(scenes: tuple[Scene, ...], tmp_path: Path) -> None:
    """The order in which scenes are given, and the time of writing, leave no trace in the file."""
    first, second = tmp_path / "first", tmp_path / "second"
    write_manifest(scenes, KEY, first)
    write_manifest(tuple(reversed(scenes)), KEY, second)
    assert first.read_bytes() == second.read_bytes()


def test_an_empty_window_has_a_manifest_too(tmp_path: Path) -> None:
    """A window without scenes has a manifest without rows, with the same columns."""
    path = tmp_path / "manifest.parquet"
    assert write_manifest((), KEY, path) == {"scenes": 0, "verdicts": {}}
    validate_manifest(KEY, path)
    assert read_manifest(path) == []
    assert tuple(gpd.read_parquet(path).columns) == (*COLUMNS, "geometry")


def test_a_manifest_that_is_not_the_planned_one_is_refused(scenes: tuple[Scene, ...], tmp_path: Path) -> None:
    """A staged manifest with another key, or one cut short, is refused before it is promoted."""
    path = tmp_path / "manifest.parquet"
    write_manifest(scenes, KEY, path)
    validate_manifest(KEY, path)
    with pytest.raises(UnitRejected, match="unit_key") as caught:
        validate_manifest("cd" * 32, path)
    assert caught.value.kind is ErrorKind.INVALID_OUTPUT
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UnitRejected, match="cannot be read back"):
        validate_manifest(KEY, path)


def test_rejections_are_in_the_table(scenes: tuple[Scene, ...]) -> None:
    """The manifest says of each scene that is not used why not."""
    frame = manifest_frame(scenes).set_index("scene_id")
    assert frame.loc["bad_20200104", "kind"] == "empty_file"
    assert "found an empty file" in frame.loc["bad_20200104", "reason"]
    assert frame.loc["bad_20200104", "geometry"] is None
    assert {scene.verdict for scene in scenes} >= {SceneVerdict.UNDATED, SceneVerdict.BEFORE_FIRST_WINDOW}
