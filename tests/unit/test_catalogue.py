"""The window's catalogue and its tile indexes: read by the tools they are made for."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import geopandas as gpd
import numpy as np
import pyarrow.parquet as pq
import pystac
import pytest
import shapely
from stac_geoparquet.arrow import stac_table_to_items

from assets.catalogue import (
    CatalogueRequest,
    catalogue_ingredients,
    catalogue_uri,
    footprint,
    read_catalogue_facts,
    validate_catalogue,
    write_catalogue,
)
from assets.grid import Grid, Tile, TileBox
from assets.tile_index import (
    TileIndexRequest,
    grid_extent,
    tile_index_ingredients,
    tile_index_uri,
    validate_tile_index,
    write_tile_index,
)
from assets.window_tiles import window_tiles
from resources.config_scenes import GridConfig, ProductConfig
from resources.errors import ErrorKind, UnitRejected
from resources.keys import unit_key
from resources.units import UnitState
from tests.support.windows import PRODUCT, WINDOW, Row, metric_grid, tile_row, write_tile


def _request(rows: list[Row], products: tuple[ProductConfig, ...] = (PRODUCT,)) -> CatalogueRequest:
    grid = metric_grid()
    tiles = window_tiles(rows, window=WINDOW, grid=grid)
    key = unit_key(**catalogue_ingredients(tiles, products, grid.settings()))
    return CatalogueRequest(unit_key=key, uri=catalogue_uri(WINDOW.key), tiles=tiles, products=products)


def _written(request: CatalogueRequest, store: Path) -> Path:
    path = store / request.uri
    path.parent.mkdir(parents=True, exist_ok=True)
    write_catalogue(request, path)
    validate_catalogue(request, path)
    return path


def _index_request(rows: list[Row], product: ProductConfig = PRODUCT) -> TileIndexRequest:
    grid = metric_grid()
    tiles = window_tiles(rows, window=WINDOW, grid=grid).of_product(product.name)
    key = unit_key(**tile_index_ingredients(tiles, product, grid.settings(), grid_extent(grid)))
    return TileIndexRequest(
        unit_key=key,
        uri=tile_index_uri(WINDOW.key, product.name),
        tiles=tiles,
        product=product,
        crs=grid.crs,
        resolution=grid.resolution,
        extent=grid_extent(grid),
    )


def _written_index(request: TileIndexRequest, store: Path) -> Path:
    path = store / request.uri
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tile_index(request, path)
    validate_tile_index(request, path)
    return path


def test_items_read_by_stac_tools_lead_to_the_tile_files(tmp_path: Path) -> None:
    """stac-geoparquet and pystac give valid items whose hrefs, made absolute, are the tile files."""
    grid = metric_grid()
    rows = [write_tile(tmp_path, grid, tile_row(tile), np.full((1, 16, 16), 7, "int16")) for tile in grid.tiles[:2]]
    path = _written(_request(rows), tmp_path)
    items = [pystac.Item.from_dict(item) for item in stac_table_to_items(pq.read_table(path))]
    assert [item.properties["tilewright:unit_key"] for item in items] == [row.key for row in rows]
    for item, row in zip(items, rows, strict=True):
        item.set_self_href(str(path.with_suffix(".json")))
        item.make_asset_hrefs_absolute()
        assert Path(item.assets["data"].href) == tmp_path / row.output_uri
        assert item.datetime == datetime(2024, 5, 1, tzinfo=UTC)
        assert item.properties["tilewright:source_scenes"] == ["scene-a", "scene-b"]
        assert item.properties["proj:shape"] == [16, 16]
        assert item.properties["proj:transform"][0] == 10.0
        assert item.assets["data"].extra_fields["file:checksum"] == "1220" + str(row.output_digest)
        assert item.bbox is not None
        assert shapely.box(*item.bbox).buffer(1e-9).contains(shapely.geometry.shape(item.geometry))
    assert len({item.id for item in items}) == 2


def test_geopandas_reads_geometry_in_wgs84(tmp_path: Path) -> None:
    """geopandas opens the catalogue with its CRS, and the footprints lie where the grid says."""
    grid = metric_grid()
    frame = gpd.read_parquet(_written(_request([tile_row(tile) for tile in grid.tiles]), tmp_path))
    assert frame.crs.equals("OGC:CRS84", ignore_axis_order=True)
    assert len(frame) == len(grid.tiles)
    back = frame.to_crs(grid.crs).geometry.iloc[0].bounds
    assert back == pytest.approx(grid.box(grid.tiles[0]).bounds, abs=1e-3)


def test_equal_tiles_give_equal_bytes_in_any_order_of_rows(tmp_path: Path) -> None:
    """The order in which the ledger gives rows, and where the store lies, change neither key nor bytes."""
    rows = [tile_row(tile) for tile in metric_grid().tiles]
    one, other = _request(rows), _request(rows[::-1])
    assert one.unit_key == other.unit_key
    assert _written(one, tmp_path / "here").read_bytes() == _written(other, tmp_path / "there").read_bytes()


def test_empty_window_has_a_catalogue_with_the_same_columns(tmp_path: Path) -> None:
    """A window without tiles gives a readable catalogue without rows, with the columns of every other one."""
    empty = _written(_request([]), tmp_path / "empty")
    full = _written(_request([tile_row(tile) for tile in metric_grid().tiles]), tmp_path / "full")
    assert pq.read_schema(empty) == pq.read_schema(full)
    assert len(gpd.read_parquet(empty)) == 0
    assert list(stac_table_to_items(pq.read_table(empty))) == []


def test_columns_do_not_depend_on_what_is_unknown(tmp_path: Path) -> None:
    """A tile without one valid pixel (no statistics) leaves the schema as it is."""
    first = metric_grid().tiles[0]
    bare = tile_row(first, metrics={"valid_share": 0.0, "bands": [{"min": None, "max": float("nan")}]})
    assert pq.read_schema(_written(_request([bare]), tmp_path / "a")) == pq.read_schema(
        _written(_request([tile_row(first)]), tmp_path / "b")
    )


def test_catalogue_says_what_is_absent_and_why(tmp_path: Path) -> None:
    """Quarantined, failed and waiting tiles are counted by reason; running counts as waiting, superseded not at all."""
    tiles = metric_grid().tiles
    rows = [
        tile_row(tiles[0]),
        tile_row(tiles[1], state=UnitState.QUARANTINED, error_kind="corrupt_input", reason="block 3 cannot be decoded"),
        tile_row(tiles[2], state=UnitState.RUNNING),
        tile_row(tiles[3], state=UnitState.SUPERSEDED),
    ]
    facts = read_catalogue_facts(_written(_request(rows), tmp_path))
    assert facts["tiles"] == 1
    assert facts["absent"]["by"] == [
        {"product": "plain", "state": "PENDING", "kind": "", "count": 1},
        {"product": "plain", "state": "QUARANTINED", "kind": "corrupt_input", "count": 1},
    ]
    assert facts["absent"]["listed"][0]["reason"] == "block 3 cannot be decoded"


@pytest.mark.parametrize(
    "change",
    [{"output_digest": "0" * 64}, {"state": UnitState.QUARANTINED, "error_kind": "unreadable"}, {"state": UnitState.SUPERSEDED}],
)
def test_key_follows_what_the_catalogue_says(change: dict[str, object]) -> None:
    """Another digest, a tile that went absent and one that left the plan each give another key."""
    tiles = metric_grid().tiles
    assert _request([tile_row(tiles[0])]).unit_key != _request([tile_row(tiles[0], **change)]).unit_key


def test_renamed_scene_changes_the_catalogue_and_no_index() -> None:
    """A scene under another name leaves a tile's key and digest; the catalogue names scenes and is written again."""
    tile = metric_grid().tiles[0]
    rows = [tile_row(tile, metrics={"scenes_used": [0]}, spec={"scenes": [name, "unused"]}) for name in ("before", "after")]
    one, other = (_request([row]) for row in rows)
    assert one.tiles.complete[0].scenes == ("before",)
    assert one.unit_key != other.unit_key
    assert _index_request(rows[:1]).unit_key == _index_request(rows[1:]).unit_key


def test_key_is_blind_to_a_unit_being_run() -> None:
    """PENDING and RUNNING give one key: a wake-up in the middle of a run redoes nothing."""
    tile = metric_grid().tiles[0]
    keys = {_request([tile_row(tile, state=state)]).unit_key for state in (UnitState.PENDING, UnitState.RUNNING)}
    assert len(keys) == 1


@pytest.mark.parametrize("kept", [0, 10, 1_000])
def test_truncated_catalogue_is_refused(tmp_path: Path, kept: int) -> None:
    """A catalogue that lost its end is not valid output."""
    request = _request([tile_row(tile) for tile in metric_grid().tiles])
    path = _written(request, tmp_path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UnitRejected) as caught:
        validate_catalogue(request, path)
    assert caught.value.kind is ErrorKind.INVALID_OUTPUT


def test_catalogue_of_other_tiles_is_refused(tmp_path: Path) -> None:
    """A whole file that holds other tiles than planned is not valid output."""
    tiles = metric_grid().tiles
    path = _written(_request([tile_row(tiles[0])]), tmp_path)
    with pytest.raises(UnitRejected, match="expected 2 tiles"):
        validate_catalogue(_request([tile_row(tiles[0]), tile_row(tiles[1])]), path)


def test_footprint_over_the_antimeridian_is_split() -> None:
    """A tile of UTM 60 that crosses 180 degrees has two parts, none of them around the world."""
    shape = footprint(TileBox(crs="EPSG:32660", bounds=(800_000.0, 0.0, 900_000.0, 100_000.0), shape=(16, 16)))
    assert shape.geom_type == "MultiPolygon"
    assert all(part.bounds[2] - part.bounds[0] < 1 for part in shape.geoms)


def test_footprint_that_ends_at_the_antimeridian_stays_whole() -> None:
    """A tile whose edge is 180 degrees is not split."""
    shape = footprint(TileBox(crs="EPSG:4326", bounds=(170.0, 0.0, 180.0, 10.0), shape=(16, 16)))
    assert shape.geom_type == "Polygon"
    assert shape.bounds == pytest.approx((170.0, 0.0, 180.0, 10.0))


_OPEN = """
import json, sys, rasterio
with rasterio.open(sys.argv[1]) as mosaic:
    pixels = mosaic.read(masked=True)
    facts = [mosaic.driver, list(mosaic.shape), mosaic.count, list(mosaic.bounds), str(mosaic.crs)]
    print(json.dumps([*facts, pixels.filled(200).astype(int).tolist()]))
"""


def _open_elsewhere(path: Path, cwd: Path) -> list[object]:
    """Open a raster in a process of its own, from another folder, with GDAL as it comes."""
    done = subprocess.run([sys.executable, "-c", _OPEN, str(path)], capture_output=True, text=True, check=True, cwd=cwd)
    return list(json.loads(done.stdout))


def test_tile_index_opens_as_one_mosaic(tmp_path: Path) -> None:
    """GDAL's tile index driver shows the whole window as one raster: tiles at their places, nothing where a tile is absent."""
    grid = metric_grid()
    store = tmp_path / "store"
    rows = [
        write_tile(store, grid, tile_row(tile), np.full((1, 16, 16), number, "int16"))
        for number, tile in enumerate(grid.tiles[:-1])
    ]
    rows.append(tile_row(grid.tiles[-1], state=UnitState.QUARANTINED))
    path = _written_index(_index_request(rows), store)
    moved = tmp_path / "moved"
    store.rename(moved)
    driver, shape, count, bounds, crs, pixels = _open_elsewhere(moved / path.relative_to(store), tmp_path)
    assert (driver, shape, count, crs) == ("GTI", [32, 48], 1, "EPSG:32632")
    assert bounds == list(grid_extent(grid))
    mosaic = np.array(pixels)[0]
    for number, tile in enumerate(grid.tiles):
        expected = number if number < len(grid.tiles) - 1 else 200
        row, column = (tile.y - grid.tiles[0].y) * 16, (tile.x - grid.tiles[0].x) * 16
        assert set(np.unique(mosaic[row : row + 16, column : column + 16]).tolist()) == {expected}


def test_tile_index_honours_masks(tmp_path: Path) -> None:
    """A product without nodata keeps its tiles' masks in the mosaic."""
    grid = metric_grid()
    product = ProductConfig(name="rgb", bands=("r", "g", "b"), dtype="uint8")
    mask = np.full((16, 16), 255, "uint8")
    mask[:, :8] = 0
    row = tile_row(grid.tiles[0], product="rgb")
    row = write_tile(tmp_path, grid, row, np.full((3, 16, 16), 50, "uint8"), nodata=None, mask=mask)
    path = _written_index(_index_request([row], product), tmp_path)
    _, _, count, _, _, pixels = _open_elsewhere(path, tmp_path)
    assert count == 3
    first = np.array(pixels)[0]
    assert set(np.unique(first[:16, :8]).tolist()) == {200}
    assert set(np.unique(first[:16, 8:16]).tolist()) == {50}
    assert (first == 50).sum() == 8 * 16


def test_requests_travel_to_workers(tmp_path: Path) -> None:
    """Requests survive pickling whole, and what a pickled request writes is equal."""
    rows = [tile_row(tile) for tile in metric_grid().tiles]
    catalogue, index = _request(rows), _index_request(rows)
    sent_catalogue, sent_index = pickle.loads(pickle.dumps((catalogue, index)))
    assert (sent_catalogue, sent_index) == (catalogue, index)
    assert _written(sent_catalogue, tmp_path / "a").read_bytes() == _written(catalogue, tmp_path / "b").read_bytes()
    assert _written_index(sent_index, tmp_path / "a").read_bytes() == _written_index(index, tmp_path / "b").read_bytes()


def test_empty_tile_index_opens(tmp_path: Path) -> None:
    """A window without tiles opens as an empty mosaic of the grid's extent."""
    driver, shape, _, _, _, pixels = _open_elsewhere(_written_index(_index_request([]), tmp_path), tmp_path)
    assert (driver, shape) == ("GTI", [32, 48])
    assert set(np.unique(np.array(pixels)).tolist()) == {200}


def test_tile_index_has_equal_bytes_later_and_elsewhere(tmp_path: Path) -> None:
    """GeoPackage's own timestamps do not make two equal indexes differ."""
    rows = [tile_row(tile) for tile in metric_grid().tiles]
    request = _index_request(rows)
    first = _written_index(request, tmp_path / "a").read_bytes()
    assert first == _written_index(request, tmp_path / "b").read_bytes()
    assert b"1970-01-01T00:00:00" in first


def test_index_of_other_tiles_is_refused(tmp_path: Path) -> None:
    """An index that lists other tiles than planned is not valid output, nor is one that lost its end."""
    tiles = metric_grid().tiles
    request = _index_request([tile_row(tiles[0])])
    path = _written_index(request, tmp_path)
    with pytest.raises(UnitRejected, match="lists 1 tiles"):
        validate_tile_index(_index_request([tile_row(tiles[0]), tile_row(tiles[1])]), path)
    path.write_bytes(path.read_bytes()[:5_000])
    with pytest.raises(UnitRejected) as caught:
        validate_tile_index(request, path)
    assert caught.value.kind is ErrorKind.INVALID_OUTPUT


@pytest.mark.parametrize("zoom", [0, 1, 3])
def test_footprints_of_the_web_mercator_edge_columns_are_whole(zoom: int) -> None:
    """Tiles that end at 180 degrees east or begin at 180 west are one polygon of the right width, counterclockwise."""
    area = shapely.box(-180, -85, 180, 85)
    grid = Grid(GridConfig(tms="WebMercatorQuad", zoom=zoom, area="unused"), area)
    for column in {0, 2**zoom - 1}:
        shape = footprint(grid.box(Tile(zoom, column, 0)))
        assert shape.geom_type == "Polygon"
        assert shape.exterior.is_ccw
        assert shape.bounds[2] - shape.bounds[0] == pytest.approx(360 / 2**zoom)
        assert len(shape.exterior.coords) == 5, "straight edges need no points between"
