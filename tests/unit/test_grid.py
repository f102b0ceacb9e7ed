"""Where tiles lie, which partition holds them, and what an area of interest may be."""

from __future__ import annotations

import itertools
from pathlib import Path

import geopandas as gpd
import morecantile
import numpy as np
import pytest
import shapely
from shapely.geometry import MultiPolygon, Point, Polygon, box

from assets.grid import Grid, Tile, read_area
from resources.config import Config, load_config
from resources.config_scenes import GridConfig
from resources.errors import ConfigurationError

ROCKIES = box(-105.9, 40.1, -105.4, 40.6)
NAMED = [
    "WebMercatorQuad",
    "WorldCRS84Quad",
    "WGS1984Quad",
    "UTM31WGS84Quad",
    "EuropeanETRS89_LAEAQuad",
    "LINZAntarticaMapTilegrid",
]


def named(tms: str, zoom: int, area: object = ROCKIES, **settings: int) -> Grid:
    return Grid(GridConfig(tms=tms, zoom=zoom, area="file.gpkg", **settings), area)


def custom(crs: str, resolution: float, area: object, **settings: object) -> Grid:
    return Grid(GridConfig(crs=crs, resolution=resolution, area="file.gpkg", **settings), area)


def config(folder: Path, area: str) -> Config:
    path = folder / "tilewright.toml"
    path.write_text(
        f"window = {{start = 2024-01-01}}\ngrid = {{tms = 'WebMercatorQuad', zoom = 8, area = '{area}'}}\n"
        "products = [{name = 'a', bands = ['b1']}]\n"
    )
    return load_config(path)


@pytest.mark.parametrize("tms", NAMED)
@pytest.mark.parametrize("zoom", [1, 7, 13])
def test_bounds_are_those_of_the_tile_matrix_set(tms: str, zoom: int) -> None:
    """A tile lies where morecantile puts it, within a ten-thousandth of a pixel."""
    grid, reference = named(tms, zoom), morecantile.tms.get(tms)
    matrix = reference.matrix(zoom)
    for x, y in itertools.product({0, matrix.matrixWidth // 3, matrix.matrixWidth - 1}, {0, matrix.matrixHeight - 1}):
        found = grid.box(Tile(zoom, x, y))
        np.testing.assert_allclose(found.bounds, reference.xy_bounds(x, y, zoom), rtol=0, atol=grid.resolution * 1e-4)
        assert found.shape == (256, 256)


@pytest.mark.parametrize(
    "grid", [named("WebMercatorQuad", 13), custom("EPSG:32632", 0.3, box(8, 50, 8.1, 50.1))], ids=["named", "custom"]
)
def test_neighbours_share_their_edges_to_the_last_bit(grid: Grid) -> None:
    """Right edge equals the next left edge and bottom the next top, so that no sliver lies between tiles."""
    for tile in grid.tiles[:50]:
        left, bottom, right, top = grid.box(tile).bounds
        assert grid.box(Tile(tile.z, tile.x + 1, tile.y)).bounds[0] == right
        assert grid.box(Tile(tile.z, tile.x, tile.y + 1)).bounds[3] == bottom
        assert grid.box(Tile(tile.z, tile.x - 1, tile.y)).bounds[2] == left
        assert grid.box(Tile(tile.z, tile.x, tile.y - 1)).bounds[1] == top


def test_a_larger_tile_has_smaller_pixels_in_the_same_place() -> None:
    """tile_px decides the pixels in a tile, not where it lies."""
    small, large = named("WebMercatorQuad", 12), named("WebMercatorQuad", 12, tile_px=512)
    assert small.tiles == large.tiles
    assert small.box(small.tiles[0]).bounds == pytest.approx(large.box(large.tiles[0]).bounds)
    assert large.resolution == small.resolution / 2


def test_tiles_are_those_that_morecantile_finds() -> None:
    """The tiles of a rectangle are the ones that a second implementation gives."""
    found = {(tile.x, tile.y) for tile in named("WebMercatorQuad", 12).tiles}
    assert found == {(tile.x, tile.y) for tile in morecantile.tms.get("WebMercatorQuad").tiles(*ROCKIES.bounds, zooms=[12])}


def test_a_shared_edge_is_not_a_touch() -> None:
    """An area that ends exactly on a tile's edge does not take in the next tile."""
    grid = custom("EPSG:32632", 10, box(8, 50, 8.1, 50.1))
    left, bottom, right, top = grid.box(Tile(0, 100, 150)).bounds
    assert set(grid.tiles_touching(box(left, bottom, right, top))) == {Tile(0, 100, 150)}
    assert set(grid.tiles_touching(box(left, bottom, right + 1e-3, top))) == {Tile(0, 100, 150), Tile(0, 101, 150)}


def test_tiles_follow_the_shape_and_not_its_rectangle() -> None:
    """A triangle, and two far islands, take only the tiles they touch, each once."""
    grid = custom("EPSG:32632", 10, box(8, 50, 8.1, 50.1))
    span = 2560.0
    top = 10_000_000.0
    triangle = Polygon([(10 * span, top - 20 * span), (20 * span, top - 20 * span), (10 * span, top - 10 * span)])
    assert len(list(grid.tiles_touching(triangle))) == 55
    islands = MultiPolygon([box(1, top - 2, 2, top - 1), box(3, top - 4, 4, top - 3), box(1e6, 1e6, 1e6 + 1, 1e6 + 1)])
    assert len(list(grid.tiles_touching(islands))) == 2
    assert list(grid.tiles_touching(Polygon())) == []


@pytest.mark.parametrize("metatile", [1, 3, 4, 64])
def test_metatiles_group_tiles_and_change_nothing_else(metatile: int) -> None:
    """Every tile is in exactly one partition, and tiles and unit settings are the same for every metatile."""
    grid = named("WebMercatorQuad", 12, metatile=metatile)
    assert sorted(tile for tiles in grid.partitions.values() for tile in tiles) == list(named("WebMercatorQuad", 12).tiles)
    assert all(grid.partition_of(tile) == name for name, tiles in grid.partitions.items() for tile in tiles)
    assert all(len(tiles) <= metatile**2 for tiles in grid.partitions.values())
    assert grid.settings() == named("WebMercatorQuad", 12).settings()


@pytest.mark.parametrize(
    "grid",
    [
        named("WebMercatorQuad", 24, box(-105.6, 40.3, -105.5997, 40.3003), metatile=1),
        named("WebMercatorQuad", 12, metatile=1),
        custom("EPSG:32632", 0.01, box(8, 50, 8.00002, 50.00002), metatile=1, tile_px=16),
    ],
    ids=["deep", "usual", "centimetres"],
)
def test_names_sort_as_tiles_read(grid: Grid) -> None:
    """Names sort row by row, west to east, also where numbers gain a digit, so that neighbours join into ranges."""
    names = list(grid.partitions)
    reading = sorted(grid.partitions, key=lambda name: (grid.partitions[name][0].y, grid.partitions[name][0].x))
    assert names == sorted(names) == reading
    last = 2**grid.z - 1 if grid.z else int(140_000_000 / (grid.resolution * grid.config.tile_px))
    assert len({len(name) for name in [*names, grid.partition_of(Tile(grid.z, last, last))]}) == 1
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") for name in names)


def test_a_tile_is_read_back_from_its_name() -> None:
    """parse undoes name, and refuses what name does not write."""
    assert Tile.parse(Tile(12, 840, 1524).name) == Tile(12, 840, 1524)
    for text in ("12-840", "12-840-x", "", "1-2-3-4"):
        with pytest.raises(ValueError, match=r"unpack|literal"):
            Tile.parse(text)


def test_an_area_over_180_degrees_is_two_parts(tmp_path: Path) -> None:
    """left > right crosses the antimeridian: tiles at both ends of the grid, none between."""
    grid = Grid.from_config(config(tmp_path, "179,-17,-179,-16"))
    assert {tile.x for tile in grid.tiles} == {0, 255}


def test_a_grid_across_180_degrees_is_whole_there() -> None:
    """In a CRS that knows no seam at 180 the same area is one block of tiles, and a footprint there is two parts."""
    grid = custom("EPSG:3832", 1000, shapely.union_all([box(179, -17, 180, -16), box(-180, -17, -179, -16)]), tile_px=64)
    columns = sorted({tile.x for tile in grid.tiles})
    assert columns == list(range(columns[0], columns[-1] + 1))
    crossing = [grid.footprint(tile) for tile in grid.tiles if grid.footprint(tile).geom_type == "MultiPolygon"]
    assert crossing
    assert all(part.bounds[2] - part.bounds[0] < 2 for shape in crossing for part in shape.geoms)


def test_a_footprint_keeps_the_curve_of_its_edges() -> None:
    """The outline in degrees covers the centre, and points along an edge follow the projection."""
    grid = custom("EPSG:32632", 100, box(8, 50, 9, 51))
    tile = grid.tiles[len(grid.tiles) // 2]
    shape = grid.footprint(tile)
    assert shape.is_valid
    assert shape.covers(Point(shape.centroid))
    assert len(shape.exterior.coords) > 40


def test_the_whole_world_is_an_area(tmp_path: Path) -> None:
    """Mercator ends before the poles; asking for all of the world gives all of its tiles."""
    assert len(Grid.from_config(config(tmp_path, "-180,-90,180,90")).tiles) == 256 * 256


def test_an_area_file_in_any_crs(tmp_path: Path) -> None:
    """Polygons in metres give the tiles of the same place in degrees."""
    frame = gpd.GeoDataFrame(geometry=[ROCKIES], crs="EPSG:4326")
    frame.to_crs("EPSG:32613").to_file(tmp_path / "area.gpkg")
    by_file = Grid.from_config(config(tmp_path, "area.gpkg"))
    assert by_file.tiles == Grid.from_config(config(tmp_path, "-105.9,40.1,-105.4,40.6")).tiles


def test_longitudes_beyond_180_are_brought_back(tmp_path: Path) -> None:
    """A file that counts longitudes from 0 to 360 means the same place."""
    gpd.GeoDataFrame(geometry=[box(179, -17, 181, -16)], crs="EPSG:4326").to_file(tmp_path / "area.gpkg")
    assert read_area(config(tmp_path, "area.gpkg")).equals(read_area(config(tmp_path, "179,-17,-179,-16")))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tms": "WebMercatorSquare", "zoom": 3}, ["grid.tms", "'WebMercatorSquare'", "WebMercatorQuad"]),
        ({"tms": "WebMercatorQuad", "zoom": 29}, ["grid.zoom", "29", "0..24"]),
        ({"tms": "UTM31WGS84Quad", "zoom": 0}, ["grid.zoom", "0", "1..24"]),
        ({"tms": "GNOSISGlobalGrid", "zoom": 3}, ["grid.tms", "GNOSISGlobalGrid", "not supported"]),
        ({"crs": "EPSG:999999", "resolution": 10}, ["grid.crs", "'EPSG:999999'"]),
        ({"crs": "EPSG:32632", "resolution": 10, "origin": (600_000.0, 5e6)}, ["grid.origin", "600000", "left of it"]),
    ],
)
def test_a_grid_that_cannot_be_is_refused_by_key(settings: dict[str, object], words: list[str]) -> None:
    """The message names the key, what was found and what is allowed."""
    with pytest.raises(ConfigurationError) as caught:
        list(Grid(GridConfig(area="file.gpkg", **settings), box(8, 50, 8.2, 50.2)).tiles)
    assert not [word for word in words if word not in str(caught.value)], caught.value


@pytest.mark.parametrize(
    "area", ["1,2,3", "1,2,3,nan", "5,50,5,51", "5,51,6,50", "5,50,190,51", "5,-91,6,0", "absent.gpkg", "1,2,3,4,5", ""]
)
def test_an_area_that_cannot_be_is_refused(tmp_path: Path, area: str) -> None:
    """Wrong numbers, a missing file and nothing at all are each one message that names grid.area."""
    with pytest.raises(ConfigurationError, match=r"grid\.area"):
        Grid.from_config(config(tmp_path, area))


def test_area_files_without_crs_or_features_are_refused(tmp_path: Path) -> None:
    """A vector file must say where it is, and hold something."""
    gpd.GeoDataFrame(geometry=[], crs="EPSG:4326").to_file(tmp_path / "empty.gpkg")
    (tmp_path / "words.gpkg").write_text("not a vector file")
    for name in ("empty.gpkg", "words.gpkg"):
        with pytest.raises(ConfigurationError, match=r"grid\.area"):
            read_area(config(tmp_path, name))


def test_an_area_outside_the_grid_is_refused() -> None:
    """An area with no tile at all stops at load."""
    with pytest.raises(ConfigurationError, match=r"grid\.area"):
        _ = named("EuropeanETRS89_LAEAQuad", 5, box(-60, -20, -59, -19)).tiles
