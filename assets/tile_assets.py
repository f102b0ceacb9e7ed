"""The assets of the main job, as Dagster sees them: scenes, tiles, and what is made of a window's tiles."""

import dagster as dg

from assets.automation_assets import after_attempt, asset_settings
from assets.scenes_project import ScenesProject
from assets.scenes_shape import MANIFEST
from assets.stock import list_scenes, manifest_batch
from assets.tile_view import describe_scenes, describe_tiles, describe_window, scenes_metadata
from assets.tiles import TilesBatch
from assets.window_outputs import catalogue_batch, report_batch, zones_batch
from resources.io_managers import UnitsOutput
from resources.ledger import UnitRow

OWNER = "team:mapping"


def tile_assets(
    project: ScenesProject,
    *,
    windows: dg.PartitionsDefinition,
    window_tiles: dg.PartitionsDefinition,
    to_window: dg.PartitionMapping,
) -> list[dg.AssetsDefinition]:
    """Assets of the main job over the project's partitions."""
    of_window = asset_settings(project, windows, owner=OWNER)

    @dg.asset(
        name=MANIFEST,
        description="Every scene found for a batch window: files, digests, acquisition time, footprint, verdict. GeoParquet.",
        kinds={"python", "parquet"},
        **of_window,
    )
    def scene_manifest(context: dg.AssetExecutionContext) -> UnitsOutput:
        scenes = list_scenes(project, now=project.ledger.clock()).scenes
        batch = manifest_batch(project, context.partition_keys, scenes)
        return UnitsOutput(batch, project.engine(inline=True), context.add_asset_metadata, describe_scenes(project, scenes))

    @dg.asset(
        description="Cloud Optimized GeoTIFFs of every product, one partition per batch window and metatile.",
        kinds={"python", "gdal", "cog"},
        deps=[dg.AssetDep(scene_manifest, partition_mapping=to_window)],
        **asset_settings(project, window_tiles, owner=OWNER),
    )
    def tiles(context: dg.AssetExecutionContext) -> UnitsOutput:
        batch = TilesBatch(project, context.partition_keys, run_id=context.run.run_id)
        for window in batch.refreshed:
            found = scenes_metadata(project, window, batch.stock[window].scenes)
            context.log_event(dg.AssetMaterialization(MANIFEST, partition=window, metadata=found))
        return UnitsOutput(batch, project.engine(), context.add_asset_metadata, describe_tiles(project))

    upstream = dg.AssetIn("tiles", partition_mapping=to_window)

    @dg.asset(
        description="The tiles of a window that exist, as STAC GeoParquet, with one GDAL tile index per product beside it.",
        kinds={"python", "parquet", "stac"},
        ins={"tile_units": upstream},
        automation_condition=after_attempt(),
        **of_window,
    )
    def tile_catalogue(context: dg.AssetExecutionContext, tile_units: list[UnitRow]) -> UnitsOutput:
        batch = catalogue_batch(project, context.partition_keys, tile_units)
        return UnitsOutput(batch, project.engine(inline=True), context.add_asset_metadata, describe_window(project))

    @dg.asset(
        description="Zonal statistics of each product over the configured polygons, by exact coverage. GeoParquet.",
        kinds={"python", "parquet"},
        ins={"tile_units": upstream},
        automation_condition=after_attempt(),
        **of_window,
    )
    def zone_statistics(context: dg.AssetExecutionContext, tile_units: list[UnitRow]) -> UnitsOutput:
        batch = zones_batch(project, context.partition_keys, tile_units)
        # in a worker with its bounds: the zone file comes from outside
        return UnitsOutput(batch, project.engine(preload=("assets.zones",)), context.add_asset_metadata, describe_window(project))

    @dg.asset(
        description="One page about a window: map of tiles by state, counts, what is quarantined and why.",
        kinds={"python", "html"},
        ins={"tile_units": upstream},
        deps=[tile_catalogue],
        automation_condition=after_attempt(),
        **of_window,
    )
    def window_report(context: dg.AssetExecutionContext, tile_units: list[UnitRow]) -> UnitsOutput:
        batch = report_batch(project, context.partition_keys, tile_units)
        return UnitsOutput(batch, project.engine(inline=True), context.add_asset_metadata, describe_window(project))

    assets = [scene_manifest, tiles, tile_catalogue, window_report]
    return assets if project.config.zones is None else [*assets, zone_statistics]
