"""What sensors and checks look at: an asset whose partitions the ledger knows, and how Dagster shows them.

Belongs here: reading Dagster's side (statuses, living and ended runs, the partitions of a run) and wording a run request. No
decision.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Protocol

import dagster as dg

from pipelines.failed_partitions import EndedRun
from resources.config import Config
from resources.io_managers import ONLY_DUE_TAG
from resources.leases import Leases
from resources.ledger import Ledger
from resources.store import LocalStore

RANGE_START_TAG = "dagster/asset_partition_range_start"
RANGE_END_TAG = "dagster/asset_partition_range_end"
PARTITION_TAG = "dagster/partition"
MAX_RUNTIME_TAG = "dagster/max_runtime"
WINDOW_TAG = "tilewright/batch_window"
REQUEST_TAG = "tilewright/request"
ATTEMPT_TAG = "tilewright/attempt"

ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
UNENDED = (
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)
_RUNS_PER_TICK = 200
_FIRST_LOOK_BACK = timedelta(days=7)
_MARGIN = timedelta(seconds=60)


class ProjectLike(Protocol):
    """What sensors and checks need of a project."""

    @property
    def config(self) -> Config: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def store(self) -> LocalStore: ...


@dataclass(frozen=True, eq=False)
class Watched:
    """One asset and its partitions. `jobs`: the jobs that materialize it; the first is the one that requests name.

    `written_with`: another asset whose runs bring this one up to date on the way.
    """

    asset: str
    partitions_def: dg.PartitionsDefinition[str]
    jobs: tuple[str, ...]
    written_with: Watched | None = None
    _orders: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict, init=False, repr=False)

    @property
    def key(self) -> dg.AssetKey:
        """The asset's key in Dagster."""
        return dg.AssetKey([self.asset])

    def order(self) -> dict[str, int]:
        """Partition -> its place among all that exist now. Windows first, then tiles in the order of their definition."""
        windows, tiles = self._dimensions()
        mark = (windows[-1] if windows else "", len(windows))
        if mark not in self._orders:
            names = windows if tiles is None else [f"{window}|{tile}" for window, tile in product(windows, tiles)]
            self._orders.clear()
            self._orders[mark] = {name: place for place, name in enumerate(names)}
        return self._orders[mark]

    def between(self, start: str, end: str) -> list[str]:
        """Partitions of a range as Dagster means it: along each dimension from start to end. Unknown ends: none."""
        windows, tiles = self._dimensions()
        first, last = start.split("|"), end.split("|")
        dimensions = [windows] if tiles is None else [windows, tiles]
        if not len(first) == len(last) == len(dimensions):
            return []
        try:
            chosen = [names[names.index(a) : names.index(b) + 1] for names, a, b in zip(dimensions, first, last, strict=True)]
        except ValueError:
            return []
        return ["|".join(parts) for parts in product(*chosen)]

    def partitions_of(self, run: dg.DagsterRun) -> list[str]:
        """Partitions of this asset that a run works on; none when it has nothing to do with it."""
        # a run of a whole job has no selection, or an empty one
        is_mine = self.key in run.asset_selection if run.asset_selection else run.job_name in self.jobs
        if not is_mine:
            return []
        tags = run.tags
        if RANGE_START_TAG in tags and RANGE_END_TAG in tags:
            return self.between(tags[RANGE_START_TAG], tags[RANGE_END_TAG])
        return self.between(tags[PARTITION_TAG], tags[PARTITION_TAG]) if PARTITION_TAG in tags else []

    def written_by(self, run: dg.DagsterRun, ledger: Ledger) -> list[str]:
        """Windows of this asset that a run of the other asset wrote on the way."""
        if self.written_with is None:
            return []
        windows = dict.fromkeys(name.partition("|")[0] for name in self.written_with.partitions_of(run))
        return [window for window in windows if ledger.run(f"{run.run_id}/{self.asset}/{window}") is not None]

    def _dimensions(self) -> tuple[list[str], list[str] | None]:
        if isinstance(self.partitions_def, dg.MultiPartitionsDefinition):
            first, second = sorted(self.partitions_def.partitions_defs, key=lambda dimension: dimension.name)
            return list(first.partitions_def.get_partition_keys()), list(second.partitions_def.get_partition_keys())
        return list(self.partitions_def.get_partition_keys()), None


@dataclass(frozen=True, slots=True)
class Statuses:
    """Partitions by what Dagster shows."""

    materialized: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    in_progress: set[str] = field(default_factory=set)


def read_statuses(instance: dg.DagsterInstance, watched: Watched) -> Statuses:
    """Statuses of all partitions of an asset, from Dagster's cache."""
    names = list(watched.order())
    found = instance.get_status_by_partition(watched.key, names, watched.partitions_def) or {}
    statuses = Statuses()
    sets = {"MATERIALIZED": statuses.materialized, "FAILED": statuses.failed, "IN_PROGRESS": statuses.in_progress}
    for name, status in found.items():
        if status is not None:
            sets[status.value].add(name)
    return statuses


def read_living(instance: dg.DagsterInstance, project: ProjectLike, watched: Watched, *, now: datetime) -> dict[str, str]:
    """Partition -> who works on it: runs that have not ended, and holders of leases whatever Dagster says of their run."""
    holders = [holder for holder in project.ledger.holders() if holder.asset == watched.asset]
    held = project.leases.held(holder.partition_id for holder in holders)
    living = {
        holder.partition: f"run {holder.run_id[:8]}, which holds its lease" for holder in holders if holder.partition_id in held
    }
    stale = now - timedelta(seconds=project.config.sensors.request_timeout_s)
    for record in instance.get_run_records(dg.RunsFilter(statuses=list(UNENDED))):
        run = record.dagster_run
        if run.status is dg.DagsterRunStatus.NOT_STARTED and _utc(record.create_timestamp) < stale:
            continue  # created and never submitted: its daemon died in between
        for name in watched.partitions_of(run):
            living.setdefault(name, f"run {run.run_id[:8]} ({run.status.value})")
    return living


def read_launched(instance: dg.DagsterInstance, numbers: Iterable[int]) -> dict[int, str]:
    """Request number -> id of the run that was made for it."""
    wanted = sorted(set(numbers))
    launched: dict[int, str] = {}
    for start in range(0, len(wanted), 200):
        some = [str(number) for number in wanted[start : start + 200]]
        for run in instance.get_runs(dg.RunsFilter(tags={REQUEST_TAG: some})):
            launched[int(run.tags[REQUEST_TAG])] = run.run_id
    return launched


@dataclass(frozen=True, slots=True)
class EndedSince:
    """Where reading ended runs has come to, as a sensor's cursor: runs updated since `since`, less those already `seen`."""

    since: datetime
    seen: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, cursor: str | None, *, now: datetime) -> EndedSince:
        """The place a cursor names; without one, a week ago, so that a first tick knows what happened lately."""
        if not cursor:
            return cls(now - _FIRST_LOOK_BACK)
        values = json.loads(cursor)
        return cls(datetime.fromisoformat(values["since"]), frozenset(values["seen"]))

    def dump(self) -> str:
        """The cursor's text."""
        return json.dumps({"since": self.since.isoformat(), "seen": sorted(self.seen)})


def read_ended(
    instance: dg.DagsterInstance, place: EndedSince, *, limit: int = _RUNS_PER_TICK
) -> tuple[list[dg.RunRecord], EndedSince]:
    """Runs that ended since `place`, in the order of their last update, and the next place.

    By time of update with a margin, and by id within it: runs may end at one moment, and ids follow creation, not end.
    """
    records = instance.get_run_records(
        dg.RunsFilter(statuses=list(ENDED), updated_after=place.since - _MARGIN),
        limit=limit + len(place.seen),
        order_by="update_timestamp",
        ascending=True,
    )
    fresh = [record for record in records if record.dagster_run.run_id not in place.seen][:limit]
    since = max([place.since, *(_utc(record.update_timestamp) for record in fresh)])
    kept = {
        record.dagster_run.run_id
        for record in [*(record for record in records if record.dagster_run.run_id in place.seen), *fresh]
        if _utc(record.update_timestamp) >= since - _MARGIN
    }
    return fresh, EndedSince(since, frozenset(kept))


def as_ended(record: dg.RunRecord, watched: Watched) -> EndedRun:
    """A run's end, for the decision."""
    run = record.dagster_run
    at = datetime.fromtimestamp(record.end_time, UTC) if record.end_time else _utc(record.update_timestamp)
    return EndedRun(run.run_id, at, run.status is dg.DagsterRunStatus.CANCELED, frozenset(watched.partitions_of(run)))


def run_request(
    watched: Watched,
    partitions: Sequence[str],
    *,
    run_key: str | None,
    window: str,
    max_runtime_s: int,
    only_due: bool,
    tags: Mapping[str, str],
) -> dg.RunRequest:
    """One run over neighbouring partitions of one window."""
    said = {WINDOW_TAG: window, MAX_RUNTIME_TAG: str(max_runtime_s), **tags}
    if only_due:
        said[ONLY_DUE_TAG] = "true"
    if len(partitions) == 1:
        return dg.RunRequest(
            run_key=run_key, job_name=watched.jobs[0], asset_selection=[watched.key], partition_key=partitions[0], tags=said
        )
    said |= {RANGE_START_TAG: partitions[0], RANGE_END_TAG: partitions[-1]}
    return dg.RunRequest(run_key=run_key, job_name=watched.jobs[0], asset_selection=[watched.key], tags=said)


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
