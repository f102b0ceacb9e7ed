"""Digitization in Dagster: preservation masters to access copies and preservation events, and the checks of fixity."""

from assets.digitization.project import DigitizationProject
from assets.digitization.shape import FIXITY, PREMIS
from assets.digitization_assets import digitization_assets
from pipelines.assembly import PipelineParts, watch
from pipelines.fixity import exports_schedule, fixity_check, fixity_schedule, fixity_sensor
from pipelines.partitions import period_partitions, window_partitions
from pipelines.schedules import schedule_status
from pipelines.watched import Watched

FIXITY_JOB = "fixity_period"


def digitization_parts(project: DigitizationProject) -> PipelineParts:
    """Partitions are batch windows; those of fixity checks are periods of their own, the current one included."""
    windows = window_partitions(project.calendar)
    periods = period_partitions(project.fixity_calendar)
    fixity = Watched(FIXITY, periods, (FIXITY_JOB,))
    watched = watch(project.shape, windows=windows, more=[fixity])
    exports = next(item for item in watched.outputs if item.asset == PREMIS)
    config = project.config
    status = schedule_status(config.fixity.schedule or config.autostart)
    return PipelineParts(
        assets=digitization_assets(project, windows=windows, fixity_periods=periods),
        watched=watched,
        checks=[fixity_check(fixity, project)],
        schedules=[fixity_schedule(fixity, project, status=status), exports_schedule(exports, project, status=status)],
        sensors=[fixity_sensor(fixity, project, interval_s=config.sensors.interval_s)],
    )
