"""Statistics of polygons over a mosaic by exact coverage of pixels: exactextract's engine over tiles of ours.

exactextract asks for the pixels of one block at a time and for polygons one by one; this module gives it both without a file in
between, so that no virtual raster is opened and memory does not follow the size of a zone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import shapely
from exactextract import exact_extract
from exactextract.feature import Feature, FeatureSource
from exactextract.raster import RasterSource
from shapely.geometry.base import BaseGeometry

from assets.tile_mosaic import TileMosaic

CELLS_MAX = 1_000_000
"""Pixels of one band that are read at once."""


class _BandSource(RasterSource):  # type: ignore[misc]
    """One band of a mosaic."""

    def __init__(self, mosaic: TileMosaic, band: int) -> None:
        super().__init__()
        self._mosaic = mosaic
        self._band = band
        self.set_name(f"band{band}")

    def res(self) -> tuple[float, float]:
        return self._mosaic.resolution

    def extent(self) -> tuple[float, float, float, float]:
        return self._mosaic.bounds

    def nodata_value(self) -> None:
        """None: what is absent is masked."""

    def srs_wkt(self) -> None:
        """None: the zones are in the mosaic's CRS, and nothing is to be compared."""

    def read_window(self, x0: int, y0: int, nx: int, ny: int) -> Any:
        return self._mosaic.read(self._band, column=x0, row=y0, width=nx, height=ny)


class _Zone(Feature):  # type: ignore[misc]
    """One polygon as WKB; GeoJSON text would cost more than the statistics."""

    def __init__(self, shape: BaseGeometry) -> None:
        super().__init__()
        self._shape = shape

    def geometry(self) -> bytes:
        return bytes(shapely.to_wkb(self._shape))

    def get(self, name: str) -> None:
        raise KeyError(name)

    def fields(self) -> list[str]:
        return []


class _Zones(FeatureSource):  # type: ignore[misc]
    def __init__(self, shapes: Sequence[BaseGeometry]) -> None:
        super().__init__()
        self._shapes = shapes

    def count(self) -> int:
        return len(self._shapes)

    def __iter__(self) -> Iterator[_Zone]:
        return (_Zone(shape) for shape in self._shapes)

    def srs_wkt(self) -> None:
        """None: see `_BandSource.srs_wkt`."""


def coverage_statistics(
    mosaic: TileMosaic, shapes: Sequence[BaseGeometry], *, bands: int, statistics: Sequence[str]
) -> list[list[dict[str, float | None]]]:
    """For each shape, for each band: the statistics and `covered_share`, the share of its area under valid pixels (0..1).

    `shapes` are polygons with an area, in the mosaic's CRS; pixels count by the share that is covered. None is a statistic
    of no pixel. Raises as `TileMosaic.read`.
    """
    if not shapes:
        return []
    sources = [_BandSource(mosaic, band) for band in range(1, bands + 1)]
    asked = list(dict.fromkeys(["count", *statistics]))
    found = exact_extract(sources, _Zones(shapes), asked, max_cells_in_memory=CELLS_MAX)
    pixel_area = mosaic.resolution[0] * mosaic.resolution[1]
    results = []
    for shape, feature in zip(shapes, found, strict=True):
        of_bands = []
        for band in range(1, bands + 1):
            # exactextract leaves the source's name out when there is but one
            prefix = f"band{band}_" if bands > 1 else ""
            values = {name: _number(feature["properties"][prefix + name]) for name in asked}
            share = min(1.0, (values["count"] or 0.0) * pixel_area / shape.area)
            of_bands.append({**{name: values[name] for name in statistics}, "covered_share": share})
        results.append(of_bands)
    return results


def no_coverage(statistics: Sequence[str]) -> dict[str, float | None]:
    """The statistics of a zone that no pixel covers."""
    return {**{name: 0.0 if name in ("count", "sum") else None for name in statistics}, "covered_share": 0.0}


def _number(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None
