"""Small pictures of tiles and of a window's mosaic, for reports and for Dagster's metadata.

Values are stretched to the eye, not to the truth: colours tell where something is, not how much. Pictures hold no time and no
text, and equal tiles give equal bytes.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from assets.grid import Tile
from assets.tile_mosaic import TileMosaic
from assets.window_tiles import CompleteTile
from resources.gdal_safety import open_raster, raster_errors, safe_env

THUMBNAIL_PX = 256
_LOW, _HIGH = 2.0, 98.0
_SMALL_PX = (128, 96, 64, 40)
_QUALITIES = (60, 30, 10)
# dark blue, teal, green, yellow: rises in lightness, also for eyes that do not tell red from green
_RAMP = np.array([[38, 27, 84], [49, 104, 142], [53, 183, 121], [253, 231, 37]], dtype=np.float64)

Pixels = npt.NDArray[np.uint8]


def tile_thumbnail(path: Path, *, size_px: int = THUMBNAIL_PX) -> bytes:
    """PNG of one tile file, at most `size_px` on its longer side.

    Raises as `resources.gdal_safety.open_raster` for a file that is gone or not a GeoTIFF.
    """
    return png(_look(path, size_px))


def small_thumbnail(path: Path, *, bytes_max: int) -> bytes:
    """WebP of one tile file in at most `bytes_max` bytes, as large and as fine as fits; empty when not even a tiny one does.

    Raises as `tile_thumbnail`.
    """
    from PIL import Image

    whole = Image.fromarray(_look(path, _SMALL_PX[0]))
    for size_px in _SMALL_PX:
        smaller = whole.copy()
        smaller.thumbnail((size_px, size_px))
        for quality in _QUALITIES:
            stream = io.BytesIO()
            smaller.save(stream, format="WEBP", quality=quality, method=4)
            if stream.tell() <= bytes_max:
                return stream.getvalue()
    return b""


def _look(path: Path, size_px: int) -> Pixels:
    with safe_env(), open_raster(path, ["GTiff"]) as file:
        scale = min(1.0, size_px / max(file.height, file.width))
        shape = (max(1, round(file.height * scale)), max(1, round(file.width * scale)))
        bands = list(range(1, min(file.count, 3) + 1)) if file.count >= 3 else [1]
        with raster_errors(path):
            pixels = file.read(bands, out_shape=(len(bands), *shape), masked=True)
    return stretch(pixels)


def mosaic_picture(store_dir: Path, tiles: Sequence[CompleteTile], *, size_px: int = 512) -> bytes:
    """PNG of one product's tiles at their places, at most `size_px` on its longer side; one stretch for all.

    Raises as `TileMosaic`. A tile takes at least one pixel, so a mosaic of more than `size_px` tiles a side comes out larger.
    """
    columns, rows = [tile.tile.x for tile in tiles], [tile.tile.y for tile in tiles]
    width, height = max(columns) - min(columns) + 1, max(rows) - min(rows) + 1
    side = max(1, min(tiles[0].box.shape[1], size_px // max(width, height)))
    with TileMosaic(store_dir, tiles) as mosaic:
        bands = (1, 2, 3) if mosaic.band_count() >= 3 else (1,)
        canvas: Any = None
        for tile in tiles:
            part = mosaic.read_small(tile, bands, side=side)
            if canvas is None:
                shape = (len(bands), height * side, width * side)
                canvas = np.ma.MaskedArray(np.zeros(shape, part.dtype), np.ones(shape, bool))
            top, left = (tile.tile.y - min(rows)) * side, (tile.tile.x - min(columns)) * side
            canvas[:, top : top + side, left : left + side] = part
    return png(stretch(canvas))


def spread(tiles: Sequence[CompleteTile], most: int) -> list[CompleteTile]:
    """At most `most` tiles, evenly over the sequence, those with the more valid pixels first in each stretch of it."""
    if len(tiles) <= most:
        return list(tiles)
    edges = [round(number * len(tiles) / most) for number in range(most + 1)]
    return [
        max(tiles[first:last], key=lambda tile: (tile.valid_share or 0.0, Tile(-tile.tile.z, -tile.tile.x, -tile.tile.y)))
        for first, last in pairwise(edges)
    ]


def stretch(pixels: np.ma.MaskedArray[Any, Any]) -> Pixels:
    """RGBA `(y, x, 4)` of one or three bands `(band, y, x)`: their 2nd to 98th percentile onto the whole range, masked is clear.

    Three uint8 bands, made for the eye already, share one stretch so that their colours stay; others get one each.
    """
    valid: npt.NDArray[np.bool_] = ~np.asarray(np.ma.getmaskarray(pixels).any(axis=0), dtype=bool)
    values = np.ma.getdata(pixels).astype(np.float64)
    if pixels.dtype.kind == "f":
        valid &= np.isfinite(values).all(axis=0)
    values[:, ~valid] = 0.0
    rgba: Pixels = np.zeros((*valid.shape, 4), dtype=np.uint8)
    if not valid.any():
        return rgba
    if pixels.dtype == np.uint8 and len(values) == 3:
        low, high = np.percentile(values[:, valid], [_LOW, _HIGH])
        bounds = [(low, high)] * 3
    else:
        bounds = [tuple(np.percentile(band[valid], [_LOW, _HIGH])) for band in values]
    shares = np.stack([_share(band, low, high) for band, (low, high) in zip(values, bounds, strict=True)])
    colours = _ramp(shares[0]) if len(shares) == 1 else np.moveaxis(shares * 255.0, 0, -1)
    rgba[..., :3] = np.where(valid[..., None], np.rint(colours), 0.0)
    rgba[..., 3] = np.where(valid, 255, 0)
    return rgba


def png(rgba: Pixels) -> bytes:
    """PNG of RGBA pixels `(y, x, 4)`, without metadata."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(rgba).save(stream, format="PNG", optimize=True)
    return stream.getvalue()


def data_uri(picture: bytes, kind: str = "png") -> str:
    """A picture as a `data:` URI, for HTML and Markdown."""
    return f"data:image/{kind};base64," + base64.b64encode(picture).decode("ascii")


def _share(band: npt.NDArray[np.float64], low: float, high: float) -> npt.NDArray[np.float64]:
    if high <= low:
        return np.full(band.shape, 0.5)
    return np.clip((band - low) / (high - low), 0.0, 1.0)


def _ramp(share: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    places = np.linspace(0.0, 1.0, len(_RAMP))
    return np.stack([np.interp(share, places, _RAMP[:, channel]) for channel in range(3)], axis=-1)
