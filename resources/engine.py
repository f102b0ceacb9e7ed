"""The engine: does what is missing of a set of partitions, once in effect, and says what it did.

Belongs here: the order of things. Skip before work; record the attempt before the work; stage and validate in a worker; promote,
make durable, and only then record. Recording first is the one forbidden order: a crash between promote and record costs one
adoption, a crash between record and promote would cost an output that the ledger swears is there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from resources.config import RetryConfig
from resources.crashpoints import reach
from resources.dispatch import Dispatch
from resources.errors import EnvironmentUnfit, ErrorKind, Verdict
from resources.executor import Executor
from resources.failures import FailureLog
from resources.leases import Lease, Leases
from resources.ledger import Ledger, PartitionRow, RunRow, UnitRow
from resources.outputs import Listings, Outputs
from resources.promotion import Promoter
from resources.reconciliation import Discrepancy
from resources.row_tables import is_row_uri
from resources.staging import StageTask, remove_staged
from resources.store import LocalStore
from resources.units import RUNNABLE_STATES, RunOutcome, RunSummary, UnitOfWork, UnitState
from resources.verdicts import classify

_UNITS_AT_ONCE = 2000
_WAIT_S = 0.5
_HEARTBEAT_S = 5.0
_PROGRESS_S = 5.0

INTERRUPTED = "interrupted"
"""Reason of a run that a person or the system asked to stop."""


class Batch(Protocol):
    """What an asset hands to the engine: partitions of one asset, and how to do their units."""

    @property
    def asset(self) -> str:
        """Name of the asset in the ledger."""

    @property
    def partitions(self) -> Sequence[str]:
        """Partition keys of this run."""

    @property
    def replaces(self) -> bool:
        """True of window outputs, which keep one name: a COMPLETE one is confirmed by opening it, not by its size alone."""

    def work(self, rows: Sequence[UnitRow]) -> Iterable[UnitOfWork]:
        """The work of planned units; a unit whose inputs no longer give its key is left out and so stays not attempted."""

    def replan(self) -> None:
        """Write the plan again after inputs were rejected: what can do without them supersedes what cannot."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, for the log and the progress bar."""

    done: int
    planned: int
    running: int
    unit_key: str
    window: str
    tile: str | None


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did: the five numbers, where each partition stands, what it found amiss, and who holds what it left alone."""

    run_id: str
    asset: str
    summary: RunSummary
    partitions: tuple[PartitionRow, ...]
    discrepancies: tuple[Discrepancy, ...]
    held_elsewhere: dict[str, str]
    stopped_by: EnvironmentUnfit | None = None

    @property
    def settled(self) -> tuple[PartitionRow, ...]:
        """Partitions in which nothing is left to do."""
        return tuple(row for row in self.partitions if row.is_settled and row.partition not in self.held_elsewhere)


@dataclass(slots=True)
class Engine:
    """The parts a run stands on. Make one per process; `run` may be called any number of times."""

    ledger: Ledger
    store: LocalStore
    leases: Leases
    executor_factory: Callable[[], Executor]
    retry: RetryConfig
    boot_id: str
    host: str
    pid: int
    min_free_bytes: int = 0
    rng: random.Random = field(default_factory=random.Random)

    def run(
        self,
        batch: Batch,
        *,
        run_id: str,
        requested_by: str = "",
        only_due: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> RunReport:
        """Do every incomplete unit of the batch's partitions that may be done now.

        One unit's failure never stops another. Raises only what stops everything (a ledger that cannot be reached); an unfit
        environment ends the run early and is told in the report. `only_due` leaves alone what is put off to a later time. After
        a crash: the next run of the same partitions takes over what was RUNNING, adopts what was promoted, and redoes the rest.
        """
        self.store.check(expected=self.ledger.remembered_store(), min_free_bytes=self.min_free_bytes)
        now = self.ledger.clock()
        self.ledger.begin_run(
            RunRow(
                run_id=run_id,
                asset=batch.asset,
                partitions=tuple(batch.partitions),
                pid=self.pid,
                host=self.host,
                boot_id=self.boot_id,
                started_at=now,
                heartbeat_at=now,
                requested_by=requested_by,
            )
        )
        ids = self.ledger.partition_ids(batch.asset, batch.partitions)
        with self.leases.hold(ids) as lease:
            self.ledger.note_holder([ids[name] for name in lease.acquired], run_id=run_id, pid=self.pid, host=self.host)
            try:
                return _Run(self, batch, lease, run_id, only_due, on_progress).run()
            finally:
                self.ledger.clear_holder(run_id)


class _Run:
    """One run of the engine: the loop between dispatch and promote."""

    def __init__(
        self,
        engine: Engine,
        batch: Batch,
        lease: Lease,
        run_id: str,
        only_due: bool,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.engine = engine
        self.ledger = engine.ledger
        self.store = engine.store
        self.outputs = Outputs(engine.store, engine.ledger)
        self.batch = batch
        self.lease = lease
        self.run_id = run_id
        self.only_due = only_due
        self.on_progress = on_progress or _say_nothing
        self.mine = [name for name in batch.partitions if name in lease.acquired]
        self.fences = self.ledger.bump_fence(batch.asset, self.mine)
        self.discrepancies: list[Discrepancy] = []
        self.stopped_by: EnvironmentUnfit | None = None
        self.failures = FailureLog(ledger=self.ledger, retry=engine.retry, run_id=run_id, rng=engine.rng)
        self.promoter = Promoter(
            outputs=self.outputs, run_id=run_id, fences_hold=self._fences_hold, discrepancies=self.discrepancies
        )
        self.done = 0
        self.planned = 0
        self.last: UnitOfWork | None = None
        self.suspected: set[str] = set()
        self._beat = self._told = time.monotonic()

    def run(self) -> RunReport:
        executor: Executor | None = None
        dispatch: Dispatch | None = None
        killed = True
        try:
            self.ledger.take_over(self.run_id, self.batch.asset, self.mine, boot_id=self.engine.boot_id)
            while True:
                dispatch = Dispatch(self._candidates(), suspected=self.suspected)
                if not dispatch.is_empty:
                    executor = executor or self.engine.executor_factory()
                    self._work_through(dispatch, executor)
                if self.stopped_by or not self.failures.inputs_were_rejected():
                    break
                self.batch.replan()
            self.failures.close()
            killed = False
        except BaseException as error:
            self._abandon(executor, dispatch)
            found = classify(error)
            if not isinstance(error, Exception) or found.verdict is not Verdict.STOP:
                reason = found.message if isinstance(error, Exception) else INTERRUPTED
                self._end(self._summary(reason=reason, stopped=True))
                raise
            self.stopped_by = error if isinstance(error, EnvironmentUnfit) else EnvironmentUnfit(found.message, kind=found.kind)
        finally:
            if executor is not None:
                executor.close(kill=killed)
        summary = self._summary(reason=self._reason(), stopped=self.stopped_by is not None)
        self._end(summary)
        rows = tuple(self.ledger.partition_rows(self.batch.asset, names=self.batch.partitions))
        return RunReport(
            run_id=self.run_id,
            asset=self.batch.asset,
            summary=summary,
            partitions=rows,
            discrepancies=tuple(self.discrepancies),
            held_elsewhere=dict(self.lease.held_elsewhere),
            stopped_by=self.stopped_by,
        )

    def _candidates(self) -> Iterator[UnitOfWork]:
        """Skip before work: yields the units to do, page by page, so that memory is flat in the number of units."""
        listings = self.outputs.listings()
        for rows in self.ledger.planned_pages(self.batch.asset, self.mine, size=_UNITS_AT_ONCE):
            self.planned += len(rows)
            complete = [row for row in rows if row.state is UnitState.COMPLETE]
            stale = self._stale(complete, listings)
            present = [row for row in complete if row.key not in stale]
            absent = [row for row in complete if row.key in stale]
            self.ledger.record_skips(self.run_id, [row.key for row in present])
            self.done += len(present) + sum(row.state in (UnitState.QUARANTINED, UnitState.DISMISSED) for row in rows)
            if absent:
                self._return_to_pending(absent)
            now = self.ledger.clock()
            todo = [row for row in rows if row.state in RUNNABLE_STATES and self._may_run(row, now)] + absent
            # they were running when a run vanished: one that ends whole runs is found out only when it runs alone
            self.suspected.update(row.key for row in todo if row.suspect)
            unrecorded = listings.sizes(row.output_uri for row in todo if row.key not in stale and not is_row_uri(row.output_uri))
            for unit in self.batch.work(todo):
                if unit.unit.output_uri in unrecorded and not unit.replaces and self.promoter.adopt(unit):
                    self.done += 1
                    continue
                yield unit

    def _stale(self, complete: Sequence[UnitRow], listings: Listings) -> set[str]:
        """Keys of COMPLETE units whose output is not there as recorded."""
        sizes = listings.sizes(row.output_uri for row in complete)
        stale = {row.key for row in complete if sizes.get(row.output_uri) != row.output_size}
        if self.batch.replaces:
            # a run killed between replace and record leaves another unit's bytes under this one's name
            present = [row for row in complete if row.key not in stale]
            stale.update(unit.unit.key for unit in self.batch.work(present) if not self.promoter.verifies(unit))
        return stale

    def _may_run(self, row: UnitRow, now: datetime) -> bool:
        return not self.only_due or row.retry_at is None or row.retry_at <= now

    def _return_to_pending(self, rows: Sequence[UnitRow]) -> None:
        for row in rows:
            place = self.outputs.at(row.output_uri)
            size = place.size(row.output_uri)
            kind = ErrorKind.OUTPUT_MISSING if size is None else ErrorKind.OUTPUT_DIFFERS
            found = "is missing" if size is None else f"has {size} bytes, recorded were {row.output_size}"
            self.discrepancies.append(
                Discrepancy(kind, row.key, row.output_uri, f"{row.output_uri} {found}; the unit is done again")
            )
            if size is not None:
                place.set_aside(row.output_uri)
        self.ledger.return_to_pending(
            [row.key for row in rows], reason="its output is missing or differs", kind=ErrorKind.OUTPUT_MISSING
        )

    def _work_through(self, dispatch: Dispatch, executor: Executor) -> None:
        while self.stopped_by is None:
            now = time.monotonic()
            alone = False
            units = dispatch.take(executor.room(), now)
            if not units and executor.running() == 0:
                units = dispatch.take_suspect()
                alone = bool(units)
                if not units and dispatch.is_empty:
                    return
            if units:
                self._start(units, dispatch, executor, alone=alone)
            self._settle(dispatch, executor, timeout_s=0.0 if units and executor.room() else self._patience(dispatch, now))
            self._keep_alive(executor)
        self._drain(dispatch, executor)

    def _patience(self, dispatch: Dispatch, now: float) -> float:
        due = dispatch.next_due()
        return _WAIT_S if due is None else min(_WAIT_S, max(0.0, due - now))

    def _start(self, units: Sequence[UnitOfWork], dispatch: Dispatch, executor: Executor, *, alone: bool) -> None:
        wanted = [unit for unit in units if self.failures.may_start(unit)]
        # a folder that cannot be made is known before any attempt is on record
        try:
            uris = {unit.unit.key: unit.unit.output_uri for unit in wanted}
            paths = {key: self.outputs.at(uri).staging_path(uri, run_id=self.run_id) for key, uri in uris.items()}
        except OSError as error:
            raise self.promoter.unfit(error, "a folder for outputs could not be made") from error
        numbers = self.ledger.start_attempts(self.run_id, [unit.unit.key for unit in wanted], alone=alone)
        reach("attempt.recorded", self.run_id)
        tasks = []
        for unit in wanted:
            number = numbers.get(unit.unit.key)
            if number is None:
                continue  # asked once more at dispatch: someone else has it, or has done it
            path = paths[unit.unit.key]
            subject = f"{unit.unit.key[:16]} {unit.unit.product} {unit.unit.window} {unit.unit.tile or ''}"
            dispatch.started(unit, number, alone=alone, path=path)
            tasks.append(StageTask(unit.unit.key, number, subject, unit.unit.output_uri, path, unit.work, unit.validate))
        executor.submit(tasks, alone=alone)

    def _settle(self, dispatch: Dispatch, executor: Executor, *, timeout_s: float) -> None:
        outcomes = executor.wait(timeout_s)
        if not outcomes:
            return
        staged, failed = dispatch.ended(outcomes)
        for unit, _, _ in staged:
            self.last = unit
            self.failures.succeeded(unit)
        self.done += self.promoter.promote(staged)
        for ended, again in self.failures.record(failed):
            if again is None:
                self.done += 1
            elif again.as_suspect:
                dispatch.suspect(ended.unit)
            else:
                dispatch.later(ended.unit, time.monotonic() + again.delay_s)
            if ended.failure.verdict is Verdict.STOP and self.stopped_by is None:
                self.stopped_by = EnvironmentUnfit(ended.failure.message, kind=ended.failure.kind)
        dispatch.written(outcomes)

    def _keep_alive(self, executor: Executor) -> None:
        now = time.monotonic()
        if now - self._beat >= _HEARTBEAT_S:
            self._beat = now
            self.engine.leases.check_alive()
            self.ledger.heartbeat(self.run_id)
            self.store.check(expected=self.ledger.remembered_store(), min_free_bytes=self.engine.min_free_bytes)
        if now - self._told >= _PROGRESS_S and self.last is not None:
            self._told = now
            unit = self.last.unit
            self.on_progress(Progress(self.done, self.planned, executor.running(), unit.key, unit.window, unit.tile))

    def _drain(self, dispatch: Dispatch, executor: Executor) -> None:
        """A stop lets what runs finish: its work is good, and its attempts are not left open."""
        while executor.running():
            self._settle(dispatch, executor, timeout_s=_WAIT_S)

    def _abandon(self, executor: Executor | None, dispatch: Dispatch | None) -> None:
        if executor is not None:
            executor.close(kill=True)
        if dispatch is not None:
            open_attempts = dispatch.abandon()
            for _, path in open_attempts.values():
                remove_staged(path)
            begun = {key: number for key, (number, _) in open_attempts.items()}
            # an interrupt between the record of an attempt and its dispatch leaves one that only the ledger knows of
            running = self.ledger.units(asset=self.batch.asset, state=UnitState.RUNNING)
            begun |= {row.key: row.attempt for row in running if row.run_id == self.run_id}
            self.failures.void(begun, reason="the run was interrupted")

    def _fences_hold(self) -> bool:
        return self.ledger.fence(self.batch.asset, self.mine) == self.fences

    def _reason(self) -> str:
        if self.stopped_by is not None:
            return self.stopped_by.message
        return self.failures.reason()

    def _summary(self, *, reason: str, stopped: bool) -> RunSummary:
        counts = self.ledger.counts(partitions_of=(self.batch.asset, self.batch.partitions), run_id=self.run_id)
        if stopped:
            outcome = RunOutcome.STOPPED
        elif counts.failed or counts.not_attempted:
            outcome = RunOutcome.PARTIAL
        else:
            outcome = RunOutcome.COMPLETE_WITH_QUARANTINE if counts.quarantined else RunOutcome.COMPLETE
        return RunSummary(
            counts.processed, counts.skipped, counts.failed, counts.quarantined, counts.not_attempted, outcome, reason
        )

    def _end(self, summary: RunSummary) -> None:
        self.ledger.end_run(self.run_id, summary)


def _say_nothing(_: Progress) -> None:
    return None
