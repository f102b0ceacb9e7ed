"""What `tilewright doctor` asks of a project of scenes: its grid, its zones, the drivers of its rasters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial

from assets.grid import Grid
from resources.config_scenes import ScenesConfig
from resources.errors import EnvironmentUnfit, ErrorKind
from resources.windows import WindowCalendar


def scenes_questions(config: ScenesConfig) -> Mapping[str, Callable[[], str]]:
    """Name -> question; each answers in words or raises what is wrong."""
    return {"grid": partial(_grid, config), "zones": partial(_zones, config), "GDAL": partial(_gdal, config)}


def _grid(config: ScenesConfig) -> str:
    grid = Grid.from_config(config)
    windows = sum(1 for _ in WindowCalendar(config.window).windows(datetime.now(UTC)))
    partitions = windows * len(grid.partitions)
    if partitions >= 100_000:
        raise EnvironmentUnfit(
            f"{windows} windows x {len(grid.partitions)} partitions = {partitions}; Dagster is fit for fewer than 100,000. "
            "Raise grid.metatile, lengthen window.every or set a later window.start",
            kind=ErrorKind.BAD_CONFIGURATION,
        )
    return f"{len(grid.tiles)} tiles of {grid.config.tile_px} px in {len(grid.partitions)} partitions, {windows} windows so far"


def _zones(config: ScenesConfig) -> str:
    if config.zones is None:
        return "none configured"
    from assets.zone_file import zone_file_digest

    return f"{config.resolve(config.zones.path)}: readable, sha256 {zone_file_digest(config.resolve(config.zones.path))[:12]}..."


def _gdal(config: ScenesConfig) -> str:
    from resources.gdal_safety import registered_drivers, require_restricted_drivers

    require_restricted_drivers()
    missing = {"GTiff", "COG", *config.source.drivers} - registered_drivers()
    if missing:
        raise EnvironmentUnfit(
            f"drivers that are needed are not there or not allowed: {', '.join(sorted(missing))}; see source.drivers",
            kind=ErrorKind.BAD_CONFIGURATION,
        )
    return (
        f"needed drivers are there, those that follow names or addresses are off ({', '.join(config.source.drivers)} may be read)"
    )
