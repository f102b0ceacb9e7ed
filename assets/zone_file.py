"""The polygons of `zones`: read, checked and named before anything is computed over them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import shapely
from shapely.geometry.base import BaseGeometry

from resources.config_scenes import ZonesConfig
from resources.errors import ConfigurationError
from resources.keys import digest_file

if TYPE_CHECKING:
    import geopandas as gpd

ID_COLUMN = "zone_id"
NOTE_COLUMN = "geometry_note"
_SHAPEFILE_PARTS = (".shp", ".shx", ".dbf", ".prj", ".cpg")
_POLYGONS = frozenset({"Polygon", "MultiPolygon"})
_NAMED_MAX = 10


def zone_file_digest(path: Path) -> str:
    """Sha256 over all that decides the zones: the file, a Shapefile's parts, or every file of a folder format.

    Raises `ConfigurationError` when there is no such file.
    """
    if path.is_dir():
        parts = sorted(part for part in path.rglob("*") if part.is_file())
    elif path.suffix.lower() == ".shp":
        parts = sorted(
            part for part in path.parent.iterdir() if part.stem == path.stem and part.suffix.lower() in _SHAPEFILE_PARTS
        )
    else:
        parts = [path]
    digest = hashlib.sha256()
    try:
        for part in parts or [path]:
            name = part.suffix.lower() if part.parent == path.parent else part.relative_to(path).as_posix()
            digest.update(f"{name}\0{digest_file(part)}\n".encode())
    except OSError as error:
        raise ConfigurationError(
            f"zones.path: {path} cannot be read: {error.strerror}; allowed: a vector file with polygons"
        ) from error
    return digest.hexdigest()


def read_zones(path: Path, zones: ZonesConfig) -> gpd.GeoDataFrame:
    """The zones in the file's order of ids: columns `zone_id`, `geometry_note` and the geometry, in the file's CRS.

    Invalid polygons are repaired, and `geometry_note` says what was wrong; empty geometries stay, and it says so. Raises
    `ConfigurationError` (no retry) naming file, field, what was found and what is allowed.
    """
    import geopandas as gpd

    try:
        frame = gpd.read_file(path, layer=zones.layer) if zones.layer else gpd.read_file(path)
    except Exception as error:  # pyogrio raises its own family, OSError and ValueError alike
        raise ConfigurationError(f"zones.path: {path} cannot be read as a vector file: {error}") from error
    if not isinstance(frame, gpd.GeoDataFrame):
        raise ConfigurationError(f"zones.path: {path}: found a table without geometry; allowed: polygons")
    if frame.crs is None:
        raise ConfigurationError(f"zones.path: {path}: found no CRS; allowed: any CRS that PROJ knows, stated in the file")
    if zones.id_field not in frame.columns or zones.id_field == frame.geometry.name:
        fields = [name for name in frame.columns if name != frame.geometry.name]
        raise ConfigurationError(
            f"zones.id_field: {path}: found no field {zones.id_field!r}; allowed: {', '.join(map(str, fields)) or 'none'}"
        )
    ids = frame[zones.id_field]
    if ids.isna().any():
        raise ConfigurationError(
            f"zones.id_field: {path}: field {zones.id_field!r}: found {int(ids.isna().sum())} empty values; "
            "allowed: a unique value for each zone"
        )
    twice = sorted({str(value) for value in ids[ids.duplicated()]})
    if twice:
        shown = ", ".join(twice[:_NAMED_MAX]) + (f" and {len(twice) - _NAMED_MAX} more" if len(twice) > _NAMED_MAX else "")
        raise ConfigurationError(
            f"zones.id_field: {path}: field {zones.id_field!r}: found duplicate values {shown}; "
            "allowed: a unique value for each zone"
        )
    if frame.empty:
        raise ConfigurationError(f"zones.path: {path}: found no features; allowed: at least one polygon")
    kinds = {shape.geom_type for shape in frame.geometry if shape is not None and not shape.is_empty}
    if kinds - _POLYGONS:
        raise ConfigurationError(
            f"zones.path: {path}: found {', '.join(sorted(kinds - _POLYGONS))}; allowed: Polygon, MultiPolygon"
        )
    repaired = [_repaired(shape) for shape in frame.geometry]
    result = gpd.GeoDataFrame(
        {ID_COLUMN: ids.to_numpy(), NOTE_COLUMN: [note for _, note in repaired]},
        geometry=[shape for shape, _ in repaired],
        crs=frame.crs,
    )
    return result.sort_values(ID_COLUMN, kind="stable").reset_index(drop=True)


def _repaired(shape: BaseGeometry | None) -> tuple[BaseGeometry, str]:
    if shape is None or shape.is_empty:
        return shapely.Polygon(), "empty geometry"
    shape = shapely.force_2d(shape)
    if shape.is_valid:
        return shape, ""
    why = str(shapely.is_valid_reason(shape))
    parts = [part for part in shapely.get_parts(shapely.make_valid(shape)) if part.geom_type in _POLYGONS]
    return (shapely.union_all(parts) if parts else shapely.Polygon()), f"repaired: {why}"
