"""Names of digitization: preservation masters to access copies and preservation events."""

from __future__ import annotations

from assets.pipeline_shape import PipelineShape
from resources.config_digitization import DigitizationConfig

MANIFEST = "master_manifest"
COPIES = "access_copies"
EVENTS = "preservation_events"
PREMIS = "premis_export"
REPORT = "batch_report"
FIXITY = "fixity_checks"


def digitization_shape(config: DigitizationConfig) -> PipelineShape:  # noqa: ARG001 - every pipeline is asked alike
    """The shape of digitization; fixity is checked in periods of its own."""
    return PipelineShape(
        name="digitization",
        group="masters_to_access_copies",
        subject="master",
        manifest=MANIFEST,
        units=COPIES,
        units_job="window_copies",
        outputs=(EVENTS, PREMIS, REPORT),
        more=(FIXITY,),
    )
