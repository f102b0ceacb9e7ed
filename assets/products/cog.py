"""Tiles as files: deterministic Cloud Optimized GeoTIFFs that say what they are made from.

A tile is assembled in memory and then written as plain bytes, so that a full disk is the system's own error with its number, and
GDAL leaves no temporary file or sidecar beside it. No clock, path, run or attempt goes into the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rasterio.crs import CRS
from rasterio.enums import ColorInterp
from rasterio.io import DatasetReader, MemoryFile

from assets.grid import TileBox
from assets.products.fit import parse_crs
from assets.products.model import OPERATION, RENDER_VERSION, TileRequest, bands_required, output_names
from resources.config_scenes import ProductConfig
from resources.errors import ErrorKind, UnitRejected
from resources.gdal_safety import open_raster, raster_errors, safe_env

TAG_PREFIX = "TILEWRIGHT_"
_BLOCK_PX = 512
_JPEG_QUALITY = "90"


@dataclass(frozen=True, slots=True)
class TilePixels:
    """`values` and `valid` are `(band, y, x)`; `names` name the bands."""

    values: NDArray[Any]
    valid: NDArray[np.bool_]
    names: tuple[str, ...]


def tile_tags(request: TileRequest, metrics: dict[str, Any]) -> dict[str, str]:
    """What a tile says of itself: enough to make its ledger row again.

    Only what its unit key is made from: names of scenes are not, so a renamed file gives the same bytes.
    """
    sources = [{name: scene.bands[name].digest for name in bands_required(request.product)} for scene in request.scenes]
    return {
        f"{TAG_PREFIX}UNIT_KEY": request.unit_key,
        f"{TAG_PREFIX}OPERATION": f"{OPERATION}/{RENDER_VERSION}",
        f"{TAG_PREFIX}PRODUCT": request.product.name,
        f"{TAG_PREFIX}VERSION": request.product.version,
        f"{TAG_PREFIX}WINDOW": request.window,
        f"{TAG_PREFIX}TILE": request.tile.name,
        f"{TAG_PREFIX}SOURCES": json.dumps(sources, separators=(",", ":"), sort_keys=True),
        f"{TAG_PREFIX}LACKS": json.dumps(list(request.missing_scenes), separators=(",", ":")),
        f"{TAG_PREFIX}METRICS": json.dumps(metrics, separators=(",", ":"), sort_keys=True),
    }


def write_cog(path: Path, pixels: TilePixels, *, box: TileBox, product: ProductConfig, tags: dict[str, str]) -> None:
    """Write a tile to `path` as a Cloud Optimized GeoTIFF with overviews inside, and nodata or an internal mask.

    Call inside `safe_env`. Raises `OSError` when it cannot be written. After a crash: `path` may hold part of a file.
    """
    count, height, width = pixels.values.shape
    with MemoryFile(ext=".tif") as memory:
        with memory.open(
            driver="COG",
            width=width,
            height=height,
            count=count,
            dtype=product.dtype,
            crs=parse_crs(box.crs),
            transform=box.transform,
            nodata=None if product.nodata is None else float(product.nodata),
            **_creation_options(product, max(height, width)),
        ) as tile:
            tile.write(pixels.values)
            if product.nodata is None:
                tile.write_mask(pixels.valid[0])
            tile.colorinterp = _colours(count, product.dtype)
            tile.descriptions = pixels.names
            tile.update_tags(**tags)
        content = memory.getbuffer()
        with open(path, "wb") as stream:
            stream.write(content)


def _creation_options(product: ProductConfig, side: int) -> dict[str, str]:
    compression = product.compression
    options = {
        "COMPRESS": compression.upper(),
        "BLOCKSIZE": str(min(_BLOCK_PX, -(-side // 16) * 16)),
        "BIGTIFF": "IF_SAFER",
        "NUM_THREADS": "1",
        "OVERVIEWS": "AUTO",
        "OVERVIEW_RESAMPLING": "NEAREST" if product.resampling in ("nearest", "mode") else "AVERAGE",
        "STATISTICS": "NO",
    }
    if compression in ("deflate", "zstd", "lzw"):
        options["PREDICTOR"] = "YES"
    elif compression == "jpeg":
        options["QUALITY"] = _JPEG_QUALITY
    elif compression == "webp":
        options["QUALITY"] = "100"  # lossless
    elif compression == "lerc":
        options["MAX_Z_ERROR"] = "0"
    return options


def _colours(count: int, dtype: str) -> tuple[ColorInterp, ...]:
    # said outright: GDAL takes a fourth byte band for alpha
    if count == 3 and dtype == "uint8":
        return ColorInterp.red, ColorInterp.green, ColorInterp.blue
    return (ColorInterp.gray, *(ColorInterp.undefined for _ in range(count - 1)))


def validate_tile(request: TileRequest, path: Path) -> None:
    """Open a staged tile again and compare it with what was asked for; every block is decoded.

    Raises `UnitRejected` (INVALID_OUTPUT, no retry) naming what differs.
    """
    with safe_env(request.gdal_cache_mb):
        try:
            with raster_errors(path, name="the staged tile"), open_raster(path, ("GTiff",)) as tile:
                found = _facts(tile)
                decoded = tile.read()
                masks = tile.dataset_mask() if request.product.nodata is None else None
        except UnitRejected as error:
            raise UnitRejected(f"the tile cannot be read back: {error.message}", kind=ErrorKind.INVALID_OUTPUT) from error
    wanted = _wanted(request)
    for name, value in wanted.items():
        if found[name] != value and not (value != value and found[name] != found[name]):
            raise UnitRejected(
                f"tile {request.tile.name} of {request.product.name}: {name}: wrote {found[name]!r}; asked for {value!r}",
                kind=ErrorKind.INVALID_OUTPUT,
                unit_key=request.unit_key,
            )
    if decoded.shape != (wanted["bands"], *request.box.shape) or (masks is not None and masks.shape != request.box.shape):
        raise UnitRejected(f"tile {request.tile.name}: decoded {decoded.shape}", kind=ErrorKind.INVALID_OUTPUT)


def _facts(tile: DatasetReader) -> dict[str, Any]:
    tags = tile.tags()
    return {
        "driver": tile.driver,
        "layout": tile.tags(ns="IMAGE_STRUCTURE").get("LAYOUT"),
        "width": tile.width,
        "height": tile.height,
        "bands": tile.count,
        "dtype": tile.dtypes[0],
        "crs": tile.crs,
        "bounds": _rounded(tuple(tile.bounds), tile.res),
        "nodata": tile.nodata,
        "masked": tile.mask_flag_enums[0][0].name == "per_dataset",
        "unit key": tags.get(f"{TAG_PREFIX}UNIT_KEY"),
    }


def _wanted(request: TileRequest) -> dict[str, Any]:
    product, box = request.product, request.box
    height, width = box.shape
    crs: CRS = parse_crs(box.crs)
    resolution = box.transform.a, -box.transform.e
    return {
        "driver": "GTiff",
        "layout": "COG",
        "width": width,
        "height": height,
        "bands": len(output_names(product)),
        "dtype": product.dtype,
        "crs": crs,
        "bounds": _rounded(box.bounds, resolution),
        "nodata": None if product.nodata is None else float(product.nodata),
        "masked": product.nodata is None,
        "unit key": request.unit_key,
    }


def _rounded(bounds: tuple[float, ...], resolution: tuple[float, float]) -> tuple[int, ...]:
    # in thousandths of a pixel
    step = min(resolution) / 1000
    return tuple(round(value / step) for value in bounds)


@dataclass(frozen=True, slots=True)
class TileTags:
    """What a tile says of itself. `sources` are digests by band name, a mapping for each scene in compositing order.

    `lacks` are digests of scenes that it was composed without; `metrics` are those that `render_tile` returned.
    """

    unit_key: str
    product: str
    version: str
    window: str
    tile: str
    operation: str
    sources: tuple[Mapping[str, str], ...]
    lacks: tuple[str, ...]
    metrics: dict[str, Any]


def read_tile_tags(path: Path) -> TileTags | None:
    """What the tile at `path` says of itself; None when it is no tile of this project. Raises as `open_raster`."""
    with safe_env(), open_raster(path, ("GTiff",)) as tile:
        tags = {name.removeprefix(TAG_PREFIX): text for name, text in tile.tags().items() if name.startswith(TAG_PREFIX)}
    try:
        return TileTags(
            unit_key=tags["UNIT_KEY"],
            product=tags["PRODUCT"],
            version=tags["VERSION"],
            window=tags["WINDOW"],
            tile=tags["TILE"],
            operation=tags["OPERATION"],
            sources=tuple(dict(scene) for scene in json.loads(tags["SOURCES"])),
            lacks=tuple(json.loads(tags["LACKS"])),
            metrics=json.loads(tags["METRICS"]),
        )
    except (KeyError, ValueError, TypeError):
        return None


def read_tile_metrics(path: Path) -> dict[str, Any]:
    """The metrics that `render_tile` returned, read back from the tile at `path`. Raises `UnitRejected` when it has none."""
    found = read_tile_tags(path)
    if found is None:
        raise UnitRejected(f"{path.name}: holds no tags of this project", kind=ErrorKind.INVALID_OUTPUT)
    return found.metrics
