"""Zonal statistics: answers that can be worked out by hand, and zones that are not as they should be."""

from __future__ import annotations

from math import ceil, floor
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pyarrow.parquet as pq
import pytest
import rasterio
import rasterio.features
import shapely
from affine import Affine
from shapely.geometry import MultiPolygon, Point, Polygon, box

from assets.grid import Grid
from assets.tile_mosaic import TileMosaic
from assets.window_tiles import WindowTiles, window_tiles
from assets.zone_file import read_zones, zone_file_digest
from assets.zones import (
    ZonesRequest,
    validate_zone_statistics,
    write_zone_statistics,
    zone_ingredients,
    zone_statistics_uri,
)
from resources.config_scenes import GridConfig, ZonesConfig
from resources.errors import ConfigurationError, ErrorKind, TransientError, UnitRejected
from resources.keys import unit_key
from resources.units import UnitState
from tests.support.windows import ORIGIN, WINDOW, Row, metric_grid, tile_row, write_tile

LEFT, TOP = ORIGIN
STATISTICS = ("count", "mean", "min", "max", "sum", "stdev", "median", "majority", "minority")
OLINDA = Path(__file__).parents[3] / "shared/data/scenes/landsat_olinda"


def _square(left: float, top: float, width: float, height: float) -> Polygon:
    """A rectangle in metres from the grid's corner, downwards."""
    return box(LEFT + left, TOP - top - height, LEFT + left + width, TOP - top)


def _zone_file(folder: Path, zones: dict[Any, Any], *, crs: str | None = "EPSG:32632", name: str = "zones.gpkg") -> Path:
    path = folder / name
    gpd.GeoDataFrame({"name": list(zones)}, geometry=list(zones.values()), crs=crs).to_file(path)
    return path


def _request(store: Path, tiles: WindowTiles, zones_path: Path, *, grid: Grid | None = None, **changes: Any) -> ZonesRequest:
    zones = ZonesConfig(path=str(zones_path), id_field="name", statistics=STATISTICS)
    grid = grid or metric_grid()
    values: dict[str, Any] = {
        "uri": zone_statistics_uri(WINDOW.key),
        "tiles": tiles,
        "products": (("plain", ("b1",)),),
        "zones": zones,
        "zones_path": zones_path,
        "zones_digest": zone_file_digest(zones_path),
        "grid_crs": grid.crs,
        "store_dir": store,
        **changes,
    }
    key = unit_key(
        **zone_ingredients(
            tiles,
            products=values["products"],
            zones=values["zones"],
            zones_digest=values["zones_digest"],
            grid_settings=grid.settings(),
        )
    )
    return ZonesRequest(unit_key=key, **values)


def _statistics(request: ZonesRequest) -> gpd.GeoDataFrame:
    path = request.store_dir / request.uri
    path.parent.mkdir(parents=True, exist_ok=True)
    write_zone_statistics(request, path)
    validate_zone_statistics(request, path)
    return gpd.read_parquet(path)


def _constant_store(store: Path, value: int = 7, *, absent: int = 0) -> tuple[Grid, list[Row]]:
    """Six tiles of one value; the last `absent` of them quarantined."""
    grid = metric_grid()
    rows = []
    for number, tile in enumerate(grid.tiles):
        row = tile_row(tile)
        if number < len(grid.tiles) - absent:
            rows.append(write_tile(store, grid, row, np.full((1, 16, 16), value, "int16")))
        else:
            rows.append(tile_row(tile, state=UnitState.QUARANTINED))
    return grid, rows


def _run(tmp_path: Path, zones: dict[Any, Any], *, absent: int = 0, value: int = 7, **options: Any) -> gpd.GeoDataFrame:
    grid, rows = _constant_store(tmp_path, value, absent=absent)
    tiles = window_tiles(rows, window=WINDOW, grid=grid)
    return _statistics(_request(tmp_path, tiles, _zone_file(tmp_path, zones, **options))).set_index("zone_id")


def test_constant_raster_gives_the_constant(tmp_path: Path) -> None:
    """Over tiles of one value every statistic is that value, across tile edges, and the count is the zone's area in pixels."""
    found = _run(tmp_path, {"a": _square(100, 100, 200, 150)}).loc["a"]
    assert found[["mean", "min", "max", "median", "majority", "minority"]].tolist() == [7.0] * 6
    assert found["count"] == pytest.approx(200 * 150 / 100)
    assert found["sum"] == pytest.approx(7 * 300)
    assert found["stdev"] == pytest.approx(0.0)
    assert found["covered_share"] == pytest.approx(1.0)
    assert (found["tiles"], found["tiles_absent"]) == (4, 0)


def test_half_covered_pixels_count_half(tmp_path: Path) -> None:
    """A zone over one and a half pixels of values 2 and 8 has the mean (2 + 8/2) / 1.5."""
    grid = metric_grid(columns=1, rows=1)
    pixels = np.full((1, 16, 16), 2, "int16")
    pixels[0, :, 1] = 8
    row = write_tile(tmp_path, grid, tile_row(grid.tiles[0]), pixels)
    tiles = window_tiles([row], window=WINDOW, grid=grid)
    found = _statistics(_request(tmp_path, tiles, _zone_file(tmp_path, {"a": _square(0, 0, 15, 10)}), grid=grid)).iloc[0]
    assert found["count"] == pytest.approx(1.5)
    assert found["mean"] == pytest.approx((2 + 8 * 0.5) / 1.5)
    assert found["sum"] == pytest.approx(6.0)


def test_hole_is_left_out(tmp_path: Path) -> None:
    """The pixels of a hole are not counted."""
    ring = Polygon(_square(0, 0, 100, 100).exterior.coords, [_square(20, 20, 30, 30).exterior.coords])
    found = _run(tmp_path, {"a": ring}).loc["a"]
    assert found["count"] == pytest.approx((100 * 100 - 30 * 30) / 100)
    assert found["covered_share"] == pytest.approx(1.0)


def test_tiny_zone_has_an_answer(tmp_path: Path) -> None:
    """A zone of a thousandth of a pixel has that pixel's value and covers a thousandth."""
    found = _run(tmp_path, {"a": _square(55, 55, 0.1, 1.0)}).loc["a"]
    assert found["mean"] == 7.0
    assert found["count"] == pytest.approx(0.001, rel=1e-4)
    assert found["covered_share"] == pytest.approx(1.0, rel=1e-4)


def test_zone_outside_is_there_with_nothing(tmp_path: Path) -> None:
    """A zone that no tile touches keeps its row: count 0, no mean, covered share 0."""
    found = _run(tmp_path, {"a": _square(90_000, 0, 100, 100)}).loc["a"]
    assert (found["count"], found["sum"], found["covered_share"], found["tiles"]) == (0, 0, 0, 0)
    assert np.isnan(found["mean"])


def test_zone_half_outside_says_what_share_is_covered(tmp_path: Path) -> None:
    """A zone that leaves the tiles on one side by half has covered share one half."""
    found = _run(tmp_path, {"a": _square(-50, 0, 100, 100)}).loc["a"]
    assert found["covered_share"] == pytest.approx(0.5)
    assert found["count"] == pytest.approx(50)


def test_absent_tiles_are_counted_and_left_out(tmp_path: Path) -> None:
    """A zone over a quarantined tile says so, and its statistics come from the rest."""
    found = _run(tmp_path, {"a": _square(0, 0, 480, 320)}, absent=1).loc["a"]
    assert (found["tiles"], found["tiles_absent"]) == (5, 1)
    assert found["covered_share"] == pytest.approx(5 / 6)
    assert found["mean"] == 7.0


def test_window_without_complete_tiles_has_all_zones(tmp_path: Path) -> None:
    """With every tile absent each zone has a row that says so."""
    found = _run(tmp_path, {"a": _square(0, 0, 100, 100), "b": _square(0, 0, 480, 320)}, absent=6)
    assert found["count"].tolist() == [0, 0]
    assert found["tiles_absent"].tolist() == [1, 6]


def test_nodata_and_nan_are_not_values(tmp_path: Path) -> None:
    """Nodata, and NaN and infinity in float tiles of any nodata, do not enter statistics and lower the covered share."""
    grid = metric_grid(columns=2, rows=1)
    left = np.full((1, 16, 16), 4.0, "float32")
    left[0, :4] = np.nan
    left[0, 4:8] = np.inf
    right = np.full((1, 16, 16), 4.0, "float32")
    right[0, :, :4] = -9999.0
    rows = [
        write_tile(tmp_path, grid, tile_row(tile), pixels, nodata=-9999.0)
        for tile, pixels in zip(grid.tiles, (left, right), strict=True)
    ]
    tiles = window_tiles(rows, window=WINDOW, grid=grid)
    found = _statistics(_request(tmp_path, tiles, _zone_file(tmp_path, {"a": _square(0, 0, 320, 160)}), grid=grid)).iloc[0]
    assert found["count"] == pytest.approx(128 + 192)
    assert (found["min"], found["max"], found["mean"]) == (4.0, 4.0, 4.0)
    assert found["covered_share"] == pytest.approx(320 / 512)


def test_internal_mask_is_honoured(tmp_path: Path) -> None:
    """Pixels that a tile's internal mask hides do not enter."""
    grid = metric_grid(columns=1, rows=1)
    mask = np.zeros((16, 16), "uint8")
    mask[:4] = 255
    row = write_tile(tmp_path, grid, tile_row(grid.tiles[0]), np.full((1, 16, 16), 9, "uint8"), nodata=None, mask=mask)
    tiles = window_tiles([row], window=WINDOW, grid=grid)
    found = _statistics(_request(tmp_path, tiles, _zone_file(tmp_path, {"a": _square(0, 0, 160, 160)}), grid=grid)).iloc[0]
    assert found["count"] == pytest.approx(64)


def test_zones_in_another_crs_agree(tmp_path: Path) -> None:
    """The same zone given in longitude and latitude gives the same statistics, and keeps its CRS."""
    shape = _square(33, 47, 210, 123)
    here = _run(tmp_path, {"a": shape}).loc["a"]
    there = gpd.GeoSeries([shapely.segmentize(shape, 2)], crs="EPSG:32632").to_crs("EPSG:4326").iloc[0]
    grid, rows = _constant_store(tmp_path)
    frame = _statistics(
        _request(
            tmp_path,
            window_tiles(rows, window=WINDOW, grid=grid),
            _zone_file(tmp_path, {"a": there}, crs="EPSG:4326", name="z.geojson"),
        )
    )
    assert frame.crs.to_epsg() == 4326
    assert frame.iloc[0]["count"] == pytest.approx(here["count"], rel=1e-6)


def test_bow_tie_is_repaired_and_says_so(tmp_path: Path) -> None:
    """An invalid polygon is computed over both its halves, and the row says what was wrong."""
    bow = Polygon([(LEFT, TOP), (LEFT + 100, TOP - 100), (LEFT + 100, TOP), (LEFT, TOP - 100)])
    found = _run(tmp_path, {"a": bow}).loc["a"]
    assert found["geometry_note"].startswith("repaired: Self-intersection")
    assert found["count"] == pytest.approx(50)


def test_multipolygon_and_numbers_as_ids(tmp_path: Path) -> None:
    """Zones of several parts are one zone; ids keep their type and their order."""
    found = _run(tmp_path, {9: MultiPolygon([_square(0, 0, 10, 10), _square(100, 0, 10, 10)]), 2: _square(0, 0, 30, 10)})
    assert found.index.tolist() == [2, 9]
    assert found["count"].tolist() == pytest.approx([3, 2])


def test_empty_geometry_stays_as_a_row(tmp_path: Path) -> None:
    """A zone without geometry is a row that says so, not a crash."""
    found = _run(tmp_path, {"a": None, "b": _square(0, 0, 10, 10)}, name="zones.geojson")
    assert found.loc["a", "geometry_note"] == "empty geometry"
    assert found.loc["a", "count"] == 0
    assert found.loc["b", "count"] == pytest.approx(1)


def test_large_zone_is_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for few cells a zone is read in blocks no larger, and the answer is the same."""
    reads: list[int] = []
    read = TileMosaic.read

    def counted(self: TileMosaic, band: int, *, column: int, row: int, width: int, height: int) -> Any:
        reads.append(width * height)
        return read(self, band, column=column, row=row, width=width, height=height)

    monkeypatch.setattr(TileMosaic, "read", counted)
    monkeypatch.setattr("assets.zone_coverage.CELLS_MAX", 300)
    found = _run(tmp_path, {"a": _square(5, 5, 470, 310)}).loc["a"]
    assert max(reads) <= 300
    assert len(reads) > 4
    assert found["count"] == pytest.approx(470 * 310 / 100)


def test_several_products_and_bands(tmp_path: Path) -> None:
    """Each zone has a row for each band of each product, also for a product without tiles."""
    grid = metric_grid(columns=1, rows=1)
    pixels = np.stack([np.full((16, 16), value, "int16") for value in (1, 2, 3)])
    row = write_tile(tmp_path, grid, tile_row(grid.tiles[0], product="rgb"), pixels)
    tiles = window_tiles([row], window=WINDOW, grid=grid)
    products = (("rgb", ("red", "green", "blue")), ("ndvi", ("b1",)))
    frame = _statistics(
        _request(tmp_path, tiles, _zone_file(tmp_path, {"a": _square(0, 0, 50, 50)}), grid=grid, products=products)
    )
    assert frame[["product", "band", "band_name"]].to_numpy().tolist() == [
        ["rgb", 1, "red"],
        ["rgb", 2, "green"],
        ["rgb", 3, "blue"],
        ["ndvi", 1, "b1"],
    ]
    assert frame["mean"].tolist()[:3] == [1, 2, 3]


def test_equal_inputs_give_equal_bytes(tmp_path: Path) -> None:
    """Two writes of one request are equal byte for byte."""
    grid, rows = _constant_store(tmp_path)
    request = _request(tmp_path, window_tiles(rows, window=WINDOW, grid=grid), _zone_file(tmp_path, {"a": _square(0, 0, 33, 44)}))
    for name in ("one", "two"):
        write_zone_statistics(request, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize(
    ("zones", "options", "message"),
    [
        ({"a": Point(LEFT, TOP)}, {}, "found Point; allowed: Polygon, MultiPolygon"),
        ({"a": _square(0, 0, 1, 1)}, {"crs": None}, "found no CRS"),
        ({None: _square(0, 0, 1, 1), "b": _square(0, 0, 1, 1)}, {}, "found 1 empty values"),
    ],
)
@pytest.mark.filterwarnings("ignore:'crs' was not provided")
def test_unusable_zone_files_are_named(tmp_path: Path, zones: dict[Any, Any], options: dict[str, Any], message: str) -> None:
    """Points, a missing CRS and empty ids stop with file, field, found and allowed."""
    path = _zone_file(tmp_path, zones, **options)
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_zones(path, ZonesConfig(path=str(path), id_field="name"))
    assert str(path) in str(caught.value)


def test_duplicate_ids_and_unknown_field_are_named(tmp_path: Path) -> None:
    """A doubled id is named; a field that is not there is answered with those that are."""
    path = tmp_path / "zones.gpkg"
    gpd.GeoDataFrame({"name": ["x", "x"]}, geometry=[_square(0, 0, 1, 1)] * 2, crs="EPSG:32632").to_file(path)
    with pytest.raises(ConfigurationError, match=r"field 'name': found duplicate values x; allowed: a unique value"):
        read_zones(path, ZonesConfig(path=str(path), id_field="name"))
    with pytest.raises(ConfigurationError, match=r"found no field 'nom'; allowed: name"):
        read_zones(path, ZonesConfig(path=str(path), id_field="nom"))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_zones(tmp_path / "none.gpkg", ZonesConfig(path="none.gpkg", id_field="name"))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        zone_file_digest(tmp_path / "none.gpkg")


def test_digest_covers_a_shapefiles_parts(tmp_path: Path) -> None:
    """A change in the attribute table or the CRS file of a Shapefile changes the digest, another file beside it does not."""
    path = _zone_file(tmp_path, {"a": _square(0, 0, 1, 1)}, name="zones.shp")
    before = zone_file_digest(path)
    (tmp_path / "zones.txt").write_text("a note")
    assert zone_file_digest(path) == before
    with open(tmp_path / "zones.dbf", "ab") as table:
        table.write(b"x")
    assert zone_file_digest(path) != before


def test_zone_file_that_changed_since_the_plan_is_not_used(tmp_path: Path) -> None:
    """A zone file replaced after planning is a reason to plan again, not to compute under the old key."""
    grid, rows = _constant_store(tmp_path)
    request = _request(tmp_path, window_tiles(rows, window=WINDOW, grid=grid), _zone_file(tmp_path, {"a": _square(0, 0, 1, 1)}))
    request.zones_path.unlink()
    _zone_file(tmp_path, {"a": _square(0, 0, 2, 2)})
    with pytest.raises(TransientError) as caught:
        write_zone_statistics(request, tmp_path / "staged")
    assert caught.value.kind is ErrorKind.INPUT_CHANGED


def test_tile_that_is_not_what_was_recorded_is_refused(tmp_path: Path) -> None:
    """Statistics are never made from a tile whose bytes differ from its record, nor from one that is gone."""
    grid, rows = _constant_store(tmp_path)
    zones = _zone_file(tmp_path, {"a": _square(0, 0, 480, 320)})
    request = _request(tmp_path, window_tiles(rows, window=WINDOW, grid=grid), zones)
    first = tmp_path / rows[0].output_uri
    with rasterio.open(first, "r+") as file:
        file.write(np.full((1, 16, 16), 8, "int16"))
    with pytest.raises(UnitRejected) as differs:
        write_zone_statistics(request, tmp_path / "staged")
    assert differs.value.kind is ErrorKind.OUTPUT_DIFFERS
    first.unlink()
    with pytest.raises(TransientError) as gone:
        write_zone_statistics(request, tmp_path / "staged")
    assert gone.value.kind is ErrorKind.INPUT_CHANGED


def test_truncated_statistics_are_refused(tmp_path: Path) -> None:
    """A staged file that lost its end, or is another window's, is not valid output."""
    grid, rows = _constant_store(tmp_path)
    request = _request(tmp_path, window_tiles(rows, window=WINDOW, grid=grid), _zone_file(tmp_path, {"a": _square(0, 0, 1, 1)}))
    path = tmp_path / "staged"
    write_zone_statistics(request, path)
    assert b"tilewright" in pq.read_schema(path).metadata
    other = ZonesRequest(**{**{name: getattr(request, name) for name in request.__dataclass_fields__}, "unit_key": "0" * 64})
    with pytest.raises(UnitRejected, match="expected 1 rows, key 0000"):
        validate_zone_statistics(other, path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UnitRejected) as caught:
        validate_zone_statistics(request, path)
    assert caught.value.kind is ErrorKind.INVALID_OUTPUT


def test_key_sees_the_zone_file_and_absence_but_not_its_reason(tmp_path: Path) -> None:
    """Another zone file, another statistic or an absent tile changes the key; the reason of the absence does not."""
    grid, rows = _constant_store(tmp_path)
    zones = _zone_file(tmp_path, {"a": _square(0, 0, 1, 1)})

    def key(last: Row, **changes: Any) -> str:
        return _request(tmp_path, window_tiles([*rows[:-1], last], window=WINDOW, grid=grid), zones, **changes).unit_key

    absent = [tile_row(grid.tiles[-1], state=UnitState.FAILED, reason=reason) for reason in ("one", "two")]
    assert key(absent[0]) == key(absent[1])
    assert key(rows[-1]) != key(absent[0])
    assert key(absent[0]) != key(tile_row(grid.tiles[-1], state=UnitState.RETIRED))
    assert key(rows[-1]) != key(rows[-1], zones_digest="0" * 64)
    assert key(rows[-1]) != key(rows[-1], zones=ZonesConfig(path=str(zones), id_field="name", statistics=("mean",)))


def test_olinda_census_zones_agree_with_a_pixel_count(tmp_path: Path) -> None:
    """Over the real scene cut into tiles, the zones' counts and sums agree with a fine rasterisation of the same polygons."""
    if not OLINDA.is_dir():
        pytest.skip("needs the real files of ../shared/data/scenes/landsat_olinda")
    with rasterio.open(OLINDA / "L7_ETMs.tif") as scene:
        pixels, place, crs = scene.read(), scene.transform, scene.crs.to_string()
    size = 64
    area = gpd.GeoSeries([box(*rasterio.transform.array_bounds(pixels.shape[1], pixels.shape[2], place))], crs=crs)
    grid = Grid(
        GridConfig(crs=crs, resolution=place.a, origin=(place.c, place.f), tile_px=size, area="unused"),
        area.to_crs(4326).iloc[0].buffer(-1e-5),
    )
    rows = []
    for tile in grid.tiles:
        part = np.full((pixels.shape[0], size, size), 0, "uint8")
        cut = pixels[:, tile.y * size : (tile.y + 1) * size, tile.x * size : (tile.x + 1) * size]
        part[:, : cut.shape[1], : cut.shape[2]] = cut
        rows.append(write_tile(tmp_path, grid, tile_row(tile), part, nodata=0))
    zones_path = OLINDA / "olinda1.shp"
    id_field = "ID"
    bands = tuple(f"b{number}" for number in range(1, pixels.shape[0] + 1))
    request = _request(
        tmp_path,
        window_tiles(rows, window=WINDOW, grid=grid),
        zones_path,
        grid=grid,
        products=(("plain", bands),),
        zones=ZonesConfig(path=str(zones_path), id_field=id_field, statistics=("count", "mean", "sum")),
    )
    frame = _statistics(request)
    zones = gpd.read_file(zones_path).to_crs(crs)
    assert len(frame) == len(zones) * pixels.shape[0]
    first = frame[frame["band"] == 1].set_index("zone_id")
    fine = 10
    for _, zone in zones.sample(6, random_state=1).iterrows():
        left, bottom, right, top = zone.geometry.bounds
        first_column, first_row = floor((left - place.c) / place.a), floor((place.f - top) / -place.e)
        columns, lines = ceil((right - place.c) / place.a) - first_column, ceil((place.f - bottom) / -place.e) - first_row
        corner = Affine(place.a / fine, 0, place.c + first_column * place.a, 0, place.e / fine, place.f + first_row * place.e)
        inside = rasterio.features.rasterize([zone.geometry], out_shape=(lines * fine, columns * fine), transform=corner)
        weight = inside.reshape(lines, fine, columns, fine).mean(axis=(1, 3))
        values = pixels[0][first_row : first_row + lines, first_column : first_column + columns].astype(float)
        found = first.loc[zone[id_field]]
        assert found["count"] == pytest.approx(weight.sum(), rel=0.01)
        assert found["mean"] == pytest.approx((values * weight).sum() / weight.sum(), rel=0.005)
