"""Names of inspections: reports to compliance records."""

from __future__ import annotations

from assets.pipeline_shape import PipelineShape
from resources.config_inspections import InspectionsConfig

MANIFEST = "report_list"
RECORDS = "inspection_records"
TABLE = "inspection_table"
PAGE = "inspection_page"


def inspections_shape(config: InspectionsConfig) -> PipelineShape:  # noqa: ARG001 - every pipeline is asked alike
    """The shape of inspections."""
    return PipelineShape(
        name="inspections",
        group="reports_to_records",
        subject="report",
        manifest=MANIFEST,
        units=RECORDS,
        units_job="window_records",
        outputs=(TABLE, PAGE),
    )
