"""Windowed reads of scenes onto the grid, exact and independent of the batch.

Every read goes through a `WarpedVRT` with the exact transformer, in parts whose share of the source is bounded, so that memory
does not grow with the scene. Values arrive as floats that hold the source's numbers exactly; NaN means absent, whatever the
source calls it: nodata, a mask, alpha, NaN, or no pixel at all. Bands of one file are read together as gdalwarp does it: a pixel
where all are nodata is absent, and a nodata pixel of one band is kept out of that band's interpolation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from affine import Affine
from numpy.typing import NDArray
from rasterio._err import CPLE_BaseError
from rasterio.crs import CRS
from rasterio.enums import MaskFlags, Resampling
from rasterio.errors import RasterioError
from rasterio.io import DatasetReader
from rasterio.vrt import WarpedVRT

from assets.grid import TileBox
from assets.products.fit import Fit, Points, fit_of, moved, overview_for, parse_crs
from assets.products.model import SceneInput
from assets.scenes.model import BandRef, band_path, file_changed
from resources.errors import ErrorKind, InputRejected, TransientError
from resources.gdal_safety import open_raster, raster_errors

Values = NDArray[Any]
"""Float32 or float64 `(band, y, x)`, NaN where absent."""

# GDAL mixes a half transparent pixel with what lies below it unless that is marked as empty, for which it needs a number
_EMPTY = -(2.0**126)
_EXACT_TRANSFORMER = 1e-9
_BAND_PIXELS_MAX = 8_000_000
_SMALLEST_PX = 4
_PROBES = 17
_WITHIN_PX = 2.0
_NARROW = frozenset({"uint8", "int8", "uint16", "int16", "float32"})
_WORLD_WIDTH = {"EPSG:3857": 2 * math.pi * 6378137.0}


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a tile: where it begins in the tile, its shape, and its place in the grid's CRS."""

    row: int
    column: int
    height: int
    width: int
    transform: Affine
    crs: str

    @property
    def window(self) -> tuple[slice, slice]:
        """Rows and columns of the tile."""
        return slice(self.row, self.row + self.height), slice(self.column, self.column + self.width)


def parts_of(block: Block, height: int, width: int) -> Iterator[Block]:
    """The block cut into blocks of at most `height` x `width` pixels, in reading order."""
    for row in range(0, block.height, height):
        for column in range(0, block.width, width):
            place = block.transform @ Affine.translation(column, row)
            rows, columns = min(height, block.height - row), min(width, block.width - column)
            yield Block(block.row + row, block.column + column, rows, columns, place, block.crs)


@dataclass(frozen=True, slots=True)
class SceneReader:
    """Reads bands of scenes onto blocks of one tile. `source_dir` is the folder that uris hang from."""

    box: TileBox
    source_dir: Path
    drivers: Sequence[str]

    def blocks(self, *, pixels_max: int) -> Iterator[Block]:
        """The tile cut into square blocks of at most `pixels_max` pixels, or whole if it is no larger."""
        height, width = self.box.shape
        side = max(height, width) if height * width <= pixels_max else max(1, math.isqrt(pixels_max))
        yield from parts_of(Block(0, 0, height, width, self.box.transform, self.box.crs), side, side)

    def read(
        self, scene: SceneInput, names: Sequence[str], block: Block, *, resampling: str, full_resolution: bool = False
    ) -> Values:
        """The bands `names` of a scene on a block, `(band, y, x)`, float32 where that holds the source's numbers, else float64.

        `full_resolution` keeps overviews out. Raises `InputRejected` with the scene's digest for what cannot be decoded (no
        retry), and `TransientError` (INPUT_CHANGED, retry) when a file is not the one that was pinned.
        """
        files: dict[str, list[BandRef]] = {}
        for name in names:
            files.setdefault(scene.bands[name].uri, []).append(scene.bands[name])
        exact = "float32" if all(scene.bands[name].dtype in _NARROW for name in names) else "float64"
        result = np.empty((len(names), block.height, block.width), dtype=exact)
        for bands in files.values():
            arrays = self._read_file(scene, bands, block, resampling=resampling, full_resolution=full_resolution)
            by_name = dict(zip((band.name for band in bands), arrays, strict=True))
            for position, name in enumerate(names):
                if name in by_name:
                    result[position] = by_name[name]
        return result

    def _read_file(
        self, scene: SceneInput, bands: Sequence[BandRef], block: Block, *, resampling: str, full_resolution: bool
    ) -> Values:
        band = bands[0]
        path = band_path(band, self.source_dir)
        shown = f"scene {scene.scene_id}, file {band.uri!r}"
        self._refuse_changed(scene, band)
        try:
            with raster_errors(path, input_digest=scene.digest, name=shown), self._open(scene, band, None) as source:
                self._refuse_unlike(scene, bands, source)
                fit = self._fit(band)
                level = None if full_resolution else overview_for(fit, source.overviews(band.index))
                if level is None:
                    values = _warp_describable(source, bands, block, fit=fit, resampling=resampling)
                else:
                    with self._open(scene, band, level) as reduced:
                        fit = fit.reduced(source.width / reduced.width)
                        values = _warp_describable(reduced, bands, block, fit=fit, resampling=resampling)
        except InputRejected:
            # a file that is being replaced reads like a broken one
            self._refuse_changed(scene, band)
            raise
        self._refuse_changed(scene, band)
        return values

    def _open(self, scene: SceneInput, band: BandRef, level: int | None) -> DatasetReader:
        options = {} if level is None else {"OVERVIEW_LEVEL": level}
        path = band_path(band, self.source_dir)
        return open_raster(
            path, self.drivers, input_digest=scene.digest, name=f"scene {scene.scene_id}, file {band.uri!r}", **options
        )

    def _fit(self, band: BandRef) -> Fit:
        left, bottom, right, top = self.box.bounds
        return fit_of(
            crs=band.crs,
            transform=band.transform,
            width=band.width,
            height=band.height,
            grid_crs=self.box.crs,
            pixel_width=float(f"{(right - left) / self.box.shape[1]:.12g}"),
            pixel_height=float(f"{(top - bottom) / self.box.shape[0]:.12g}"),
        )

    def _refuse_changed(self, scene: SceneInput, band: BandRef) -> None:
        if file_changed(band, self.source_dir):
            raise TransientError(
                f"scene {scene.scene_id}: {band.uri!r} changed while it was read; the next look at the source pins it again",
                kind=ErrorKind.INPUT_CHANGED,
            )

    @staticmethod
    def _refuse_unlike(scene: SceneInput, bands: Sequence[BandRef], source: DatasetReader) -> None:
        last = max(band.index for band in bands)
        if source.count < last:
            raise InputRejected(
                f"scene {scene.scene_id}: {bands[0].uri!r} has {source.count} bands; band {last} is asked for",
                input_digest=scene.digest,
                kind=ErrorKind.MISSING_BAND,
            )
        if source.crs is None:
            raise InputRejected(
                f"scene {scene.scene_id}: {bands[0].uri!r} has no CRS; give it one, or remove the scene",
                input_digest=scene.digest,
                kind=ErrorKind.NO_CRS,
            )


def _warp_describable(source: DatasetReader, bands: Sequence[BandRef], block: Block, *, fit: Fit, resampling: str) -> Values:
    """`_warp` in parts where a block spans too much of the source, or has pixels without a place in the source's CRS.

    GDAL warps all bands of a file, asked for or not, and fails for the whole block when it meets a pixel that has no place.
    """
    side = max(block.height, block.width)
    affordable = math.isqrt(int(_BAND_PIXELS_MAX / (source.count * max(fit.area_max, 1.0))))
    if side > max(affordable, _SMALLEST_PX):
        return _warp_parts(source, bands, block, max(affordable, _SMALLEST_PX), fit=fit, resampling=resampling)
    try:
        return _warp(source, bands, block, fit=fit, resampling=resampling)
    except (CPLE_BaseError, RasterioError):
        if _is_describable(source, block):
            raise
    if side <= _SMALLEST_PX:
        return np.full((len(bands), block.height, block.width), np.nan)
    return _warp_parts(source, bands, block, -(-side // 2), fit=fit, resampling=resampling)


def _warp_parts(source: DatasetReader, bands: Sequence[BandRef], block: Block, side: int, *, fit: Fit, resampling: str) -> Values:
    result = np.empty((len(bands), block.height, block.width))
    for part in parts_of(block, side, side):
        row, column = part.row - block.row, part.column - block.column
        values = _warp_describable(source, bands, part, fit=fit, resampling=resampling)
        result[:, row : row + part.height, column : column + part.width] = values
    return result


def _is_covered(source: DatasetReader, block: Block) -> bool:
    """No pixel of the block can be absent: it lies well within the source, and nothing of the source hides a pixel."""
    if any(flags != [MaskFlags.all_valid] for flags in source.mask_flag_enums):
        return False
    x, y = _probes(source, block)
    if not np.isfinite(x + y).all():
        return False
    inverse = ~source.transform
    columns, rows = inverse.a * x + inverse.b * y + inverse.c, inverse.d * x + inverse.e * y + inverse.f
    across = (columns > _WITHIN_PX) & (columns < source.width - _WITHIN_PX)
    down = (rows > _WITHIN_PX) & (rows < source.height - _WITHIN_PX)
    return bool((across & down).all())


def _is_describable(source: DatasetReader, block: Block) -> bool:
    return bool(np.isfinite(_probes(source, block)).all())


def _probes(source: DatasetReader, block: Block) -> tuple[Points, Points]:
    """Points spread over the block and its edges, in the source's CRS."""
    along, down = (np.linspace(0, side, _PROBES) for side in (block.width, block.height))
    columns, rows = (axis.ravel() for axis in np.meshgrid(along, down))
    place = block.transform
    x, y = place.a * columns + place.b * rows + place.c, place.d * columns + place.e * rows + place.f
    return moved(block.crs, _wkt_of(source.crs), x, y)


@lru_cache(maxsize=256)
def _wkt_of(crs: CRS) -> str:
    return str(crs.to_wkt())


def _warp(source: DatasetReader, bands: Sequence[BandRef], block: Block, *, fit: Fit, resampling: str) -> Values:
    working = "float32" if all(dtype in _NARROW for dtype in source.dtypes) else "float64"
    x_scale, y_scale = fit.scales
    shifts = _world_shifts(source)
    # GDAL's faster kernels are for pixels of which none can be absent
    is_whole = len(shifts) == 1 and _is_covered(source, block)
    result: Values | None = None
    for shift in shifts:
        with WarpedVRT(
            source,
            crs=parse_crs(block.crs),
            src_transform=Affine.translation(shift, 0.0) @ source.transform,
            transform=block.transform,
            width=block.width,
            height=block.height,
            resampling=Resampling[resampling],
            tolerance=_EXACT_TRANSFORMER,
            dtype=working,
            nodata=None if is_whole else _EMPTY,
            XSCALE=repr(x_scale),
            YSCALE=repr(y_scale),
            UNIFIED_SRC_NODATA="PARTIAL",
        ) as warped:
            # all bands, because GDAL warps them all in any case, and at once only when all are asked for
            values = warped.read()[[band.index - 1 for band in bands]]
        absent = ~np.isfinite(values)
        if not is_whole:
            absent |= values == _EMPTY
        values[absent] = np.nan
        result = values if result is None else np.where(np.isnan(result), values, result)
    assert result is not None
    return result


def _world_shifts(source: DatasetReader) -> list[float]:
    """By how much the source must be moved along x so that every part of it is met.

    PROJ gives longitudes in -180..180; a source that counts 0 to 360, or goes on beyond 180, would lose what lies outside.
    """
    world = 360.0 if source.crs.is_geographic else _WORLD_WIDTH.get(source.crs.to_string())
    if world is None:
        return [0.0]
    place = source.transform
    corners = [place.a * column + place.b * row + place.c for column in (0, source.width) for row in (0, source.height)]
    left, right, half = min(corners), max(corners), world / 2
    slack = (right - left) / source.width
    shifts = [turn * world for turn in (0, -1, 1) if left + turn * world < half - slack and right + turn * world > slack - half]
    return shifts or [0.0]


def scaled(values: Values, bands: Sequence[BandRef]) -> Values:
    """`values` `(band, y, x)` with each band's own scale and offset applied, in float64; NaN stays NaN."""
    if all(band.scale == 1.0 and band.offset == 0.0 for band in bands):
        return values
    factor = np.array([band.scale for band in bands], dtype=np.float64)[:, None, None]
    shift = np.array([band.offset for band in bands], dtype=np.float64)[:, None, None]
    return values.astype(np.float64) * factor + shift
