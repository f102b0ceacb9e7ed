"""Zonal statistics of a window's products over the configured polygons, by exact coverage of pixels.

A pixel counts by the share of it that a zone covers (Baston's exactextract), so that a zone smaller than a pixel has an answer,
and neighbouring zones share a border pixel. Zones are taken one by one, and a large one in blocks: memory does not follow its
size (only median, majority and minority keep the distinct values of a zone).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import shapely
from shapely.geometry.base import BaseGeometry

from assets.grid import TileBox
from assets.tile_mosaic import TileMosaic
from assets.window_tiles import WindowTiles
from assets.zone_file import ID_COLUMN, NOTE_COLUMN, read_zones, zone_file_digest
from resources.config_scenes import ZonesConfig
from resources.errors import ErrorKind, TransientError, UnitRejected

OPERATION = "zone_statistics"
VERSION = "1"
METADATA_KEY = b"tilewright"
_EDGE_PARTS = 128


@dataclass(frozen=True, slots=True)
class ZonesRequest:
    """Everything that decides a zone file's bytes, and where its inputs lie. `products` maps names to band names. Picklable."""

    unit_key: str
    uri: str
    tiles: WindowTiles
    products: tuple[tuple[str, tuple[str, ...]], ...]
    zones: ZonesConfig
    zones_path: Path
    zones_digest: str
    grid_crs: str
    store_dir: Path
    gdal_cache_mb: int = 64


def zone_statistics_uri(window: str) -> str:
    """Final place of a window's zonal statistics, relative to the store."""
    return f"{OPERATION}/{window}.parquet"


def zone_ingredients(
    tiles: WindowTiles,
    *,
    products: Sequence[tuple[str, tuple[str, ...]]],
    zones: ZonesConfig,
    zones_digest: str,
    grid_settings: Mapping[str, object],
) -> dict[str, Any]:
    """Arguments of `resources.keys.unit_key` for one window's statistics.

    That a tile is absent enters, why it is does not: the statistics say the one and not the other.
    """
    return {
        "operation": OPERATION,
        "version": VERSION,
        "settings": {
            "grid": dict(grid_settings),
            "id_field": zones.id_field,
            "layer": zones.layer,
            "statistics": list(zones.statistics),
            "products": [[name, list(bands)] for name, bands in products],
        },
        "destination": {"window": tiles.window.key},
        "inputs": {
            "zones": zones_digest,
            "complete": tiles.outputs(),
            "absent": [[tile.product, tile.tile.name] for tile in tiles.absent],
        },
    }


def write_zone_statistics(request: ZonesRequest, path: Path) -> dict[str, Any]:
    """Write one row for each zone, product and band to `path`, a staging name, and return counts.

    Columns: `zone_id`, `product`, `band` (from 1), `band_name`, the configured statistics, `covered_share` (share of its area
    that valid pixels cover, 0..1), `tiles` and `tiles_absent` (complete and absent tiles that the zone touches), `geometry_note`,
    and the zone's geometry in the CRS of the zone file. Raises `ConfigurationError` for an unusable zone file, `TransientError`
    (INPUT_CHANGED, retry) when a tile is gone or the zone file changed, `UnitRejected` when a tile is not what was recorded.
    After a crash: a staged file that the sweep removes.
    """
    import geopandas as gpd
    import pyarrow.parquet as pq

    if zone_file_digest(request.zones_path) != request.zones_digest:
        raise TransientError(f"zones.path: {request.zones_path} changed since the plan was made", kind=ErrorKind.INPUT_CHANGED)
    zones = read_zones(request.zones_path, request.zones)
    in_grid = _in_grid(zones, request.grid_crs)
    for place, (shape, moved) in enumerate(zip(zones.geometry, in_grid, strict=True)):
        if moved.is_empty and not shape.is_empty:
            zones.loc[place, NOTE_COLUMN] = f"lies where {request.grid_crs} is not defined"
    rows: list[dict[str, Any]] = []
    for product, bands in request.products:
        rows.extend(_product_rows(request, zones, in_grid, product=product, bands=bands))
    columns: dict[str, Any] = {
        ID_COLUMN: np.array([row[ID_COLUMN] for row in rows], dtype=zones[ID_COLUMN].to_numpy().dtype),
        "product": [row["product"] for row in rows],
        "band": np.array([row["band"] for row in rows], dtype="int32"),
        "band_name": [row["band_name"] for row in rows],
    }
    for statistic in (*request.zones.statistics, "covered_share"):
        columns[statistic] = np.array([row[statistic] for row in rows], dtype="float64")
    for count in ("tiles", "tiles_absent"):
        columns[count] = np.array([row[count] for row in rows], dtype="int32")
    columns[NOTE_COLUMN] = [row[NOTE_COLUMN] for row in rows]
    frame = gpd.GeoDataFrame(columns, geometry=gpd.GeoSeries([row["geometry"] for row in rows], crs=zones.crs), crs=zones.crs)
    frame.to_parquet(path, compression="zstd", index=False)
    counts = {
        "zones": len(zones),
        "rows": len(rows),
        "zones_repaired": int(zones[NOTE_COLUMN].str.startswith("repaired").sum()),
        "zones_empty": int((zones[NOTE_COLUMN] == "empty geometry").sum()),
        "tiles_absent": len(request.tiles.absent),
    }
    table = pq.read_table(path)
    # why a tile is absent is not in the key, so it must not be in the bytes
    facts = {
        "unit_key": request.unit_key,
        "version": VERSION,
        "window": request.tiles.window.key,
        "absent_by_product": _counted_by_product(request.tiles),
    }
    metadata = {**(table.schema.metadata or {}), METADATA_KEY: json.dumps({**facts, **counts}, sort_keys=True).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), path, compression="zstd")
    return counts


def validate_zone_statistics(request: ZonesRequest, path: Path) -> None:
    """Open a staged file again. Raises `UnitRejected` (INVALID_OUTPUT) unless it has the planned columns, key and products."""
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        facts = json.loads((table.schema.metadata or {})[METADATA_KEY])
        products = set(table.column("product").to_pylist())
        shapely.from_wkb(table.column("geometry").to_pylist())
    except (
        Exception
    ) as error:  # arrow has no common base: ArrowInvalid is a ValueError, a short file an OSError, a lost column a KeyError
        raise UnitRejected(
            f"the staged {request.uri} cannot be read back: {error}", kind=ErrorKind.INVALID_OUTPUT, unit_key=request.unit_key
        ) from error
    expected = {name for name, _ in request.products} if table.num_rows else set()
    missing = {ID_COLUMN, "covered_share", *request.zones.statistics} - set(table.column_names)
    if missing or products != expected or facts["unit_key"] != request.unit_key or facts["rows"] != table.num_rows:
        raise UnitRejected(
            f"the staged {request.uri}: found {table.num_rows} rows, key {facts['unit_key']}, products {sorted(products)}, "
            f"lacking {sorted(missing)}; expected {facts['rows']} rows, key {request.unit_key}, products {sorted(expected)}",
            kind=ErrorKind.INVALID_OUTPUT,
            unit_key=request.unit_key,
        )


def _counted_by_product(tiles: WindowTiles) -> dict[str, int]:
    counts: dict[str, int] = {}
    for tile in tiles.absent:
        counts[tile.product] = counts.get(tile.product, 0) + 1
    return counts


def _in_grid(zones: Any, grid_crs: str) -> list[BaseGeometry]:
    """Zones in the grid's CRS; empty where that CRS cannot describe one. Edges get points so that they keep their curves."""
    target = pyproj.CRS.from_user_input(grid_crs)
    if zones.crs.equals(target, ignore_axis_order=True):
        return list(zones.geometry)
    transformer = pyproj.Transformer.from_crs(zones.crs, target, always_xy=True)
    return [_moved(shape, transformer) for shape in zones.geometry]


def _moved(shape: BaseGeometry, transformer: pyproj.Transformer) -> BaseGeometry:
    if shape.is_empty:
        return shape
    left, bottom, right, top = shape.bounds
    dense = shapely.segmentize(shape, max(right - left, top - bottom) / _EDGE_PARTS)
    moved = shapely.transform(dense, transformer.transform, interleaved=False)
    if not np.isfinite(shapely.get_coordinates(moved)).all():
        return shapely.Polygon()
    return moved if moved.is_valid else shapely.make_valid(moved)


def _product_rows(
    request: ZonesRequest, zones: Any, in_grid: Sequence[BaseGeometry], *, product: str, bands: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    from assets.zone_coverage import coverage_statistics, no_coverage

    statistics = request.zones.statistics
    tiles = request.tiles.of_product(product)
    touched = _touches([tile.box for tile in tiles.complete], in_grid)
    missing = _touches([tile.box for tile in tiles.absent], in_grid)
    covered = [place for place, count in enumerate(touched) if count]
    results: dict[int, list[dict[str, float | None]]] = {}
    if covered:
        with TileMosaic(request.store_dir, tiles.complete, gdal_cache_mb=request.gdal_cache_mb) as mosaic:
            found = coverage_statistics(mosaic, [in_grid[place] for place in covered], bands=len(bands), statistics=statistics)
            results = dict(zip(covered, found, strict=True))
    nothing = [no_coverage(statistics)] * len(bands)
    facts = zip(zones[ID_COLUMN], zones[NOTE_COLUMN], zones.geometry, strict=True)
    for place, (zone_id, note, geometry) in enumerate(facts):
        for number, (band_name, values) in enumerate(zip(bands, results.get(place, nothing), strict=True), start=1):
            yield {
                ID_COLUMN: zone_id,
                "product": product,
                "band": number,
                "band_name": band_name,
                **values,
                "tiles": touched[place],
                "tiles_absent": missing[place],
                NOTE_COLUMN: note,
                "geometry": geometry,
            }


def _touches(boxes: Sequence[TileBox], shapes: Sequence[BaseGeometry]) -> list[int]:
    """For each shape, how many of the boxes share more than an edge with it."""
    tree = shapely.STRtree([shapely.box(*box.bounds) for box in boxes])
    which, found = tree.query(shapes, predicate="intersects")
    inside = shapely.relate_pattern(tree.geometries[found], np.asarray(shapes, dtype=object)[which], "T********")
    counts = np.bincount(which[inside], minlength=len(shapes))
    return [int(count) for count in counts]
