"""Golden contents of window outputs: a change of what is written, without a new version in the key, fails here.

Contents are compared, not files: the Parquet, GeoPackage and PNG libraries put their own versions into bytes. When a change is
meant, raise the VERSION of the module and put the new digest here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pyarrow.parquet as pq
import pyogrio
import pytest
from shapely.geometry import box
from stac_geoparquet.arrow import stac_table_to_items

from assets import catalogue, report, tile_index, zones
from assets.grid import Grid
from assets.report import AbsentScene, ReportRequest
from assets.window_tiles import WindowTiles, window_tiles
from assets.zone_file import zone_file_digest
from resources.config_scenes import ZonesConfig
from resources.keys import digest_of
from resources.units import UnitState
from tests.support.windows import ORIGIN, PRODUCT, WINDOW, metric_grid, tile_row, write_tile

GOLDEN = {
    ("catalogue", "1"): "a219164cb5eb7060a93c9d5936e8a029cc1a3395b7294935b0bc083d14c6e5c8",
    ("tile_index", "1"): "029cb812e2e219d5b0bbc91788fda20f4faccb63d59fdb170e1c06b2e2d60ba9",
    ("zones", "1"): "ed4afc3ac8c81d62c0d1fa53f037bc8d200c405eae570d2943f8875824dbd994",
    ("report", "1"): "1f45952b2814d6570f74653752cf349e726253c9716fdf76940978529aff5ab1",
}


@pytest.fixture
def grid() -> Grid:
    """Six tiles."""
    return metric_grid()


@pytest.fixture
def tiles(tmp_path: Path, grid: Grid) -> WindowTiles:
    """Four tiles that exist, one quarantined, one waiting."""
    rows = [write_tile(tmp_path, grid, tile_row(tile), np.full((1, 16, 16), 5, "int16")) for tile in grid.tiles[:4]]
    rows.append(tile_row(grid.tiles[4], state=UnitState.QUARANTINED, error_kind="corrupt_input", reason="<b>block 3</b>"))
    rows.append(tile_row(grid.tiles[5], state=UnitState.PENDING))
    return window_tiles(rows, window=WINDOW, grid=grid)


def _catalogue(tmp_path: Path, tiles: WindowTiles, grid: Grid) -> object:
    unwritten = window_tiles([tile_row(tile) for tile in grid.tiles[:4]], window=WINDOW, grid=grid)
    both = WindowTiles(WINDOW, unwritten.complete, tiles.absent)
    request = catalogue.CatalogueRequest("k" * 64, catalogue.catalogue_uri(WINDOW.key), both, (PRODUCT,))
    catalogue.write_catalogue(request, tmp_path / "out")
    items = list(stac_table_to_items(pq.read_table(tmp_path / "out")))
    for item in items:
        item["properties"]["proj:wkt2"] = ""  # PROJ's own words
        item["bbox"] = [round(value, 7) for value in item["bbox"]]
        item["geometry"] = np.round(item["geometry"]["coordinates"], 7).tolist()
    return [items, catalogue.read_catalogue_facts(tmp_path / "out")]


def _tile_index(tmp_path: Path, tiles: WindowTiles, grid: Grid) -> object:
    request = tile_index.TileIndexRequest(
        unit_key="k" * 64,
        uri=tile_index.tile_index_uri(WINDOW.key, "plain"),
        tiles=tiles,
        product=PRODUCT,
        crs=grid.crs,
        resolution=grid.resolution,
        extent=tile_index.grid_extent(grid),
    )
    path = tmp_path / "out.gpkg"
    tile_index.write_tile_index(request, path)
    frame = pyogrio.read_dataframe(path, layer=tile_index.LAYER)
    metadata = pyogrio.read_info(path, layer=tile_index.LAYER)["layer_metadata"]
    return [frame.drop(columns="geometry").to_dict("list"), [shape.bounds for shape in frame.geometry], metadata]


def _zones(tmp_path: Path, tiles: WindowTiles, grid: Grid) -> object:
    left, top = ORIGIN
    path = tmp_path / "zones.gpkg"
    gpd.GeoDataFrame({"name": ["a"]}, geometry=[box(left + 5, top - 325, left + 325, top - 5)], crs=grid.crs).to_file(path)
    request = zones.ZonesRequest(
        unit_key="k" * 64,
        uri=zones.zone_statistics_uri(WINDOW.key),
        tiles=tiles,
        products=(("plain", ("b1",)),),
        zones=ZonesConfig(path=str(path), id_field="name"),
        zones_path=path,
        zones_digest=zone_file_digest(path),
        grid_crs=grid.crs,
        store_dir=tmp_path,
    )
    zones.write_zone_statistics(request, tmp_path / "out")
    table = pq.read_table(tmp_path / "out")
    rows = [
        {name: round(value, 9) if isinstance(value, float) else value for name, value in row.items() if name != "geometry"}
        for row in table.to_pylist()
    ]
    return [rows, json.loads(table.schema.metadata[zones.METADATA_KEY])]


def _report(tmp_path: Path, tiles: WindowTiles, grid: Grid) -> object:
    request = ReportRequest(
        unit_key="a" * 64,
        uri=report.report_uris(WINDOW.key)[0],
        tiles=WindowTiles(WINDOW, absent=tiles.absent),
        products=(PRODUCT,),
        places=grid.tiles,
        scenes=(AbsentScene("scene", "WAITING", "", "bands missing"),),
        links=(("catalogue", "tile_catalogue/w.parquet"),),
        store_dir=tmp_path,
    )
    report.write_report(request, tmp_path / "out")
    return (tmp_path / "out").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "module", "content"),
    [
        ("catalogue", catalogue, _catalogue),
        ("tile_index", tile_index, _tile_index),
        ("zones", zones, _zones),
        ("report", report, _report),
    ],
)
def test_contents_change_only_with_the_version(
    tmp_path: Path, tiles: WindowTiles, grid: Grid, name: str, module: Any, content: Any
) -> None:
    """What is written for a fixed window has the digest recorded for the module's version."""
    found = digest_of(content(tmp_path, tiles, grid))
    assert found == GOLDEN.get((name, module.VERSION)), f"{name}: contents differ from those of version {module.VERSION}"
