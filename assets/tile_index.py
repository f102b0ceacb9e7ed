"""One product's tiles of a window as a single raster, for GDAL's tile index driver and QGIS.

A GeoPackage `<window>.<product>.gti.gpkg` beside the catalogue: GDAL 3.9 and newer opens it as one mosaic, with no plug-in. The
GeoParquet catalogue serves the same driver only where GDAL was built with Parquet, which the usual wheels are not. One mosaic has
one band count and one dtype, a window has many products: so it is one index for each. All indexes of a grid share one extent, so
that mosaics of two windows or products lie pixel on pixel.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import shapely

from assets.grid import Bounds, Grid
from assets.page import relative_href
from assets.window_tiles import WindowTiles, band_names
from resources.config_scenes import ProductConfig
from resources.errors import ErrorKind, UnitRejected

OPERATION = "tile_index"
VERSION = "1"
LAYER = "tiles"
_clock_lock = threading.Lock()
_EPOCH = "1970-01-01T00:00:00.000Z"
_GDAL_TYPES = {
    "uint8": "Byte",
    "int8": "Int8",
    "uint16": "UInt16",
    "int16": "Int16",
    "uint32": "UInt32",
    "int32": "Int32",
    "float32": "Float32",
    "float64": "Float64",
}


@dataclass(frozen=True, slots=True)
class TileIndexRequest:
    """Everything that decides an index's bytes. `tiles` are one product's; `extent` is in `crs`. Picklable."""

    unit_key: str
    uri: str
    tiles: WindowTiles
    product: ProductConfig
    crs: str
    resolution: float
    extent: Bounds


def tile_index_uri(window: str, product: str) -> str:
    """Final place of an index, relative to the store."""
    return f"tile_catalogue/{window}.{product}.gti.gpkg"


def grid_extent(grid: Grid) -> Bounds:
    """Bounds of all tiles of the grid, in its CRS."""
    first, last = grid.tiles[0], grid.tiles[-1]
    rows = [tile.y for tile in grid.tiles]
    left, right = grid.box(first).bounds[0], grid.box(last).bounds[2]
    top = grid.box(type(first)(first.z, first.x, min(rows))).bounds[3]
    bottom = grid.box(type(first)(first.z, first.x, max(rows))).bounds[1]
    return left, bottom, right, top


def tile_index_ingredients(
    tiles: WindowTiles, product: ProductConfig, grid_settings: Mapping[str, object], extent: Bounds
) -> dict[str, Any]:
    """Arguments of `resources.keys.unit_key` for one index. Absent tiles do not enter: the index does not speak of them."""
    return {
        "operation": OPERATION,
        "version": VERSION,
        "settings": {
            "grid": dict(grid_settings),
            "extent": [repr(value) for value in extent],
            "product": [product.name, product.dtype, product.nodata, len(band_names(product))],
        },
        "destination": {"window": tiles.window.key, "product": product.name},
        "inputs": tiles.of_product(product.name).outputs(),
    }


def write_tile_index(request: TileIndexRequest, path: Path) -> dict[str, Any]:
    """Write the index to `path`, a staging name, and return its counts.

    Tile locations are relative to the index's own folder. After a crash: a staged file that the sweep removes.
    """
    import geopandas as gpd
    import pyogrio

    complete = request.tiles.complete
    frame = gpd.GeoDataFrame(
        {
            "location": [relative_href(tile.output_uri, from_uri=request.uri) for tile in complete],
            "unit_key": [tile.key for tile in complete],
            "tile": [tile.tile.name for tile in complete],
        },
        geometry=[shapely.box(*tile.box.bounds) for tile in complete],
        crs=request.crs,
    ).astype({"location": "str", "unit_key": "str", "tile": "str"})
    # a staged file of an earlier try would be taken for a database to add to
    path.unlink(missing_ok=True)
    with _standing_clock():
        pyogrio.write_dataframe(
            frame,
            path,
            driver="GPKG",
            layer=LAYER,
            geometry_type="Polygon",
            layer_metadata=_layer_metadata(request),
            promote_to_multi=False,
        )
    return {"tiles": len(complete), "absent": len(request.tiles.absent)}


def validate_tile_index(request: TileIndexRequest, path: Path) -> None:
    """Open a staged index again. Raises `UnitRejected` (INVALID_OUTPUT) unless it lists exactly the tiles of the request."""
    import pyogrio

    try:
        metadata = pyogrio.read_info(path, layer=LAYER)["layer_metadata"] or {}
        frame = pyogrio.read_dataframe(path, layer=LAYER, read_geometry=False)
        keys = [str(key) for key in frame["unit_key"]]
    except Exception as error:  # pyogrio's own errors share no base with KeyError and OSError
        raise UnitRejected(
            f"the staged tile index {request.uri} cannot be read back: {error}",
            kind=ErrorKind.INVALID_OUTPUT,
            unit_key=request.unit_key,
        ) from error
    expected = [tile.key for tile in request.tiles.complete]
    if keys != expected or metadata.get("TILEWRIGHT_UNIT_KEY") != request.unit_key:
        raise UnitRejected(
            f"the staged tile index {request.uri} lists {len(keys)} tiles and key {metadata.get('TILEWRIGHT_UNIT_KEY')}; "
            f"expected {len(expected)} and {request.unit_key}",
            kind=ErrorKind.INVALID_OUTPUT,
            unit_key=request.unit_key,
        )


def _layer_metadata(request: TileIndexRequest) -> dict[str, str]:
    """Layer metadata by GDAL's GTI documentation; with all of it set, no tile is opened to open the mosaic."""
    product = request.product
    left, bottom, right, top = request.extent
    metadata = {
        "RESX": repr(request.resolution),
        "RESY": repr(request.resolution),
        "MINX": repr(left),
        "MINY": repr(bottom),
        "MAXX": repr(right),
        "MAXY": repr(top),
        "BAND_COUNT": str(len(band_names(product))),
        "DATA_TYPE": _GDAL_TYPES[product.dtype],
        "LOCATION_FIELD": "location",
        "TILEWRIGHT_UNIT_KEY": request.unit_key,
        "TILEWRIGHT_PRODUCT": product.name,
        "TILEWRIGHT_WINDOW": request.tiles.window.key,
    }
    if product.nodata is None:
        metadata["MASK_BAND"] = "YES"
    else:
        metadata["NODATA"] = ",".join([str(product.nodata)] * len(band_names(product)))
    return metadata


@contextmanager
def _standing_clock() -> Iterator[None]:
    """Make GDAL write a fixed time where GeoPackage wants one, so that equal tiles give equal bytes. One thread at a time."""
    import pyogrio

    with _clock_lock:
        before = pyogrio.get_gdal_config_option("OGR_CURRENT_DATE")
        pyogrio.set_gdal_config_options({"OGR_CURRENT_DATE": _EPOCH})
        try:
            yield
        finally:
            pyogrio.set_gdal_config_options({"OGR_CURRENT_DATE": before})
