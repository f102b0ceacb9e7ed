"""Zonal statistics of a window's products over the configured polygons, by exact coverage of pixels.

A pixel counts by the share of it that a zone covers (Baston's exactextract), so that a zone smaller than a pixel has an answer,
and neighbouring zones share a border pixel. Zones are taken one by one, and a large one in blocks: memory does not follow its
size (only median, majority and minority keep the distinct values of a zone).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import shapely
from shapely.geometry.base import BaseGeometry

from assets.tile_mosaic import TileMosaic
from assets.window_tiles import WindowTiles
from assets.zone_file import ID_COLUMN, NOTE_COLUMN, read_zones, zone_file_digest
from resources.config import ZonesConfig
from resources.errors import ErrorKind, TransientError, UnitRejected

OPERATION = "zone_statistics"
VERSION = "1"
METADATA_KEY = b"tilewright"
_CELLS_MAX = 4_000_000
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
            "complete": tiles.fingerprint()["complete"],
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
    in_grid = [_to_grid(shape, zones.crs, request.grid_crs) for shape in zones.geometry]
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


def _to_grid(shape: BaseGeometry, crs: pyproj.CRS, grid_crs: str) -> BaseGeometry:
    """A zone in the grid's CRS; empty where that CRS cannot describe it. Edges get points so that they keep their curves."""
    target = pyproj.CRS.from_user_input(grid_crs)
    if shape.is_empty or crs.equals(target, ignore_axis_order=True):
        return shape
    left, bottom, right, top = shape.bounds
    dense = shapely.segmentize(shape, max(right - left, top - bottom) / _EDGE_PARTS)
    moved = shapely.transform(dense, pyproj.Transformer.from_crs(crs, target, always_xy=True).transform, interleaved=False)
    if not np.isfinite(shapely.get_coordinates(moved)).all():
        return shapely.Polygon()
    return moved if moved.is_valid else shapely.make_valid(moved)


def _product_rows(
    request: ZonesRequest, zones: Any, in_grid: Sequence[BaseGeometry], *, product: str, bands: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    tiles = request.tiles.of_product(product)
    complete = shapely.STRtree([shapely.box(*tile.box.bounds) for tile in tiles.complete])
    absent = shapely.STRtree([shapely.box(*tile.box.bounds) for tile in tiles.absent])
    with _opened(request, tiles) as mosaic:
        sources = [] if mosaic is None else [_band_source(mosaic, band) for band in range(1, len(bands) + 1)]
        for zone_id, note, geometry, shape in zip(zones[ID_COLUMN], zones[NOTE_COLUMN], zones.geometry, in_grid, strict=True):
            touched = _touches(complete, shape)
            values = (
                _statistics(sources, shape, request.zones.statistics)
                if touched
                else [_nothing(request.zones.statistics)] * len(bands)
            )
            missing = _touches(absent, shape)
            for number, band_name in enumerate(bands, start=1):
                yield {
                    ID_COLUMN: zone_id,
                    "product": product,
                    "band": number,
                    "band_name": band_name,
                    **values[number - 1],
                    "tiles": touched,
                    "tiles_absent": missing,
                    NOTE_COLUMN: note,
                    "geometry": geometry,
                }


class _NoMosaic:
    """Stands for a product without one complete tile."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def _opened(request: ZonesRequest, tiles: WindowTiles) -> TileMosaic | _NoMosaic:
    if not tiles.complete:
        return _NoMosaic()
    return TileMosaic(request.store_dir, tiles.complete, gdal_cache_mb=request.gdal_cache_mb)


def _touches(tree: shapely.STRtree, shape: BaseGeometry) -> int:
    """How many tiles share more than an edge with a zone."""
    if shape.is_empty or not len(tree):
        return 0
    found = tree.query(shape, predicate="intersects")
    return int(shapely.relate_pattern(tree.geometries[found], shape, "T********").sum())


def _band_source(mosaic: TileMosaic, band: int) -> Any:
    from exactextract.raster import RasterSource

    class BandSource(RasterSource):  # type: ignore[misc]
        """One band of a mosaic, in exactextract's terms."""

        def res(self) -> tuple[float, float]:
            return mosaic.resolution

        def extent(self) -> tuple[float, float, float, float]:
            return mosaic.bounds

        def nodata_value(self) -> None:
            return None

        def srs_wkt(self) -> None:
            return None

        def read_window(self, x0: int, y0: int, nx: int, ny: int) -> Any:
            return mosaic.read(band, column=x0, row=y0, width=nx, height=ny)

    source = BandSource()
    source.set_name(f"band{band}")
    return source


def _statistics(sources: Sequence[Any], shape: BaseGeometry, statistics: Sequence[str]) -> list[dict[str, float | None]]:
    """Statistics and covered share for each band, `shape` being in the grid's CRS."""
    from exactextract import exact_extract

    asked = list(dict.fromkeys(["count", *statistics]))
    feature = {"type": "Feature", "properties": {}, "geometry": shapely.geometry.mapping(shape)}
    found = exact_extract(list(sources), [feature], asked, max_cells_in_memory=_CELLS_MAX)[0]["properties"]
    width, height = sources[0].res()
    bands = []
    for band in range(1, len(sources) + 1):
        # exactextract leaves the source's name out when there is but one
        prefix = f"band{band}_" if len(sources) > 1 else ""
        values = {name: _number(found[prefix + name]) for name in statistics}
        bands.append({**values, "covered_share": min(1.0, float(found[prefix + "count"]) * width * height / shape.area)})
    return bands


def _nothing(statistics: Sequence[str]) -> dict[str, float | None]:
    return {**{name: 0.0 if name in ("count", "sum") else None for name in statistics}, "covered_share": 0.0}


def _number(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None
