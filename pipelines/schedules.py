"""When windows run: once each, all partitions in one request, some minutes after they closed.

A tick that was missed is not caught up by Dagster; the arrivals sensor wakes a window that has inputs and was never planned.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import dagster as dg

from pipelines.watched import ATTEMPT_TAG, Watched, run_request
from resources.config import SensorConfig, WindowConfig
from resources.windows import BatchWindow, WindowCalendar

_MINUTES_PER_DAY = 24 * 60


def schedule_cron(calendar: WindowCalendar, delay_minutes: int) -> str:
    """Cron line (UTC) of the window edges moved on by the delay; of a delay beyond a window's length, what is left of it
    counts.
    """
    minute, hour, day, month, weekday = calendar.cron.split()
    days, rest = divmod(delay_minutes, _MINUTES_PER_DAY)
    minute = str(rest % 60)
    if hour != "*":
        hour = str(rest // 60)
    if weekday != "*":
        weekday = str((int(weekday) + days) % 7)
    elif day != "*":
        day = str(int(day) + days)
    return " ".join((minute, hour, day, month, weekday))


def closed_window(calendar: WindowCalendar, moment: datetime, *, delay_minutes: int) -> BatchWindow | None:
    """The window that closed last, `delay_minutes` or more before `moment`; None when there is none."""
    edge = moment - timedelta(minutes=delay_minutes)
    current = calendar.window_of(edge)
    before = (current.start if current is not None else edge) - timedelta(microseconds=1)
    found = calendar.window_of(before)
    return found if found is not None and found.end <= edge else None


def window_requests(
    watched: Watched, names: Sequence[str], window: str, *, sensors: SensorConfig, run_key: str, only_due: bool
) -> list[dg.RunRequest]:
    """Requests for all partitions `names` of a window, in chunks of `partitions_per_run`; keys begin with `run_key`."""
    size = sensors.partitions_per_run
    return [
        run_request(
            watched,
            names[start : start + size],
            run_key=f"{run_key}|{start // size}",
            window=window,
            max_runtime_s=sensors.max_runtime_s,
            only_due=only_due,
            tags={ATTEMPT_TAG: "1"},
        )
        for start in range(0, len(names), size)
    ]


def schedule_status(is_on: bool) -> dg.DefaultScheduleStatus:
    """The status a schedule begins with; a person may switch it in the UI."""
    return dg.DefaultScheduleStatus.RUNNING if is_on else dg.DefaultScheduleStatus.STOPPED


def window_schedule(
    watched: Watched,
    *,
    calendar: WindowCalendar,
    partitions_of: Callable[[str], Sequence[str]],
    window: WindowConfig,
    sensors: SensorConfig,
    name: str = "windows",
    status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
) -> dg.ScheduleDefinition:
    """All partitions of the window that just closed, in as few runs as `partitions_per_run` allows."""

    @dg.schedule(
        name=name,
        job_name=watched.jobs[0],
        cron_schedule=schedule_cron(calendar, window.delay_minutes),
        execution_timezone="UTC",
        default_status=status,
        description=f"Runs all of the batch window that closed {window.delay_minutes} minutes ago.",
    )
    def windows(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        moment = context.scheduled_execution_time
        found = closed_window(calendar, moment, delay_minutes=window.delay_minutes)
        if found is None:
            return dg.SkipReason(f"no configured batch window has closed by {moment.isoformat(timespec='minutes')}")
        names = partitions_of(found.key)
        return window_requests(watched, names, found.key, sensors=sensors, run_key=f"window|{found.key}", only_due=False)

    return windows
