"""Digitization in Dagster: preservation masters to access copies and preservation events, and the checks of fixity."""

from assets.digitization_assets import digitization_assets

from assets.digitization.project import DigitizationProject
from assets.digitization.shape import FIXITY
from pipelines.assembly import PipelineParts, watch
from pipelines.partitions import window_partitions
from pipelines.watched import Watched

FIXITY_JOB = "fixity_period"


def digitization_parts(project: DigitizationProject) -> PipelineParts:
    """Partitions are batch windows, those of fixity checks are periods of their own."""
    windows = window_partitions(project.calendar)
    periods = window_partitions(project.fixity_calendar)
    return PipelineParts(
        assets=digitization_assets(project, windows=windows, fixity_periods=periods),
        watched=watch(project.shape, windows=windows, more=[Watched(FIXITY, periods, (FIXITY_JOB,))]),
    )
