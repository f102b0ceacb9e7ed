"""The tile grid: which output tiles and partitions there are, and where they lie.

Belongs here: geometry of tiles only. A tile is one output; a metatile of n x n tiles is one Dagster partition. Neither its size
nor its name is ever part of a unit key.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import antimeridian
import geopandas as gpd
import morecantile
import numpy as np
import pyproj
import shapely
from affine import Affine
from shapely.geometry import box
from shapely.geometry.base import BaseGeometry

from resources.config_scenes import GridConfig, ScenesConfig
from resources.errors import ConfigurationError

Bounds = tuple[float, float, float, float]
"""`(left, bottom, right, top)` in a CRS that the name or the docstring says."""

_EDGE_POINTS = 21
_WORLD_SIZE_MAX = 140_000_000
"""The Earth's girth in feet and some more: no projected CRS in use counts further from its origin."""
_TILES_MAX = 50_000_000


@dataclass(frozen=True, slots=True, order=True)
class Tile:
    """One output tile: zoom, column counted east, row counted south."""

    z: int
    x: int
    y: int

    @property
    def name(self) -> str:
        """Name in file names, columns and keys, e.g. `12-840-1524`."""
        return f"{self.z}-{self.x}-{self.y}"

    @classmethod
    def parse(cls, name: str) -> Tile:
        """The tile of that name. Raises `ValueError` for anything `name` does not write."""
        z, x, y = (int(part) for part in name.split("-"))
        return cls(z, x, y)


@dataclass(frozen=True, slots=True)
class TileBox:
    """Where a tile's pixels lie: `shape` is `(height, width)`, `bounds` are in `crs` units."""

    crs: str
    bounds: Bounds
    shape: tuple[int, int]

    @property
    def transform(self) -> Affine:
        """Pixel (column, row) to `crs` coordinates, north up."""
        left, bottom, right, top = self.bounds
        return Affine((right - left) / self.shape[1], 0.0, left, 0.0, (bottom - top) / self.shape[0], top)


class Grid:
    """All tiles of the configured grid that touch the area of interest."""

    def __init__(self, config: GridConfig, area: BaseGeometry) -> None:
        self.config = config
        self.area = area
        if config.tms is not None:
            try:
                self._tms = morecantile.tms.get(config.tms)
            except morecantile.errors.InvalidIdentifier:
                raise ConfigurationError(
                    f"grid.tms: unknown tile matrix set {config.tms!r}; allowed: {', '.join(sorted(morecantile.tms.list()))}"
                ) from None
            self.z = int(config.zoom or 0)
            if self._tms.is_variable:
                raise ConfigurationError(f"grid.tms: {config.tms} has rows of unequal tile widths, which are not supported")
            if not self._tms.minzoom <= self.z <= self._tms.maxzoom:
                raise ConfigurationError(
                    f"grid.zoom: {config.tms} has no zoom {self.z}; allowed: {self._tms.minzoom}..{self._tms.maxzoom}"
                )
            matrix = self._tms.matrix(self.z)
            self.crs = self._tms.rasterio_crs.to_string()
            self._pixel = float(matrix.cellSize) * matrix.tileWidth / config.tile_px
            self._origin = self._tms.xy_bbox.left, self._tms.xy_bbox.top
            self._columns, self._rows = range(matrix.matrixWidth), range(matrix.matrixHeight)
        else:
            try:
                crs = pyproj.CRS.from_user_input(config.crs)
            except pyproj.exceptions.CRSError as error:
                raise ConfigurationError(f"grid.crs: {config.crs!r} is not a CRS that PROJ knows: {error}") from None
            self.z = 0
            self.crs = str(config.crs)
            self._pixel = float(config.resolution or 0)
            self._origin = config.origin or ((-180.0, 90.0) if crs.is_geographic else (0.0, 10_000_000.0))
            self._columns = self._rows = range(0, int(_WORLD_SIZE_MAX / (self._pixel * config.tile_px)) + 1)
        self._span = self._pixel * config.tile_px
        # all names of one grid have one width, so that they sort as the numbers do; short, so that the UI shows them whole
        last = max(self._columns.stop, self._rows.stop) - 1
        self._digits = max(3, len(str(last // config.metatile)))

    @classmethod
    def from_config(cls, config: ScenesConfig) -> Grid:
        """The grid of a configuration. Raises `ConfigurationError` naming the key when grid or area cannot be used."""
        return cls(config.grid, read_area(config))

    @property
    def resolution(self) -> float:
        """Pixel size in units of the grid's CRS."""
        return self._pixel

    def settings(self) -> dict[str, object]:
        """What of the grid decides pixels, for unit keys: CRS, pixel size, origin, tile size."""
        return {
            "crs": self.crs,
            "pixel": repr(self._pixel),
            "origin": [repr(v) for v in self._origin],
            "tile_px": self.config.tile_px,
        }

    def box(self, tile: Tile) -> TileBox:
        """The tile's place, bounds in the grid's CRS. Neighbours share their edge to the last bit."""
        left, top = self._origin
        size = self.config.tile_px
        edges = (
            left + tile.x * self._span,
            top - (tile.y + 1) * self._span,
            left + (tile.x + 1) * self._span,
            top - tile.y * self._span,
        )
        return TileBox(crs=self.crs, bounds=edges, shape=(size, size))

    @cached_property
    def tiles(self) -> tuple[Tile, ...]:
        """Tiles that touch the area of interest, sorted. Raises `ConfigurationError` when there are none or far too many."""
        found = sorted(self.tiles_touching(self._area_in_grid))
        if not found:
            raise ConfigurationError("grid.area: no tile of the grid touches it; give an area inside the grid's extent")
        return tuple(found)

    def tiles_touching(self, geometry: BaseGeometry) -> Iterator[Tile]:
        """Tiles that share more than an edge with `geometry`, which is in the grid's CRS."""
        seen: set[Tile] = set()
        for part in getattr(geometry, "geoms", [geometry]):
            if part.is_empty:
                continue
            left, bottom, right, top = part.bounds
            columns = _span_indices(left - self._origin[0], right - self._origin[0], self._span, self._columns)
            rows = _span_indices(self._origin[1] - top, self._origin[1] - bottom, self._span, self._rows)
            if len(columns) * len(rows) > _TILES_MAX:
                raise ConfigurationError(
                    f"grid: {len(columns) * len(rows)} tiles; allowed: {_TILES_MAX}. "
                    "Use a lower zoom, a coarser resolution or a smaller area"
                )
            shapely.prepare(part)
            x = np.arange(columns.start, columns.stop)
            lefts, rights = self._origin[0] + x * self._span, self._origin[0] + (x + 1) * self._span
            for y in rows:
                boxes = shapely.box(lefts, self._origin[1] - (y + 1) * self._span, rights, self._origin[1] - y * self._span)
                near = np.flatnonzero(shapely.intersects(part, boxes))
                for column in near[~shapely.touches(part, boxes[near])]:
                    tile = Tile(self.z, columns.start + int(column), y)
                    if tile not in seen:
                        seen.add(tile)
                        yield tile

    def partition_of(self, tile: Tile) -> str:
        """Name of the metatile that holds `tile`; names sort in reading order, so that neighbours join into ranges."""
        n = self.config.metatile
        return f"z{tile.z:02d}m{n}.y{tile.y // n:0{self._digits}d}.x{tile.x // n:0{self._digits}d}"

    @cached_property
    def partitions(self) -> dict[str, tuple[Tile, ...]]:
        """Tiles of each partition, in the order of partition names."""
        grouped: dict[str, list[Tile]] = {}
        for tile in self.tiles:
            grouped.setdefault(self.partition_of(tile), []).append(tile)
        return {name: tuple(sorted(grouped[name])) for name in sorted(grouped)}

    def footprint(self, tile: Tile) -> BaseGeometry:
        """Outline of a tile in WGS 84, `(longitude, latitude)`, with points along its edges; two parts where it crosses 180."""
        moved = shapely.transform(outline(self.box(tile).bounds), self._to_wgs84.transform, interleaved=False)
        if np.abs(np.diff(shapely.get_coordinates(moved)[:, 0])).max() > 180.0:
            return antimeridian.fix_polygon(moved)
        return moved

    @cached_property
    def _to_wgs84(self) -> pyproj.Transformer:
        return pyproj.Transformer.from_crs(self.crs, "OGC:CRS84", always_xy=True)

    @cached_property
    def _area_in_grid(self) -> BaseGeometry:
        inverse = pyproj.Transformer.from_crs("OGC:CRS84", self.crs, always_xy=True)
        area = self.area
        if self.config.tms is not None and self._tms.bbox.left <= -180.0 and self._tms.bbox.right >= 180.0:
            area = shapely.intersection(area, box(*self._tms.bbox))  # Mercator ends before the poles
        if area.is_empty:
            raise ConfigurationError(
                f"grid.area: lies outside {self.config.tms}, which covers {tuple(self._tms.bbox)} in degrees"
            )
        west, south, east, north = area.bounds
        dense = shapely.segmentize(area, max(0.01, max(east - west, north - south) / 64))
        moved = shapely.transform(dense, inverse.transform, interleaved=False)
        if not np.all(np.isfinite(shapely.get_coordinates(moved))):
            raise ConfigurationError(
                f"grid.area: lies outside what {self.crs} can describe; choose another CRS or a smaller area"
            )
        left, _, _, top = moved.bounds
        if self.config.tms is None and (left < self._origin[0] or top > self._origin[1]):
            raise ConfigurationError(
                f"grid.origin: the area of interest begins at left {left:.10g}, top {top:.10g} in {self.crs}, before "
                f"the grid's origin {list(self._origin)}; give an origin to the left of it and above it"
            )
        return shapely.make_valid(moved)


def _span_indices(low: float, high: float, span: float, allowed: range) -> range:
    first = max(math.floor(low / span), allowed.start)
    last = min(math.ceil(high / span), allowed.stop)
    return range(first, max(first, last))


def outline(bounds: Bounds) -> BaseGeometry:
    """The rectangle of `bounds` with points along each edge, so that a reprojection keeps its curves."""
    left, bottom, right, top = bounds
    step = max(right - left, top - bottom) / (_EDGE_POINTS - 1)
    return shapely.segmentize(box(left, bottom, right, top), step)


def read_area(config: ScenesConfig) -> BaseGeometry:
    """The area of interest in WGS 84 `(longitude, latitude)`. Raises `ConfigurationError` naming what was found."""
    text = config.grid.area
    numbers = _as_numbers(text.split(","))
    if numbers is not None:
        if len(numbers) != 4 or not all(math.isfinite(value) for value in numbers):
            raise ConfigurationError(f"grid.area: {text!r} is not 'left,bottom,right,top' in degrees")
        left, bottom, right, top = numbers
        if not (-90 <= bottom < top <= 90 and -180 <= left <= 180 and -180 <= right <= 180 and left != right):
            raise ConfigurationError(
                f"grid.area: {text!r} must satisfy -180 <= left, right <= 180 and -90 <= bottom < top <= 90; "
                "left > right crosses 180 degrees"
            )
        if left > right:
            return shapely.union_all([box(left, bottom, 180.0, top), box(-180.0, bottom, right, top)])
        return box(left, bottom, right, top)
    path = config.resolve(text)
    try:
        frame = gpd.read_file(path)
    except Exception as error:  # pyogrio raises its own family, OSError and ValueError alike
        raise ConfigurationError(f"grid.area: {path} cannot be read as a vector file: {error}") from error
    if frame.empty or frame.crs is None:
        raise ConfigurationError(
            f"grid.area: {path} has {len(frame)} features and CRS {frame.crs}; needs at least one, and a CRS"
        )
    return _within_180(shapely.make_valid(shapely.union_all(shapely.make_valid(frame.to_crs("OGC:CRS84").geometry.to_numpy()))))


def _within_180(area: BaseGeometry) -> BaseGeometry:
    """The same area with longitudes of -180..180; files that count 0..360, or on beyond 180, are brought back."""
    if area.bounds[0] >= -180.0 and area.bounds[2] <= 180.0:
        return area
    parts = [
        shapely.transform(
            shapely.intersection(area, box(shift - 180.0, -90.0, shift + 180.0, 90.0)), lambda xy, by=shift: xy - (by, 0.0)
        )
        for shift in (-360.0, 0.0, 360.0)
    ]
    return shapely.union_all([part for part in parts if part.area > 0])


def _as_numbers(parts: Iterable[str]) -> list[float] | None:
    try:
        return [float(part) for part in parts]
    except ValueError:
        return None
