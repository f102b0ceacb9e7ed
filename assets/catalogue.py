"""The catalogue of a window's tiles: GeoParquet by the STAC GeoParquet convention.

One row is one tile that exists now, as a STAC item; what is absent is counted, with reasons, in the file's metadata under the key
`tilewright`. A file is written whole to a staging path and promoted by the caller, so a reader never meets half a catalogue.
Hrefs are relative to the catalogue's own folder: a store can be moved or copied, and equal tiles give equal bytes everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import shapely
from shapely.geometry.base import BaseGeometry

from assets.grid import TileBox, outline
from assets.page import relative_href
from assets.window_tiles import CompleteTile, WindowTiles
from resources.config_scenes import ProductConfig
from resources.errors import ErrorKind, UnitRejected

OPERATION = "tile_catalogue"
VERSION = "1"
METADATA_KEY = b"tilewright"
_LISTED_MAX = 1_000
_ROWS_PER_GROUP = 16_384
_STRAIGHT = 1e-5
_STAC_VERSION = "1.0.0"
_EXTENSIONS = (
    "https://stac-extensions.github.io/projection/v1.1.0/schema.json",
    "https://stac-extensions.github.io/raster/v1.1.0/schema.json",
    "https://stac-extensions.github.io/file/v2.1.0/schema.json",
)
_COG = "image/tiff; application=geotiff; profile=cloud-optimized"
_SHA256_MULTIHASH = "1220"


@dataclass(frozen=True, slots=True)
class CatalogueRequest:
    """Everything that decides a catalogue's bytes. `uri` is the catalogue's final place, relative to the store. Picklable."""

    unit_key: str
    uri: str
    tiles: WindowTiles
    products: tuple[ProductConfig, ...]


def catalogue_uri(window: str) -> str:
    """Final place of a window's catalogue, relative to the store."""
    return f"{OPERATION}/{window}.parquet"


def catalogue_ingredients(
    tiles: WindowTiles, products: tuple[ProductConfig, ...], grid_settings: Mapping[str, object]
) -> dict[str, Any]:
    """Arguments of `resources.keys.unit_key` for one window's catalogue."""
    return {
        "operation": OPERATION,
        "version": VERSION,
        "settings": {
            "grid": dict(grid_settings),
            "products": {item.name: [item.dtype, item.nodata, item.version] for item in products},
        },
        "destination": {"window": tiles.window.key, "start": tiles.window.start, "end": tiles.window.end},
        "inputs": tiles.fingerprint(),
    }


def write_catalogue(request: CatalogueRequest, path: Path) -> dict[str, Any]:
    """Write the catalogue to `path`, a staging name, and return its counts.

    A window without tiles gives a file without rows and with the same columns.
    After a crash: a staged file that the sweep removes.
    """
    import pyarrow.parquet as pq
    from stac_geoparquet.arrow import parse_stac_items_to_arrow, to_parquet

    # columns are inferred from values: the pattern item has every one, so that they do not depend on which tiles exist
    items = [_pattern_item(), *(_item(request, tile) for tile in request.tiles.complete)]
    table = parse_stac_items_to_arrow(items).read_all().slice(1).combine_chunks()
    # the library writes its metadata and no other: take it from a file without rows, then write once with ours beside it
    to_parquet(table.slice(0, 0), path)
    metadata = dict(pq.read_schema(path).metadata)
    metadata[METADATA_KEY] = json.dumps(_metadata(request), sort_keys=True).encode()
    pq.write_table(
        table.replace_schema_metadata({name: metadata[name] for name in (b"geo", b"stac-geoparquet", METADATA_KEY)}),
        path,
        compression="zstd",
        row_group_size=_ROWS_PER_GROUP,
    )
    return {"tiles": len(request.tiles.complete), "absent": len(request.tiles.absent), "absent_by": request.tiles.absent_counts()}


def validate_catalogue(request: CatalogueRequest, path: Path) -> None:
    """Open a staged catalogue again. Raises `UnitRejected` (INVALID_OUTPUT) unless it holds exactly the tiles of the request."""
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            metadata = file.schema_arrow.metadata or {}
            geo = json.loads(metadata.get(b"geo", b"{}"))
            key = json.loads(metadata.get(METADATA_KEY, b"{}")).get("unit_key")
            table = file.read()
        keys = table.column("tilewright:unit_key").to_pylist()
        digests = table.column("tilewright:digest").to_pylist()
        shapely.from_wkb(table.column("geometry").to_pylist())
    except (
        Exception
    ) as error:  # arrow has no common base: ArrowInvalid is a ValueError, a short file an OSError, a lost column a KeyError
        raise UnitRejected(
            f"the staged catalogue of window {request.tiles.window.key} cannot be read back: {error}",
            kind=ErrorKind.INVALID_OUTPUT,
            unit_key=request.unit_key,
        ) from error
    expected = [(tile.key, tile.digest) for tile in request.tiles.complete]
    if list(zip(keys, digests, strict=True)) != expected or geo.get("primary_column") != "geometry" or key != request.unit_key:
        raise UnitRejected(
            f"the staged catalogue of window {request.tiles.window.key} has {len(keys)} tiles, key {key} and geometry column "
            f"{geo.get('primary_column')!r}; expected {len(expected)} tiles, key {request.unit_key} and 'geometry'",
            kind=ErrorKind.INVALID_OUTPUT,
            unit_key=request.unit_key,
        )


def read_catalogue_facts(path: Path) -> dict[str, Any]:
    """The `tilewright` metadata of a catalogue: unit key, window, counts of tiles and of what is absent, with reasons."""
    import pyarrow.parquet as pq

    facts: dict[str, Any] = json.loads((pq.read_schema(path).metadata or {})[METADATA_KEY])
    return facts


def footprint(box: TileBox) -> BaseGeometry:
    """Outline of a tile in WGS 84 `(longitude, latitude)`; split at the antimeridian, with points where an edge curves."""
    moved = shapely.transform(outline(box.bounds), _to_wgs84(box.crs).transform, interleaved=False)
    longitude = shapely.get_coordinates(moved)[:, 0]
    if np.abs(np.diff(longitude)).max() > 180.0:
        # only where it is needed: the library takes 15 ms for a tile
        import antimeridian

        moved = antimeridian.fix_polygon(moved, fix_winding=True, great_circle=False)
    left, bottom, right, top = moved.bounds
    shape: BaseGeometry = shapely.orient_polygons(moved.simplify(_STRAIGHT * max(right - left, top - bottom)))
    return shape


def _bbox(shape: BaseGeometry) -> list[float]:
    """`[west, south, east, north]`; west is greater than east when the shape crosses the antimeridian, as GeoJSON has it."""
    if shape.geom_type == "Polygon":
        return [float(value) for value in shape.bounds]
    import antimeridian

    return [float(value) for value in antimeridian.bbox(shape)]


@cache
def _to_wgs84(crs: str) -> pyproj.Transformer:
    return pyproj.Transformer.from_crs(crs, "OGC:CRS84", always_xy=True)


@cache
def _projection(crs: str) -> dict[str, Any]:
    found = pyproj.CRS.from_user_input(crs)
    return {"proj:epsg": found.to_epsg(), "proj:wkt2": found.to_wkt()}


def _item(request: CatalogueRequest, tile: CompleteTile) -> dict[str, Any]:
    window = request.tiles.window
    product = next((item for item in request.products if item.name == tile.product), None)
    shape = footprint(tile.box)
    nodata = None if product is None or product.nodata in (None, "nan") else float(product.nodata)
    asset = {
        "href": relative_href(tile.output_uri, from_uri=request.uri),
        "type": _COG,
        "title": f"{tile.product} {tile.tile.name}",
        "roles": ["data"],
        "file:size": tile.size_bytes,
        "file:checksum": _SHA256_MULTIHASH + tile.digest,
        "raster:bands": [
            {
                "data_type": None if product is None else product.dtype,
                "nodata": nodata,
                "statistics": {
                    "minimum": band.min,
                    "maximum": band.max,
                    "mean": band.mean,
                    "stddev": band.std,
                    "valid_percent": None if tile.valid_share is None else 100.0 * tile.valid_share,
                },
            }
            for band in tile.bands
        ],
    }
    return {
        "type": "Feature",
        "stac_version": _STAC_VERSION,
        "stac_extensions": list(_EXTENSIONS),
        "id": f"{tile.product}.{window.key}.{tile.tile.name}",
        "geometry": shapely.geometry.mapping(shape),
        "bbox": _bbox(shape),
        "properties": {
            "datetime": _instant(window.start),
            "start_datetime": _instant(window.start),
            # STAC intervals hold their end, batch windows do not
            "end_datetime": _instant(window.end - timedelta(milliseconds=1)),
            **_projection(tile.box.crs),
            "proj:bbox": [float(value) for value in tile.box.bounds],
            "proj:shape": list(tile.box.shape),
            "proj:transform": [float(value) for value in tile.box.transform[:6]],
            "tilewright:unit_key": tile.key,
            "tilewright:digest": tile.digest,
            "tilewright:product": tile.product,
            "tilewright:product_version": "" if product is None else product.version,
            "tilewright:window": window.key,
            "tilewright:tile": tile.tile.name,
            "tilewright:valid_share": tile.valid_share,
            "tilewright:source_scenes": list(tile.scenes),
        },
        "links": [],
        "assets": {"data": asset},
    }


def _instant(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _metadata(request: CatalogueRequest) -> dict[str, Any]:
    tiles = request.tiles
    return {
        "unit_key": request.unit_key,
        "version": VERSION,
        "window": {"key": tiles.window.key, "start": _instant(tiles.window.start), "end": _instant(tiles.window.end)},
        "tiles": len(tiles.complete),
        "absent": {
            "count": len(tiles.absent),
            "by": tiles.absent_counts(),
            "listed": [
                {
                    "product": tile.product,
                    "tile": tile.tile.name,
                    "state": tile.state.value,
                    "kind": tile.kind,
                    "reason": tile.reason,
                }
                for tile in tiles.absent[:_LISTED_MAX]
            ],
        },
    }


def _pattern_item() -> dict[str, Any]:
    """An item with a value of the right type for every field."""
    asset = {
        "href": "",
        "type": _COG,
        "title": "",
        "roles": [""],
        "file:size": 0,
        "file:checksum": "",
        "raster:bands": [
            {
                "data_type": "",
                "nodata": 0.5,
                "statistics": {"minimum": 0.5, "maximum": 0.5, "mean": 0.5, "stddev": 0.5, "valid_percent": 0.5},
            }
        ],
    }
    link = {"rel": "", "href": "", "type": ""}
    properties = {
        "datetime": "2000-01-01T00:00:00.000Z",
        "start_datetime": "2000-01-01T00:00:00.000Z",
        "end_datetime": "2000-01-01T00:00:00.000Z",
        "proj:epsg": 4326,
        "proj:wkt2": "",
        "proj:bbox": [0.5],
        "proj:shape": [0],
        "proj:transform": [0.5],
        "tilewright:unit_key": "",
        "tilewright:digest": "",
        "tilewright:product": "",
        "tilewright:product_version": "",
        "tilewright:window": "",
        "tilewright:tile": "",
        "tilewright:valid_share": 0.5,
        "tilewright:source_scenes": [""],
    }
    return {
        "type": "Feature",
        "stac_version": _STAC_VERSION,
        "stac_extensions": [""],
        "id": "",
        "geometry": {"type": "Point", "coordinates": [0.0, 0.0]},
        "bbox": [0.0, 0.0, 0.0, 0.0],
        "properties": properties,
        "links": [link],
        "assets": {"data": asset},
    }
