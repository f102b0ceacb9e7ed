"""Batch windows and tiles as Dagster partitions, and the way from a partition key to its window and tile and back.

Dimension names sort alphabetically into the key, so the window comes first: `2026-01-05|z12m4.y0096.x0052`.
"""

from __future__ import annotations

from dataclasses import dataclass

import dagster as dg

from assets.grid import Grid
from resources.errors import ConfigurationError
from resources.windows import WindowCalendar

WINDOW_DIMENSION = "batch_window"
TILE_DIMENSION = "tile"
PARTITIONS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class ProjectPartitions:
    """The partitions of a project: windows alone, and windows by tiles."""

    windows: dg.TimeWindowPartitionsDefinition
    tiles: dg.StaticPartitionsDefinition
    window_tiles: dg.MultiPartitionsDefinition

    @property
    def to_window(self) -> dg.MultiToSingleDimensionPartitionMapping:
        """From all tiles of a window to the window, and from a window to its tiles."""
        return dg.MultiToSingleDimensionPartitionMapping(partition_dimension_name=WINDOW_DIMENSION)


def window_partitions(calendar: WindowCalendar) -> dg.TimeWindowPartitionsDefinition:
    """The windows of a calendar."""
    return dg.TimeWindowPartitionsDefinition(
        start=calendar.start, end=calendar.end, fmt=calendar.key_format, cron_schedule=calendar.cron, timezone="UTC"
    )


def period_partitions(calendar: WindowCalendar) -> dg.TimeWindowPartitionsDefinition:
    """The windows of a calendar with the one that is not over: for what is due all through it."""
    return dg.TimeWindowPartitionsDefinition(
        start=calendar.start, fmt=calendar.key_format, cron_schedule=calendar.cron, timezone="UTC", end_offset=1
    )


def project_partitions(calendar: WindowCalendar, grid: Grid) -> ProjectPartitions:
    """Partitions of the configured windows and grid. Raises `ConfigurationError` for more tiles than a window may have."""
    names = list(grid.partitions)
    if len(names) > PARTITIONS_MAX:
        raise ConfigurationError(
            f"grid: {len(names)} partitions a window; allowed: {PARTITIONS_MAX} in all. Raise grid.metatile or shrink grid.area"
        )
    windows = window_partitions(calendar)
    tiles = dg.StaticPartitionsDefinition(names)
    return ProjectPartitions(windows, tiles, dg.MultiPartitionsDefinition({WINDOW_DIMENSION: windows, TILE_DIMENSION: tiles}))


def window_of(partition: str) -> str:
    """The window key of a partition key of either kind."""
    return partition.partition("|")[0]
