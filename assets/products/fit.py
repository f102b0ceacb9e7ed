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
from affine import Affine
from numpy.typing import NDArray
from rasterio.crs import CRS
from rasterio.errors import RasterioError
from rasterio.warp import transform as transform_points

Points = NDArray[np.float64]

_SAMPLES = 9
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
    source = Affine(*transform[:6])
    inverse = ~source
    spread = (np.arange(_SAMPLES) + 0.5) / _SAMPLES
    columns, rows = (axis.ravel() for axis in np.meshgrid(spread * width, spread * height))
    x = source.a * columns + source.b * rows + source.c
    y = source.d * columns + source.e * rows + source.f
    here, there = parse_crs(crs), parse_crs(grid_crs)
    if here == there:
        ax, bx = inverse.a * pixel_width, inverse.b * pixel_height
        ay, by = inverse.d * pixel_width, inverse.e * pixel_height
        across, down = abs(ax) + abs(bx), abs(ay) + abs(by)
        return Fit(_tidy(across), _tidy(down), _tidy(across * down))
    grid_x, grid_y = _moved(here, there, x, y)
    spans = []
    for dx, dy in ((pixel_width, 0.0), (0.0, pixel_height)):
        low_x, low_y = _moved(there, here, grid_x - dx / 2, grid_y - dy / 2)
        high_x, high_y = _moved(there, here, grid_x + dx / 2, grid_y + dy / 2)
        along_x, along_y = high_x - low_x, high_y - low_y
        spans.append((np.abs(inverse.a * along_x + inverse.b * along_y), np.abs(inverse.d * along_x + inverse.e * along_y)))
    with np.errstate(invalid="ignore"):
        across, down = spans[0][0] + spans[1][0], spans[0][1] + spans[1][1]
    usable = np.isfinite(across) & np.isfinite(down)
    if not usable.any():
        return Fit(1.0, 1.0, 1.0)
    across, down = across[usable], down[usable]
    typical = float(np.median(across)), float(np.median(down))
    area = across * down
    # a sample whose pixel lies across the edge of the grid's world spans nearly all of the source
    area_max = float(area[area <= _OUTLIER * typical[0] * typical[1]].max(initial=typical[0] * typical[1]))
    return Fit(_tidy(typical[0]), _tidy(typical[1]), _tidy(area_max))


def _moved(here: CRS, there: CRS, x: Points, y: Points) -> tuple[Points, Points]:
    try:
        moved = transform_points(here, there, x, y)
    except RasterioError:
        return np.full(x.shape, np.nan), np.full(x.shape, np.nan)
    return np.asarray(moved[0]), np.asarray(moved[1])


def _tidy(value: float) -> float:
    # PROJ's last digits differ between builds and may not decide a kernel
    return float(f"{value:.6g}")
