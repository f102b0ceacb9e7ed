"""Builders of a window's tiles: ledger-like rows and real tile files on a small metric grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from shapely.geometry import box

from assets.grid import Grid, Tile
from resources.config_scenes import GridConfig, ProductConfig
from resources.keys import digest_file, digest_of
from resources.units import UnitState
from resources.windows import BatchWindow

WINDOW = BatchWindow(key="2024-05-01", start=datetime(2024, 5, 1, tzinfo=UTC), end=datetime(2024, 5, 2, tzinfo=UTC))
PRODUCT = ProductConfig(name="plain", bands=("b1",), dtype="int16", nodata=-1)
TILE_PX = 16
PIXEL_M = 10.0
ORIGIN = (500_000.0, 5_000_000.0)


@dataclass(frozen=True)
class Row:
    """A ledger row of one tile, as far as a window's outputs ask."""

    key: str
    product: str
    window: str
    tile: str | None
    output_uri: str
    state: UnitState = UnitState.COMPLETE
    spec: Mapping[str, Any] = field(default_factory=dict)
    error_kind: str | None = None
    reason: str | None = None
    output_digest: str | None = None
    output_size: int | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)


def metric_grid(*, columns: int = 3, rows: int = 2, crs: str = "EPSG:32632") -> Grid:
    """A grid of `columns` x `rows` tiles of 16 px at 10 m, hanging from (500 000, 5 000 000)."""
    import pyproj
    import shapely

    span = TILE_PX * PIXEL_M
    shrunk = box(ORIGIN[0] + 1, ORIGIN[1] - rows * span + 1, ORIGIN[0] + columns * span - 1, ORIGIN[1] - 1)
    to_wgs84 = pyproj.Transformer.from_crs(crs, "OGC:CRS84", always_xy=True)
    area = shapely.transform(shrunk, to_wgs84.transform, interleaved=False)
    return Grid(GridConfig(crs=crs, resolution=PIXEL_M, origin=ORIGIN, tile_px=TILE_PX, metatile=2, area="unused"), area)


def tile_row(tile: Tile, *, product: str = "plain", window: str = WINDOW.key, **changes: Any) -> Row:
    """A COMPLETE row without a file behind it."""
    key = digest_of([product, window, tile.name])
    row = Row(
        key=key,
        product=product,
        window=window,
        tile=tile.name,
        output_uri=f"tiles/{product}/{window}/{tile.name}.{key[:16]}.tif",
        output_digest=digest_of(key),
        output_size=1_000,
        metrics={
            "valid_share": 1.0,
            "bands": [{"min": 1.0, "max": 9.0, "mean": 5.0, "std": 2.0}],
            "source_scenes": ["scene-a", "scene-b"],
        },
    )
    return replace(row, **changes)


def write_tile(
    store: Path, grid: Grid, row: Row, pixels: np.ndarray, *, nodata: float | None = -1, mask: np.ndarray | None = None
) -> Row:
    """Write `pixels`, `(band, y, x)`, where `row` says its output is; returns the row with the file's digest and size."""
    assert row.tile is not None
    place = grid.box(Tile.parse(row.tile))
    path = store / row.output_uri
    path.parent.mkdir(parents=True, exist_ok=True)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(
        path, "w", driver="GTiff", width=pixels.shape[2], height=pixels.shape[1], count=pixels.shape[0], dtype=pixels.dtype,
        crs=place.crs, transform=place.transform, nodata=nodata,
    ) as file:  # fmt: skip
        file.write(pixels)
        if mask is not None:
            file.write_mask(mask)
    return replace(row, output_digest=digest_file(path), output_size=path.stat().st_size)
