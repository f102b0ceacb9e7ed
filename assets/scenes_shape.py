"""Names of the main job: scenes to tiles, and what is made of a window's tiles."""

from __future__ import annotations

from assets.pipeline_shape import PipelineShape
from resources.config_scenes import ScenesConfig

MANIFEST = "scene_manifest"
TILES = "tiles"
CATALOGUE = "tile_catalogue"
ZONES = "zone_statistics"
REPORT = "window_report"


def scenes_shape(config: ScenesConfig) -> PipelineShape:
    """The shape of the main job; zone statistics are part of it when zones are configured."""
    return PipelineShape(
        name="scenes",
        group="scenes_to_tiles",
        subject="scene",
        manifest=MANIFEST,
        units=TILES,
        units_job="window_tiles",
        outputs=(CATALOGUE, REPORT) if config.zones is None else (CATALOGUE, ZONES, REPORT),
        has_tiles=True,
    )
