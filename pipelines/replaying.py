"""Replay without a person: exhausted retries by schedule, and those of a source that has recovered as soon as it has.

Both ask for the units again, as a new round with its history kept; the failed-partition sensor runs them. What was quarantined
for another reason gives the same answer again, and a rejected input whose content changed is another input or another revision.
Letters of late rounds are left to people: nothing is replayed for ever.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol

import dagster as dg

from pipelines.checks import Opened
from pipelines.maintenance import Job
from pipelines.schedules import schedule_status
from pipelines.watched import ProjectLike, Watched
from resources.errors import Verdict
from resources.ledger import DeadLetter


class PlanAgain(Protocol):
    """`Project.plan_again`."""

    def __call__(self, windows: Iterable[str], *, run_id: str) -> None: ...


def exhausted_letters(project: ProjectLike, *, rounds_max: int) -> list[DeadLetter]:
    """Open dead letters of exhausted retries that are not yet left to people."""
    letters = project.ledger.dead_letters()
    return [letter for letter in letters if letter.verdict is Verdict.RETRY and letter.round <= rounds_max]


def recovered_letters(
    letters: Iterable[DeadLetter], *, sources: Mapping[str, str], completions: Mapping[str, datetime]
) -> list[DeadLetter]:
    """Those whose source gave something since: `sources` by unit key, `completions` by source."""
    return [
        letter
        for letter in letters
        if (source := sources.get(letter.subject_key)) in completions and completions[str(source)] > letter.last_at
    ]


def replay_exhausted(project: ProjectLike, *, rounds_max: int) -> int:
    """Replay what is exhausted, whether its source has recovered or not; how many."""
    return _replay(project, exhausted_letters(project, rounds_max=rounds_max), who="schedule")


def replay_recovered(project: ProjectLike, *, rounds_max: int) -> int:
    """Replay what is exhausted and whose source has completed a unit since; how many."""
    letters = exhausted_letters(project, rounds_max=rounds_max)
    if not letters:
        return 0
    sources = {row.key: row.source for row in project.ledger.units(keys=[letter.subject_key for letter in letters])}
    completions = project.ledger.last_completions(sources.values())
    return _replay(project, recovered_letters(letters, sources=sources, completions=completions), who="recovery of the source")


def _replay(project: ProjectLike, letters: Sequence[DeadLetter], *, who: str) -> int:
    return project.ledger.replay([letter.id for letter in letters], who=who) if letters else 0


def windows_of_rejections(project: ProjectLike) -> list[str]:
    """Windows with open dead letters of what was rejected: planned again, what has changed since is asked for again."""
    letters = project.ledger.dead_letters()
    return sorted({letter.window for letter in letters if letter.verdict is Verdict.QUARANTINE and letter.window is not None})


def replay_job(
    opened: Opened,
    *,
    every: Literal["hour", "day"],
    is_on: bool,
    plan_again: PlanAgain | None = None,
    replay: Callable[..., int] = replay_exhausted,
) -> Job:
    """Hourly or daily: exhausted retries are asked for again, through the same path as new work.

    With `plan_again`, windows of what was rejected are planned too: content or rules that changed are another unit or revision.
    """

    @dg.op
    def replay_letters(context: dg.OpExecutionContext) -> None:
        project = opened()
        number = replay(project, rounds_max=project.config.retry.attempts_max)
        windows = windows_of_rejections(project) if plan_again is not None else []
        context.log.info(f"replayed letters={number} windows_planned_again={len(windows)}")
        context.add_output_metadata({"replayed": number, "windows_planned_again": len(windows)})
        if plan_again is not None and windows:
            plan_again(windows, run_id=f"replay-{context.run_id}")

    @dg.job(
        name="replay_exhausted_retries",
        description="Replays dead letters of exhausted retries; the failed-partition sensor runs them.",
    )
    def replay_exhausted_retries() -> None:
        replay_letters()

    schedule = dg.ScheduleDefinition(
        name="hourly_replay" if every == "hour" else "daily_replay",
        job=replay_exhausted_retries,
        cron_schedule="7 * * * *" if every == "hour" else "7 6 * * *",
        execution_timezone="UTC",
        default_status=schedule_status(is_on),
    )
    return replay_exhausted_retries, schedule


def recovery_sensor(watched: Watched, opened: Opened, *, interval_s: int, is_on: bool) -> dg.SensorDefinition:
    """Replays exhausted retries of a source that answers again, long before the schedule would."""

    @dg.sensor(
        name="source_recovery",
        asset_selection=dg.AssetSelection.assets(watched.key),
        minimum_interval_seconds=interval_s,
        default_status=dg.DefaultSensorStatus.RUNNING if is_on else dg.DefaultSensorStatus.STOPPED,
        description="Replays exhausted retries whose source has completed a unit since; the failed-partition sensor runs them.",
    )
    def source_recovery() -> dg.SkipReason:
        project = opened()
        number = replay_recovered(project, rounds_max=project.config.retry.attempts_max)
        return dg.SkipReason(f"replayed {number} dead letters of sources that answer again")

    return source_recovery
