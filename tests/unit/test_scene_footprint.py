"""Footprints: a raster's outline in WGS 84, wherever on the Earth it lies."""

from __future__ import annotations

import antimeridian
import numpy as np
import pyproj
import pytest
import shapely
from affine import Affine
from shapely.geometry import Polygon, box
from shapely.geometry.base import BaseGeometry

from assets.scenes.footprint import NoFootprintError, footprint
from assets.scenes.model import Affine6

GEOS = "+proj=geos +h=35785831 +lon_0={} +sweep=x"
SINU = "+proj=sinu +R=6371007.181"


def print_of(crs: str, transform: Affine6, width: int, height: int) -> BaseGeometry:
    return footprint(pyproj.CRS.from_user_input(crs), transform, width=width, height=height)


PLACES: dict[str, tuple[str, Affine6, int, int]] = {
    "UTM across 180": ("EPSG:32660", (100, 0, 570585, 0, -100, 5847615), 2325, 2355),
    "UTM across 180 from the east": ("EPSG:32601", (100, 0, 200000, 0, -100, 5847615), 4000, 2355),
    "north pole inside": ("EPSG:3413", (10000, 0, -3000000, 0, -10000, 3000000), 600, 600),
    "north pole inside, off centre": ("EPSG:3413", (10000, 0, -100000, 0, -10000, 3000000), 600, 600),
    "south pole inside": ("EPSG:3031", (10000, 0, -3000000, 0, -10000, 3000000), 600, 600),
    "south pole inside, south-up": ("EPSG:3031", (10000, 0, -3000000, 0, 10000, -3000000), 600, 600),
    "south pole inside, rotated": ("EPSG:3031", (7000, 7000, -4000000, 7000, -7000, 0), 600, 600),
    "near the south pole": ("EPSG:3031", (10000, 0, 500000, 0, -10000, 3000000), 200, 200),
    "south pole on a corner": ("EPSG:3031", (10000, 0, 0, 0, -10000, 2000000), 200, 200),
    "south pole on an edge": ("EPSG:3031", (10000, 0, -1230000, 0, -10000, 0), 200, 200),
    "polar, across 180": ("EPSG:3031", (10000, 0, -500000, 0, -10000, -1000000), 100, 100),
    "hemisphere around the north pole": ("EPSG:6931", (10000, 0, -9000000, 0, -10000, 9000000), 1800, 1800),
    "Web Mercator, all of it": ("EPSG:3857", (1000, 0, -20037508.34, 0, -1000, 20037508.34), 40075, 40075),
    "Mercator centred on the Pacific": ("EPSG:3832", (1000, 0, -2000000, 0, -1000, 2000000), 4000, 4000),
    "Europe, equal area": ("EPSG:3035", (1000, 0, 2000000, 0, -1000, 5500000), 5000, 4500),
    "a long UTM strip": ("EPSG:32632", (1000, 0, 0, 0, -1000, 9000000), 1000, 9000),
    "another datum": ("EPSG:4267", (0.01, 0, -100, 0, -0.01, 40), 200, 200),
    "grads from Paris": ("EPSG:4807", (0.01, 0, 0, 0, -0.01, 55), 200, 200),
    "one pixel": (UTM := "EPSG:32632", (1, 0, 500000, 0, -1, 5000000), 1, 1),
    "rotated": (UTM, (20, 15, 500000, 15, -20, 5000000), 500, 300),
    "south-up": (UTM, (30, 0, 500000, 0, 30, 4900000), 500, 300),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_footprint_holds_the_raster_and_nothing_else(name: str) -> None:
    """Points of the raster lie inside, and of points all over the Earth just those whose pixel exists, save on the edge."""
    crs, transform, width, height = PLACES[name]
    shape = print_of(crs, transform, width, height)
    assert shape.is_valid
    assert shape.geom_type in ("Polygon", "MultiPolygon")
    left, bottom, right, top = shape.bounds
    assert -180 <= left < right <= 180
    assert -90 <= bottom < top <= 90
    rng = np.random.default_rng(7)
    affine = Affine(*transform)
    column, row = rng.uniform(0.01, 0.99, (2, 1000)) * np.array([[width], [height]])
    x, y = affine.a * column + affine.b * row + affine.c, affine.d * column + affine.e * row + affine.f
    lon, lat = pyproj.Transformer.from_crs(crs, "OGC:CRS84", always_xy=True).transform(x, y)
    assert shapely.contains_xy(shape, (np.asarray(lon) + 180) % 360 - 180, lat).mean() > 0.999
    lon, lat = rng.uniform(-180, 180, 20_000), np.degrees(np.arcsin(rng.uniform(-1, 1, 20_000)))
    x, y = (
        np.where(np.isfinite(part), part, 1e30)
        for part in pyproj.Transformer.from_crs("OGC:CRS84", crs, always_xy=True).transform(lon, lat)
    )
    back = ~affine
    column, row = back.a * x + back.b * y + back.c, back.d * x + back.e * y + back.f
    truth = (column >= 0) & (column <= width) & (row >= 0) & (row <= height)
    assert (truth != shapely.contains_xy(shape, lon, lat)).sum() <= 5


def test_a_scene_across_the_antimeridian_is_two_shapes() -> None:
    """A UTM scene at 180 degrees is cut there, and each half stays small: nothing spans the Earth."""
    shape = print_of(*PLACES["UTM across 180"])
    assert shape.geom_type == "MultiPolygon"
    assert len(shape.geoms) == 2
    assert max(part.bounds[2] - part.bounds[0] for part in shape.geoms) < 4


def test_the_outline_agrees_with_another_library() -> None:
    """Cut at 180 degrees, and closed over the pole, as the antimeridian package does it from rolled-up longitudes."""
    for name in ("UTM across 180", "south pole inside"):
        crs, transform, width, height = PLACES[name]
        along = np.linspace(0, 1, 400, endpoint=False)
        ring = np.concatenate(
            [
                np.stack([along, 0 * along]),
                np.stack([1 + 0 * along, along]),
                np.stack([1 - along, 1 + 0 * along]),
                np.stack([0 * along, 1 - along]),
            ],
            axis=1,
        )
        column, row = ring[0] * width, ring[1] * height
        x, y = transform[0] * column + transform[2], transform[4] * row + transform[5]
        lon, lat = pyproj.Transformer.from_crs(crs, "OGC:CRS84", always_xy=True).transform(x, y)
        at_pole = name == "south pole inside"
        other = antimeridian.fix_polygon(
            Polygon(zip(lon, lat, strict=True)),
            force_south_pole=at_pole,
            fix_winding=None if at_pole else True,
            great_circle=False,
        )
        mine = print_of(crs, transform, width, height)
        assert mine.symmetric_difference(other).area < 1e-3 * mine.area


@pytest.mark.parametrize(
    ("transform", "width", "height", "expected"),
    [
        ((1, 0, 170, 0, -1, 10), 20, 10, shapely.union_all([box(170, 0, 180, 10), box(-180, 0, -170, 10)])),
        ((1, 0, 180, 0, -1, 10), 10, 10, box(-180, 0, -170, 10)),
        ((1, 0, 200, 0, -1, 10), 100, 10, box(-160, 0, -60, 10)),
        ((1, 0, -190, 0, -1, 10), 20, 10, shapely.union_all([box(170, 0, 180, 10), box(-180, 0, -170, 10)])),
        ((1, 0, 0, 0, -1, 90), 360, 180, box(-180, -90, 180, 90)),
        ((10, 0, -5, 0, -10, 95), 36, 19, box(-180, -90, 180, 90)),
        ((0.5, 0, -180, 0, 0.5, -90), 720, 360, box(-180, -90, 180, 90)),
        ((1, 0, -180, 0, -1, 90), 10, 10, box(-180, 80, -170, 90)),
        ((1, 0, 0, 0, -1, 10), 180, 10, box(0, 0, 180, 10)),
    ],
)
def test_longitudes_on_any_turn_come_home(transform: Affine6, width: int, height: int, expected: BaseGeometry) -> None:
    """Geographic rasters with longitudes to 360, or around the whole Earth, have the outline they would have at home."""
    shape = print_of("EPSG:4326", transform, width, height)
    assert shape.symmetric_difference(expected).area < 1e-6


@pytest.mark.parametrize("longitude", [-75, -137])
def test_a_disc_seen_from_space_keeps_to_the_earth(longitude: int) -> None:
    """A full geostationary disc, whose corners lie off the Earth, covers what the satellite sees, here across 180 degrees too."""
    shape = print_of(GEOS.format(longitude), (20054.96, 0, -5434895, 0, -20054.96, 5434895), 542, 542)
    assert shape.is_valid
    assert shape.contains(shapely.Point(longitude, 0))
    assert not shape.contains(shapely.Point((longitude + 360) % 360 - 180, 0))
    assert (
        0.35
        < shapely.transform(shape, lambda p: np.column_stack([p[:, 0], np.degrees(np.sin(np.radians(p[:, 1])))])).area / 41253
        < 0.55
    )


def test_a_tile_off_the_earth_has_no_footprint() -> None:
    """A corner tile of the sinusoidal grid lies outside the projection's figure, though PROJ gives it coordinates."""
    with pytest.raises(NoFootprintError, match="no part of the raster lies on the Earth"):
        print_of(SINU, (463.3127, 0, -20015109.354, 0, -463.3127, 10007554.677), 2400, 2400)


def test_a_tile_at_the_figures_edge_keeps_the_part_that_is_on_the_earth() -> None:
    """A sinusoidal tile across the figure's edge covers its own place, and nothing on the far side of the Earth."""
    shape = print_of(SINU, (463.3127, 0, 17791207, 0, -463.3127, 1111950), 4800, 2400)
    assert shape.contains(shapely.Point(170, 5))
    assert not shape.intersects(box(-170, -5, 150, 15))
