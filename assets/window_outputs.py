"""What is made of a window's tiles: catalogue with tile indexes, zone statistics, report. Keyed on the tiles they are made from.

A wake-up without change is a no-op: the key is the same, and the engine skips it. Absent tiles are no reason to wait: the
outputs say what is absent, and their keys change when it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from assets.catalogue import CatalogueRequest, catalogue_ingredients, catalogue_uri, validate_catalogue, write_catalogue
from assets.report import (
    AbsentScene,
    ReportRequest,
    absent_scenes,
    report_ingredients,
    report_uris,
    validate_report,
    validate_report_map,
    write_report,
    write_report_map,
)
from assets.scenes_project import ScenesProject
from assets.scenes_shape import CATALOGUE, REPORT, ZONES
from assets.stock import list_scenes
from assets.tile_index import (
    TileIndexRequest,
    grid_extent,
    tile_index_ingredients,
    tile_index_uri,
    validate_tile_index,
    write_tile_index,
)
from assets.window_batch import WindowBatch, window_unit
from assets.window_tiles import WindowTiles, band_names, window_tiles
from assets.zone_file import zone_file_digest
from assets.zones import ZonesRequest, validate_zone_statistics, write_zone_statistics, zone_ingredients, zone_statistics_uri
from resources.config_scenes import ProductConfig
from resources.keys import unit_key
from resources.ledger import UnitRow
from resources.units import Metrics, UnitOfWork


def catalogue_batch(project: ScenesProject, windows: Sequence[str], rows: Iterable[UnitRow]) -> WindowBatch:
    """Catalogue of each window and one tile index for each of its products."""
    tiles = _by_window(project, windows, rows)
    return WindowBatch(
        CATALOGUE,
        {
            window: [_catalogue(project, found), *(_tile_index(project, found, item) for item in project.config.products)]
            for window, found in tiles.items()
        },
        ledger=project.ledger,
    )


def zones_batch(project: ScenesProject, windows: Sequence[str], rows: Iterable[UnitRow]) -> WindowBatch:
    """Zonal statistics of each window. Raises `ConfigurationError` when the zone file cannot be used."""
    tiles = _by_window(project, windows, rows)
    return WindowBatch(ZONES, {window: [_zones(project, found)] for window, found in tiles.items()}, ledger=project.ledger)


def report_batch(project: ScenesProject, windows: Sequence[str], rows: Iterable[UnitRow]) -> WindowBatch:
    """The page and the map of each window."""
    scenes = list_scenes(project, now=project.ledger.clock()).scenes
    works = {}
    for window, tiles in _by_window(project, windows, rows).items():
        page, picture = report_uris(window)
        absent = absent_scenes(scenes, window)
        works[window] = [
            _report(project, tiles, absent, uri=picture, write=write_report_map, validate=validate_report_map),
            _report(project, tiles, absent, uri=page, write=write_report, validate=validate_report),
        ]
    return WindowBatch(REPORT, works, ledger=project.ledger)


def _report(
    project: ScenesProject,
    tiles: WindowTiles,
    absent: tuple[AbsentScene, ...],
    *,
    uri: str,
    write: Callable[[ReportRequest, Path], Metrics],
    validate: Callable[[ReportRequest, Path], None],
) -> UnitOfWork:
    places = project.grid.tiles
    links = _links(project, tiles.window.key)
    ingredients = report_ingredients(
        uri,
        tiles,
        products=project.config.products,
        places=places,
        scenes=absent,
        links=links,
        grid_settings=project.grid.settings(),
    )
    request = ReportRequest(
        unit_key=unit_key(**ingredients),
        uri=uri,
        tiles=tiles,
        products=project.config.products,
        places=places,
        scenes=absent,
        links=links,
        store_dir=project.config.store_dir,
    )
    return window_unit(
        f"{REPORT}.{uri.rpartition('.')[2]}",
        uri,
        ingredients,
        work=partial(write, request),
        validate=partial(validate, request),
    )


def _links(project: ScenesProject, window: str) -> tuple[tuple[str, str], ...]:
    links = [("tile catalogue", catalogue_uri(window))]
    links += [(f"tile index of {item.name}", tile_index_uri(window, item.name)) for item in project.config.products]
    if project.config.zones is not None:
        links.append(("zone statistics", zone_statistics_uri(window)))
    return tuple(links)


def _catalogue(project: ScenesProject, tiles: WindowTiles) -> UnitOfWork:
    ingredients = catalogue_ingredients(tiles, project.config.products, project.grid.settings())
    key = unit_key(**ingredients)
    uri = catalogue_uri(tiles.window.key)
    request = CatalogueRequest(unit_key=key, uri=uri, tiles=tiles, products=project.config.products)
    return window_unit(
        CATALOGUE, uri, ingredients, work=partial(write_catalogue, request), validate=partial(validate_catalogue, request)
    )


def _tile_index(project: ScenesProject, tiles: WindowTiles, product: ProductConfig) -> UnitOfWork:
    extent = grid_extent(project.grid)
    ingredients = tile_index_ingredients(tiles, product, project.grid.settings(), extent)
    uri = tile_index_uri(tiles.window.key, product.name)
    request = TileIndexRequest(
        unit_key=unit_key(**ingredients),
        uri=uri,
        tiles=tiles.of_product(product.name),
        product=product,
        crs=project.grid.crs,
        resolution=project.grid.resolution,
        extent=extent,
    )
    return window_unit(
        f"tile_index.{product.name}",
        uri,
        ingredients,
        work=partial(write_tile_index, request),
        validate=partial(validate_tile_index, request),
    )


def _zones(project: ScenesProject, tiles: WindowTiles) -> UnitOfWork:
    zones = project.config.zones
    if zones is None:
        raise ValueError("no zones are configured")
    path = project.config.resolve(zones.path)
    digest = zone_file_digest(path)
    products = tuple((product.name, band_names(product)) for product in project.config.products)
    ingredients = zone_ingredients(
        tiles, products=products, zones=zones, zones_digest=digest, grid_settings=project.grid.settings()
    )
    uri = zone_statistics_uri(tiles.window.key)
    request = ZonesRequest(
        unit_key=unit_key(**ingredients),
        uri=uri,
        tiles=tiles,
        products=products,
        zones=zones,
        zones_path=path,
        zones_digest=digest,
        grid_crs=project.grid.crs,
        store_dir=project.config.store_dir,
        gdal_cache_mb=project.config.executor.gdal_cache_mb,
    )
    return window_unit(
        ZONES,
        uri,
        ingredients,
        work=partial(write_zone_statistics, request),
        validate=partial(validate_zone_statistics, request),
    )


def _by_window(project: ScenesProject, windows: Sequence[str], rows: Iterable[UnitRow]) -> dict[str, WindowTiles]:
    sorted_rows: dict[str, list[UnitRow]] = {window: [] for window in windows}
    for row in rows:
        if row.window in sorted_rows:
            sorted_rows[row.window].append(row)
    return {
        window: window_tiles(some, window=project.calendar.window(window), grid=project.grid)
        for window, some in sorted_rows.items()
    }
