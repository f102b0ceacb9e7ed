"""docs/howto-landsat.md does what it says, with its own configurations, on real Landsat files."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import geopandas
import numpy as np
import pytest
import rasterio
import shapely
from affine import Affine

from assets.project import Project, open_project
from assets.tiles import TilesBatch
from assets.window_outputs import catalogue_batch, report_batch, zones_batch
from resources.units import UnitState

ROOT = Path(__file__).parents[2]
SCENES = ROOT.parent / "shared" / "data" / "scenes"
LANDSAT_8 = "LC08_L1TP_195025_20130707_20170503_01_T1"
LANDSAT_7 = "LE07_L1TP_195025_20010730_20170204_01_T1"
LANDSAT_5 = "LT05_L1TP_167055_20000309_20161214_01_T1"
WITHOUT_QA = "LT51670552010352MLK00"
CLOUD = 1 << 4
LINES_MOST = 30

pytestmark = pytest.mark.skipif(not SCENES.is_dir(), reason="needs ../shared/data/scenes")


def configurations() -> dict[str, str]:
    """The configurations of the page, by the folder that their first line names."""
    blocks = re.findall(
        r"```toml\n# (\w+)/tilewright\.toml\n(.*?)```", (ROOT / "docs" / "howto-landsat.md").read_text(), re.DOTALL
    )
    return dict(blocks)


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied files are as good as old."""
    monkeypatch.setenv("TILEWRIGHT_SOURCE__SETTLE_S", "0")


def laid_out(folder: Path, configuration: str, files: Iterator[Path]) -> Path:
    """A project's folder as the page says; returns its configuration."""
    (folder / "scenes").mkdir(parents=True)
    for file in files:
        shutil.copyfile(file, folder / "scenes" / file.name)
    (folder / "tilewright.toml").write_text(configuration)
    return folder / "tilewright.toml"


def computed(path: Path) -> Project:
    """Every window's tiles and what is made of them."""
    project = open_project(path)
    windows = [window.key for window in project.calendar.windows(project.ledger.clock())]
    names = [f"{window}|{tile}" for window in windows for tile in project.grid.partitions]
    project.engine(inline=True).run(TilesBatch(project, names, run_id="tiles"), run_id=str(uuid4()))
    rows = list(project.ledger.planned("tiles", names))
    has_zones = project.config.zones is not None
    for batch in (catalogue_batch, zones_batch, report_batch) if has_zones else (catalogue_batch, report_batch):
        project.engine(inline=True).run(batch(project, windows, rows), run_id=str(uuid4()))
    return project


def all_complete(project: Project) -> set[str]:
    """Asserts that every planned unit is complete; returns the windows that hold any."""
    rows = list(project.ledger.units())
    assert rows
    assert {row.state for row in rows} == {UnitState.COMPLETE}
    return {row.window for row in rows if row.asset == "tiles"}


def mosaic(project: Project, product: str, window: str, like: Path) -> np.ma.MaskedArray:
    """The product's tiles on the pixels of the raster `like`, `(band, y, x)`, masked where absent; they must coincide."""
    with rasterio.open(like) as source:
        shape, place = source.shape, source.transform
    canvas = None
    for row in project.ledger.units(asset="tiles", product=product, window=window, state=UnitState.COMPLETE):
        with rasterio.open(project.config.store_dir / row.output_uri) as tile:
            pixels = tile.read(masked=True)
            right, down = (tile.transform.c - place.c) / place.a, (tile.transform.f - place.f) / place.e
        if np.issubdtype(pixels.dtype, np.floating):
            pixels = np.ma.masked_invalid(pixels)
        assert abs(right - round(right)) < 1e-3
        assert abs(down - round(down)) < 1e-3
        if canvas is None:
            canvas = np.ma.masked_all((len(pixels), *shape), dtype=pixels.dtype)
        _paste(canvas, pixels, top=round(down), left=round(right))
    assert canvas is not None
    return canvas


def _paste(canvas: np.ma.MaskedArray, pixels: np.ma.MaskedArray, *, top: int, left: int) -> None:
    """Lay `pixels` onto `canvas`; nothing valid may lie outside of it."""
    height, width = pixels.shape[1:]
    rows = slice(max(top, 0), min(top + height, canvas.shape[1]))
    columns = slice(max(left, 0), min(left + width, canvas.shape[2]))
    inner = pixels[:, rows.start - top : rows.stop - top, columns.start - left : columns.stop - left]
    assert inner.count() == pixels.count()
    canvas[:, rows, columns] = inner


def bands(scene: str, *names: str, folder: Path) -> tuple[np.ndarray, ...]:
    """Bands of a scene in float64, each from its own file."""
    found = []
    for name in names:
        (path,) = [*folder.glob(f"{scene}_{name}.TIF"), *folder.glob(f"{scene}_{name}.tif")]
        with rasterio.open(path) as file:
            found.append(file.read(1).astype(np.float64))
    return tuple(found)


def as_bytes(*values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(np.stack(values)), 0, 255).astype(np.uint8)


def cloudy(path: Path) -> np.ndarray:
    """Flag a cloud in a QA band (those of the shared scenes flag none); returns where."""
    with rasterio.open(path) as file:
        quality, profile = file.read(1), file.profile
    assert not (quality & CLOUD).any()
    y, x = np.indices(quality.shape)
    cloud = (y - 15) ** 2 + (x - 20) ** 2 < 60
    with rasterio.open(path, "w", **profile) as file:
        file.write(np.where(cloud, quality | CLOUD, quality).astype(quality.dtype), 1)
    return cloud


def test_the_configurations_are_short() -> None:
    """None of the page's configurations has more than 30 lines."""
    found = configurations()
    assert set(found) == {"landsat8", "landsat5", "olinda"}
    assert max(len(text.splitlines()) for text in found.values()) <= LINES_MOST


def test_landsat_8_through_the_command_line(tmp_path: Path) -> None:
    """`tilewright run` makes true colour and NDVI that are the closed form of the source's bands, and clouds are absent."""
    path = laid_out(tmp_path, configurations()["landsat8"], (SCENES / "landsat_195025").glob("LC08*"))
    scenes = tmp_path / "scenes"
    cloud = cloudy(scenes / f"{LANDSAT_8}_BQA.TIF")
    outer = {name: value for name, value in os.environ.items() if not name.startswith("DAGSTER_")}
    command = [sys.executable, "-m", "pipelines.cli", "run", "--json", "--config", str(path)]
    done = subprocess.run(command, cwd=ROOT, env=outer, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (facts,) = json.loads(done.stdout)["windows"]
    assert facts["complete"] == facts["planned"] > 0

    project = open_project(path)
    assert all_complete(project) == {"2013-07"}
    red, green, blue, near = bands(LANDSAT_8, "B4", "B3", "B2", "B5", folder=scenes)
    like = scenes / f"{LANDSAT_8}_B4.TIF"
    ndvi = mosaic(project, "ndvi", "2013-07", like)[0]
    assert (ndvi.mask == cloud).all()
    assert -0.2 < ndvi.min() < ndvi.max() < 1
    np.testing.assert_allclose(ndvi[~cloud], ((near - red) / (near + red - 10_000))[~cloud], rtol=1e-6)
    colour = mosaic(project, "true_colour", "2013-07", like)
    assert (colour.mask == cloud).all()
    expected = as_bytes((red - 6000) / 24, (green - 7100) / 24, (blue - 8300) / 24)
    assert (colour[:, ~cloud] == expected[:, ~cloud]).all()


def test_landsat_5_in_two_naming_schemes(tmp_path: Path) -> None:
    """The scene with a QA band is used, the older one is said to wait for it; without masks both years are made."""
    folder = SCENES / "landsat_167055"
    text = configurations()["landsat5"]
    masked = computed(laid_out(tmp_path / "masked", text, folder.iterdir()))
    assert all_complete(masked) == {"2000"}
    command = [sys.executable, "-m", "pipelines.cli", "plan", "--json", "--config", str(masked.config.path)]
    plan = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    verdicts = {item["name"]: (item["verdict"], item["reason"]) for item in plan["left_out"]}
    assert set(verdicts) == {WITHOUT_QA}, "MTL files are ignored"
    assert verdicts[WITHOUT_QA][0] == "WAITING"
    assert "BQA" in verdicts[WITHOUT_QA][1]

    (tmp_path / "unmasked").mkdir()
    unmasked = re.sub(r"^masks.*\n", "", text, flags=re.MULTILINE).replace('"scenes"', '"../masked/scenes"')
    (tmp_path / "unmasked" / "tilewright.toml").write_text(unmasked)
    both = computed(tmp_path / "unmasked" / "tilewright.toml")
    assert all_complete(both) == {"2000", "2010"}
    for project, scene, window, extension in (
        (masked, LANDSAT_5, "2000", "TIF"),
        (both, LANDSAT_5, "2000", "TIF"),
        (both, WITHOUT_QA, "2010", "tif"),
    ):
        blue, green, red, near = bands(scene, "B1", "B2", "B3", "B4", folder=folder)
        like = folder / f"{scene}_B3.{extension}"
        ndvi = mosaic(project, "ndvi", window, like)[0]
        assert ndvi.count() == red.size
        # as reflectances, with the numbers of the MTL file of the scene of 2000
        near_share, red_share = 2.6270e-3 * near - 0.007155, 2.1704e-3 * red - 0.004603
        np.testing.assert_allclose(ndvi, (near_share - red_share) / (near_share + red_share), rtol=2e-5, atol=1e-6)
        assert -0.5 < ndvi.min() < ndvi.max() < 0.9
        colour = mosaic(project, "true_colour", window, like)
        assert (colour == as_bytes((red - 20) * 4, (green - 15) * 5, (blue - 48) * 4)).all()


def test_landsat_7_needs_other_numbers_only(tmp_path: Path) -> None:
    """The configuration of Landsat 5 serves Landsat 7 in another UTM zone with the four lines that the page gives."""
    folder = SCENES / "landsat_195025"
    text = configurations()["landsat5"]
    page = (ROOT / "docs" / "howto-landsat.md").read_text()
    (changes,) = re.findall(r"```toml\n# landsat7/tilewright\.toml, in order\n(.*?)```", page, re.DOTALL)
    for line in changes.splitlines():
        key = line.split(" = ")[0]
        text, number = re.subn(rf"^{key} = (?!.*#done).*$", f"{line}  #done", text, count=1, flags=re.MULTILINE)
        assert number == 1
    project = computed(laid_out(tmp_path, text, folder.glob("LE07*")))
    assert all_complete(project) == {"2001"}
    red, green, blue, near = bands(LANDSAT_7, "B3", "B2", "B1", "B4", folder=folder)
    like = folder / f"{LANDSAT_7}_B3.TIF"
    assert (mosaic(project, "true_colour", "2001", like) == as_bytes((red - 30) * 3, (green - 42) * 3, (blue - 64) * 3)).all()
    # as reflectances, with the numbers of its MTL file
    near_share, red_share = 2.9302e-3 * near - 0.018348, 1.3198e-3 * red - 0.011935
    ndvi = mosaic(project, "ndvi", "2001", like)[0]
    np.testing.assert_allclose(ndvi, (near_share - red_share) / (near_share + red_share), rtol=2e-5, atol=1e-6)


def test_olinda_has_statistics_over_its_polygons(tmp_path: Path) -> None:
    """Statistics equal those of shapely's areas of pixels under each polygon, over values taken from the source's bands."""
    folder = SCENES / "landsat_olinda"
    path = laid_out(tmp_path, configurations()["olinda"], iter(()))
    shutil.copyfile(folder / "L7_ETMs.tif", tmp_path / "scenes" / "olinda_20000101.tif")
    for file in folder.glob("olinda1.*"):
        shutil.copyfile(file, tmp_path / file.name)
    project = computed(path)
    assert all_complete(project) == {"2000"}

    with rasterio.open(folder / "L7_ETMs.tif") as file:
        blue, green, red, near = (file.read(band).astype(np.float64) for band in (1, 2, 3, 4))
        place = file.transform
    ndvi = ((near - red) / (near + red)).astype(np.float32)
    stretched = as_bytes(*((band - 20) * 2.55 for band in (red, green, blue)))
    made = mosaic(project, "ndvi", "2000", folder / "L7_ETMs.tif")[0]
    assert (made.compressed() == ndvi[~made.mask]).all()
    colour = mosaic(project, "true_colour", "2000", folder / "L7_ETMs.tif")
    assert (colour.filled(0) == np.where(colour.mask, 0, stretched)).all()

    polygons = geopandas.read_file(tmp_path / "olinda1.shp").set_index("CD_GEOCODI")
    # straight edges in degrees are curves on the grid: a vertex every metre or so
    polygons = polygons.set_geometry(polygons.geometry.segmentize(1e-5)).to_crs("EPSG:31985")
    statistics = geopandas.read_parquet(tmp_path / "outputs" / "zone_statistics" / "2000.parquet").set_index("zone_id")
    assert len(statistics) == 4 * len(polygons)
    assert statistics[statistics["product"] == "ndvi"]["min"].min() >= -1
    for band, values in enumerate((*stretched.astype(np.float64), ndvi.astype(np.float64))):
        chosen = statistics[(statistics["product"] == "ndvi") if band == 3 else (statistics["band_name"] == f"B{3 - band}")]
        wanted = np.array([weighed(polygons.geometry[zone], values, place) for zone in chosen.index])
        found = chosen[["count", "mean", "min", "max", "covered_share"]].to_numpy(dtype=np.float64)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def weighed(polygon: shapely.Geometry, values: np.ndarray, place: Affine) -> tuple[float, ...]:
    """Count, mean, min, max and covered share of `values` `(y, x)` under a polygon, from the areas it shares with pixels."""
    left, bottom, right, top = polygon.bounds
    first_x, last_x = max(int((left - place.c) / place.a), 0), int((right - place.c) / place.a)
    first_y, last_y = max(int((top - place.f) / place.e), 0), int((bottom - place.f) / place.e)
    y, x = np.mgrid[first_y : min(last_y + 1, values.shape[0]), first_x : min(last_x + 1, values.shape[1])]
    west, north = place.c + x * place.a, place.f + y * place.e
    squares = shapely.box(west, north + place.e, west + place.a, north)
    shares = shapely.area(shapely.intersection(squares, polygon)) / abs(place.a * place.e)
    touched = shares > 0
    under = values[y, x][touched]
    weights = shares[touched]
    count = weights.sum()
    return count, (under * weights).sum() / count, under.min(), under.max(), count * abs(place.a * place.e) / polygon.area
