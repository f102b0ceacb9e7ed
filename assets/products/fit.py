"""How a source band fits a grid: how many of its pixels one pixel of the grid spans, and which of its overviews serves.

A pixel may not depend on the tile or batch it is made in. GDAL's warper takes kernel size and overview from the chunk it works
on, so that neighbouring tiles differ; here both follow from the band and the grid alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyproj
from affine import Affine
from numpy.typing import NDArray
from rasterio.crs import CRS

Points = NDArray[np.float64]

# a scene of the whole world has few points that a local grid can describe
_SAMPLES = (9, 65)
_SAMPLES_MIN = 5
_NEARLY_WHOLE = 0.05
_OVERVIEW_SLACK = 0.1
_OUTLIER = 8.0


@dataclass(frozen=True, slots=True)
class Fit:
    """Source pixels (full resolution) per grid pixel: typical along source columns and rows, and the largest product met."""

    columns: float
    rows: float
    area_max: float

    def reduced(self, factor: float) -> Fit:
        """The same for an overview with `factor` times fewer pixels along each axis."""
        return Fit(self.columns / factor, self.rows / factor, self.area_max / factor**2)

    @property
    def scales(self) -> tuple[float, float]:
        """GDAL's XSCALE and YSCALE: grid pixels per source pixel, 1 where the grid is as fine as the source or finer."""
        return _kernel_scale(self.columns), _kernel_scale(self.rows)


def _kernel_scale(pixels: float) -> float:
    # as GDAL's warper does for its chunks: nearly whole ratios count as whole
    nearest = max(1, math.floor(pixels + 0.5))
    if abs(pixels - nearest) < _NEARLY_WHOLE or pixels < 1:
        return 1.0 / nearest
    return 1.0 / pixels


def overview_for(fit: Fit, factors: Sequence[int]) -> int | None:
    """Index of the coarsest overview not coarser than the grid, as `gdalwarp -ovr AUTO` chooses; None: full resolution."""
    target = min(fit.columns, fit.rows)
    best, best_factor = None, 1
    for index, factor in enumerate(factors):
        if best_factor < factor < target + _OVERVIEW_SLACK:
            best, best_factor = index, factor
    return best if target > 1.0 else None


@lru_cache(maxsize=1024)
def parse_crs(text: str) -> CRS:
    """The CRS of an authority code or WKT. Raises `rasterio.errors.CRSError`."""
    return CRS.from_user_input(text)


@lru_cache(maxsize=4096)
def fit_of(
    *, crs: str, transform: tuple[float, ...], width: int, height: int, grid_crs: str, pixel_width: float, pixel_height: float
) -> Fit:
    """How a band of `width` x `height` pixels fits a grid with pixels of that size. Median over points spread over the band."""
    place = Affine(*transform[:6])
    if parse_crs(crs) == parse_crs(grid_crs):
        inverse = ~place
        across = abs(inverse.a * pixel_width) + abs(inverse.b * pixel_height)
        down = abs(inverse.d * pixel_width) + abs(inverse.e * pixel_height)
        return Fit(_tidy(across), _tidy(down), _tidy(across * down))
    for samples in _SAMPLES:
        across, down = _spans(crs, place, (width, height), grid_crs, (pixel_width, pixel_height), samples)
        if across.size >= _SAMPLES_MIN:
            break
    if not across.size:
        return Fit(1.0, 1.0, 1.0)
    typical = float(np.median(across)), float(np.median(down))
    area = across * down
    # a sample whose pixel lies across the edge of the grid's world spans nearly all of the source
    area_max = float(area[area <= _OUTLIER * typical[0] * typical[1]].max(initial=typical[0] * typical[1]))
    return Fit(_tidy(typical[0]), _tidy(typical[1]), _tidy(area_max))


@lru_cache(maxsize=256)
def _transformer(here: str, there: str) -> pyproj.Transformer:
    return pyproj.Transformer.from_crs(here, there, always_xy=True)


def _spans(
    crs: str, place: Affine, shape: tuple[int, int], grid_crs: str, pixel: tuple[float, float], samples: int
) -> tuple[Points, Points]:
    """Source columns and rows that grid pixels span, at those of `samples` x `samples` points that both CRSs can describe."""
    spread = (np.arange(samples) + 0.5) / samples
    columns, rows = (axis.ravel() for axis in np.meshgrid(spread * shape[0], spread * shape[1]))
    x, y = place.a * columns + place.b * rows + place.c, place.d * columns + place.e * rows + place.f
    grid_x, grid_y = moved(crs, grid_crs, x, y)
    inverse = ~place
    across, down = np.zeros(x.shape), np.zeros(x.shape)
    with np.errstate(invalid="ignore"):
        for dx, dy in ((pixel[0] / 2, 0.0), (0.0, pixel[1] / 2)):
            low_x, low_y = moved(grid_crs, crs, grid_x - dx, grid_y - dy)
            high_x, high_y = moved(grid_crs, crs, grid_x + dx, grid_y + dy)
            along_x, along_y = high_x - low_x, high_y - low_y
            across += np.abs(inverse.a * along_x + inverse.b * along_y)
            down += np.abs(inverse.d * along_x + inverse.e * along_y)
    usable = np.isfinite(across) & np.isfinite(down)
    return across[usable], down[usable]


def moved(here: str, there: str, x: Points, y: Points) -> tuple[Points, Points]:
    """Coordinates of `here` in `there`, not finite where there are none. GDAL raises for all points when one has no place."""
    result = _transformer(here, there).transform(x, y)
    return np.asarray(result[0], dtype=np.float64), np.asarray(result[1], dtype=np.float64)


def _tidy(value: float) -> float:
    # PROJ's last digits differ between builds and may not decide a kernel
    return float(f"{value:.6g}")
