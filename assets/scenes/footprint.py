"""Where a raster lies on the Earth: its outline in WGS 84, right at the antimeridian, at the poles, and at the Earth's limb.

The outline's longitudes are unrolled into one continuous line first, so that a jump from 180 to -180 is a step like any other;
an outline that encloses a pole then gains or loses 360 degrees and is closed along the pole. Only then is it cut at 180 degrees.
(The `antimeridian` package does the same from rolled-up longitudes; it returns invalid shapes for outlines that touch 180
degrees, and serves the tests as a second opinion.)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyproj
import shapely
from affine import Affine
from shapely.geometry import MultiPolygon, Polygon, box
from shapely.geometry.base import BaseGeometry

from assets.scenes.model import Affine6

Floats = npt.NDArray[np.float64]
ToLonLat = Callable[[Floats, Floats], tuple[Floats, Floats]]

_POINTS_FIRST = 8
_POINTS_MOST = 512
_CELLS = 32
_CELL_PARTS = 16
_LIMB_DEGREES = 2.0
_HAIR = 1e-6


class NoFootprintError(ValueError):
    """The raster's CRS or geotransform gives it no place on the Earth; the message says why. Not to be retried."""


def to_lon_lat(crs: pyproj.CRS, *, tolerance: float) -> ToLonLat:
    """Coordinates (x, y) of `crs` to WGS 84 (longitude, latitude); what has no place becomes infinite.

    Longitudes of a geographic CRS keep their turn: 200 stays 200 and is not made -160. Where PROJ answers with some place for a
    point outside the projection's figure, the way back misses the point by more than `tolerance` (units of `crs`).
    """
    transformer = pyproj.Transformer.from_crs(crs, "OGC:CRS84", always_xy=True)
    if crs.is_geographic:
        return _geographic(transformer, _unit_in_degrees(crs))
    back = pyproj.Transformer.from_crs("OGC:CRS84", crs, always_xy=True)
    if _is_cylindrical(back):  # its figure goes on for ever to the left and right

        def project(x: Floats, y: Floats) -> tuple[Floats, Floats]:
            lon, lat = transformer.transform(x, y)
            return np.asarray(lon), np.asarray(lat)

        return project

    def project_there_and_back(x: Floats, y: Floats) -> tuple[Floats, Floats]:
        lon, lat = (np.asarray(part) for part in transformer.transform(x, y))
        off = _missed(back, lon, lat, x, y) > tolerance
        edge = off & (np.abs(np.abs(lon) - 180.0) < 1e-6)
        if edge.any():  # 180 and -180 are two sides of the figure
            off[edge] = _missed(back, -lon[edge], lat[edge], x[edge], y[edge]) > tolerance
        return np.where(off, np.inf, lon), np.where(off, np.inf, lat)

    return project_there_and_back


def _geographic(transformer: pyproj.Transformer, degrees: float) -> ToLonLat:
    def shift(x: Floats, y: Floats) -> tuple[Floats, Floats]:
        own = x * degrees
        lon, lat = transformer.transform(x, np.clip(y, -90.0 / degrees, 90.0 / degrees))
        lon = np.asarray(lon)
        return lon + 360.0 * np.round((own - lon) / 360.0), np.asarray(lat)

    return shift


def _is_cylindrical(back: pyproj.Transformer) -> bool:
    x, _ = back.transform([90.0, 90.0, 45.0], [0.0, 60.0, 0.0])
    return bool(np.isfinite(x).all() and abs(x[0] - x[1]) < 1e-6 * abs(x[0]) and abs(x[0] - 2 * x[2]) < 1e-6 * abs(x[0]))


def _missed(back: pyproj.Transformer, lon: Floats, lat: Floats, x: Floats, y: Floats) -> Floats:
    there_x, there_y = back.transform(lon, lat)
    with np.errstate(invalid="ignore"):
        miss = np.hypot(np.asarray(there_x) - x, np.asarray(there_y) - y)
    return np.where(np.isfinite(miss), miss, np.inf)


def _unit_in_degrees(crs: pyproj.CRS) -> float:
    factor = crs.axis_info[0].unit_conversion_factor if crs.axis_info else math.radians(1.0)
    return math.degrees(factor or math.radians(1.0))


def footprint(crs: pyproj.CRS, transform: Affine6, *, width: int, height: int) -> BaseGeometry:
    """Outline of a raster in WGS 84 `(longitude, latitude)`: a valid polygon, or several when it is cut at the antimeridian.

    Points stand along the edges so densely that the outline is true to a quarter of a pixel or so. Where a part of the raster
    lies off the Earth (a geostationary disc), the outline is made of the cells that lie on it, and errs outwards by two degrees.
    Raises `NoFootprintError` when no pixel has a place; no retry.
    """
    affine = Affine(*transform)
    pixel = math.sqrt(abs(affine.determinant))
    project = to_lon_lat(crs, tolerance=pixel)
    poles, inset = ([], 0.0) if crs.is_geographic else _poles_inside(crs, affine, width, height)
    ring = _true_ring(project, affine, width, height, inset)
    if ring is None:
        return _from_cells(project, affine, width, height)
    lon, lat = ring
    if poles or abs(lon[-1] - lon[0]) > 1e-6:
        return _around_poles(lon, lat, poles)
    if lon.max() - lon.min() >= 360.0 - 1e-6:
        return box(-180.0, max(float(lat.min()), -90.0), 180.0, min(float(lat.max()), 90.0))
    return _roll_up(Polygon(np.column_stack([lon, lat])))


def _true_ring(project: ToLonLat, affine: Affine, width: int, height: int, inset: float) -> tuple[Floats, Floats] | None:
    """The outline with unrolled longitudes, closed up to the turn a pole brings; None when a part is off the Earth."""
    count = _POINTS_FIRST
    while True:
        lon, lat = _ring(project, affine, (width, height), 2 * count, inset)
        if not (np.isfinite(lon).all() and np.isfinite(lat).all()):
            return None
        gap = _distance_from_chords(lon, lat)
        pixel = np.hypot(np.ptp(lon), np.ptp(lat)) / math.hypot(width, height)
        step = np.abs(np.diff(lon)).max()
        if (gap <= max(pixel / 4, 1e-9) and step < 60.0) or 2 * count >= _POINTS_MOST:
            return lon, lat
        count *= 2


def _distance_from_chords(lon: Floats, lat: Floats) -> float:
    """How far, in degrees, every second point lies off the straight line between its neighbours."""
    along_x, along_y = lon[2::2] - lon[:-1:2], lat[2::2] - lat[:-1:2]
    across = along_x * (lat[1::2] - lat[:-1:2]) - along_y * (lon[1::2] - lon[:-1:2])
    length = np.hypot(along_x, along_y)
    return float((np.abs(across) / np.where(length == 0, 1.0, length)).max())


def _ring(project: ToLonLat, affine: Affine, size: tuple[int, int], count: int, inset: float) -> tuple[Floats, Floats]:
    along = np.linspace(0.0, 1.0, count, endpoint=False)
    zero, one = np.zeros(count), np.ones(count)
    column = inset + np.concatenate([along, one, 1 - along, zero, [0.0]]) * (size[0] - 2 * inset)
    row = inset + np.concatenate([zero, along, one, 1 - along, [0.0]]) * (size[1] - 2 * inset)
    a, b, c, d, e, f = affine[:6]
    lon, lat = project(a * column + b * row + c, d * column + e * row + f)
    if np.isfinite(lon).all():
        lon = np.unwrap(lon, period=360.0)
    return lon, lat


def _poles_inside(crs: pyproj.CRS, affine: Affine, width: int, height: int) -> tuple[list[float], float]:
    """Latitudes of the poles inside the raster, and how far inside its edge (pixels) the outline must run to pass poles on it."""
    inverse = pyproj.Transformer.from_crs("OGC:CRS84", crs, always_xy=True)
    back = ~affine
    found, inset = [], 0.0
    for latitude in (90.0, -90.0):
        # some projections draw the pole as a line; only one that is a point for every longitude can lie inside
        xs, ys = inverse.transform([0.0, 90.0, 180.0], [latitude] * 3)
        if not (np.isfinite(xs).all() and np.isfinite(ys).all()) or np.ptp(xs) > 1e-3 or np.ptp(ys) > 1e-3:
            continue
        column, row = back.a * xs[0] + back.b * ys[0] + back.c, back.d * xs[0] + back.e * ys[0] + back.f
        if _HAIR < column < width - _HAIR and _HAIR < row < height - _HAIR:
            found.append(latitude)
        elif -_HAIR <= column <= width + _HAIR and -_HAIR <= row <= height + _HAIR:
            inset = 2 * _HAIR
    return found, inset


def _around_poles(lon: Floats, lat: Floats, poles: list[float]) -> BaseGeometry:
    turn = lon[-1] - lon[0]
    if len(poles) == 2 or abs(abs(turn) - 360.0) > 1e-6:
        # the outline passes too near the pole to be followed, or holds both: every longitude, down to the farthest latitude
        south = -90.0 if -90.0 in poles else float(lat.min())
        north = 90.0 if 90.0 in poles else float(lat.max())
        return box(-180.0, south, 180.0, north)
    pole = poles[0]
    ring = [*zip(lon, lat, strict=True), (lon[-1], pole), (lon[0], pole)]
    return _roll_up(Polygon(ring))


def _roll_up(unrolled: BaseGeometry) -> BaseGeometry:
    """Cut a shape with longitudes on any turn at 180 degrees and bring its parts into -180..180."""
    whole = shapely.make_valid(unrolled)
    left, _, right, _ = whole.bounds
    parts = []
    for turn in range(math.floor((left + 180.0) / 360.0), math.ceil((right + 180.0) / 360.0)):
        world = box(360.0 * turn - 180.0, -90.0, 360.0 * turn + 180.0, 90.0)
        cut = whole.intersection(world)
        parts += [
            shapely.transform(part, lambda points, by=360.0 * turn: points - [by, 0.0])
            for part in getattr(cut, "geoms", [cut])
            if part.geom_type in ("Polygon", "MultiPolygon") and part.area > 0
        ]
    if not parts:
        raise NoFootprintError("the raster's outline has no area on the Earth")
    flat = [piece for part in parts for piece in getattr(part, "geoms", [part])]
    joined = shapely.union_all(flat) if len(flat) > 1 else flat[0]
    return _only_polygons(shapely.orient_polygons(joined))


def _only_polygons(shape: BaseGeometry) -> BaseGeometry:
    if shape.geom_type in ("Polygon", "MultiPolygon"):
        return shape
    return MultiPolygon([part for part in getattr(shape, "geoms", []) if part.geom_type == "Polygon"])


def _from_cells(project: ToLonLat, affine: Affine, width: int, height: int) -> BaseGeometry:
    """The parts of the raster that lie on the Earth, from cells whose corners all do; cells that are cut are looked at finer."""
    edges = np.stack(np.meshgrid(np.arange(_CELLS), np.arange(_CELLS)), axis=-1).reshape(-1, 2) / _CELLS
    whole, cut = _corners(project, affine, (width, height), edges, 1 / _CELLS)
    parts = np.stack(np.meshgrid(np.arange(_CELL_PARTS), np.arange(_CELL_PARTS)), axis=-1).reshape(-1, 2) / (_CELLS * _CELL_PARTS)
    finer, _ = _corners(project, affine, (width, height), (cut[:, None, :] + parts).reshape(-1, 2), 1 / (_CELLS * _CELL_PARTS))
    cells = np.concatenate([whole, finer])
    if not len(cells):
        raise NoFootprintError("no part of the raster lies on the Earth")
    cells[..., 0] = np.unwrap(cells[..., 0], period=360.0, axis=1)
    grown = shapely.buffer(shapely.union_all(shapely.polygons(cells)), _LIMB_DEGREES, join_style="mitre")
    return _roll_up(grown)


def _corners(
    project: ToLonLat, affine: Affine, size: tuple[int, int], lows: Floats, side: float
) -> tuple[Floats, npt.NDArray[np.float64]]:
    """Corners `(cell, 4, lon/lat)` of the square cells that lie on the Earth, and the low ends of those that do in part.

    `lows` and `side` are fractions of the raster's width and height.
    """
    squares = lows[:, None, :] + np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * side
    column, row = squares[..., 0].ravel() * size[0], squares[..., 1].ravel() * size[1]
    a, b, c, d, e, f = affine[:6]
    lon, lat = project(a * column + b * row + c, d * column + e * row + f)
    corners = np.stack([lon, lat], axis=-1).reshape(-1, 4, 2)
    seen = np.isfinite(corners).all(axis=2).sum(axis=1)
    return corners[seen == 4], lows[(seen > 0) & (seen < 4)]
