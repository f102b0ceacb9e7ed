"""The main job in Dagster: scenes to tiles, and what is made of a window's tiles."""

from assets.scenes_project import ScenesProject
from assets.tile_assets import tile_assets
from pipelines.assembly import PipelineParts, watch
from pipelines.partitions import project_partitions


def scenes_parts(project: ScenesProject) -> PipelineParts:
    """Partitions of tiles are a batch window and a metatile of the grid; the rest is of batch windows."""
    found = project_partitions(project.calendar, project.grid)
    return PipelineParts(
        assets=tile_assets(project, windows=found.windows, window_tiles=found.window_tiles, to_window=found.to_window),
        watched=watch(project.shape, windows=found.windows, units=found.window_tiles),
    )
