"""Inspections in Dagster: reports to compliance records, and what is made of a window's records."""

from assets.inspection_assets import inspection_assets
from assets.inspections.project import InspectionsProject
from pipelines.assembly import PipelineParts, watch
from pipelines.partitions import window_partitions


def inspections_parts(project: InspectionsProject) -> PipelineParts:
    """All partitions are batch windows."""
    windows = window_partitions(project.calendar)
    return PipelineParts(assets=inspection_assets(project, windows=windows), watched=watch(project.shape, windows=windows))
