"""Which partitions to run again, and which to show as done: a pure decision over ledger rows, Dagster's statuses and a clock.

The ledger says what is due; what Dagster shows is a hint. A partition that Dagster shows red is run again only if something in
it is due, and one that it shows green is run again if something is. Learned from others' incidents: asking "is it failed now"
at every tick launched hundreds of thousands of runs; a run key is spent for ever, so a request that was dropped in silence is
never made again; and a run that a person cancelled came back by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import pairwise

from resources.ledger import DuePartition, RequestRow


class RequestState(StrEnum):
    """What became of the latest request for a partition."""

    REQUESTED = "REQUESTED"
    LAUNCHED = "LAUNCHED"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one tick may do, and how long it waits for what."""

    requests_per_tick: int = 20
    partitions_per_run: int = 256
    heals_per_tick: int = 200
    request_timeout_s: float = 600.0
    fruitless_max: int = 5
    pause_base_s: float = 120.0
    pause_cap_s: float = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that ended since the last tick. `is_cancelled`: a person ended it."""

    run_id: str
    ended_at: datetime
    is_cancelled: bool
    partitions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Shown:
    """What Dagster and the leases say. `living`: partition -> who works on it; `launched`: request number -> its run.

    `ended` are runs that ended since the last tick, in the order of their end.
    """

    materialized: Collection[str] = frozenset()
    failed: Collection[str] = frozenset()
    in_progress: Collection[str] = frozenset()
    living: Mapping[str, str] = field(default_factory=dict)
    launched: Mapping[int, str] = field(default_factory=dict)
    ended: Sequence[EndedRun] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """One run to ask for: neighbours of one window, all of them due. `attempt`: the highest number a unit of it gets."""

    window: str
    partitions: tuple[str, ...]
    attempt: int = 1
    fruitless: Mapping[str, int] = field(default_factory=dict)

    @property
    def start(self) -> str:
        """First partition of the range."""
        return self.partitions[0]

    @property
    def end(self) -> str:
        """Last partition of the range."""
        return self.partitions[-1]


@dataclass(frozen=True, slots=True)
class Decision:
    """What one tick does.

    `changes`: requests to be written, beside those that the asks make; `stuck`: what nobody asks for any more.
    """

    asks: tuple[Ask, ...] = ()
    heals: tuple[str, ...] = ()
    changes: tuple[RequestRow, ...] = ()
    stuck: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def decide(
    *,
    due: Sequence[DuePartition],
    settled: Collection[str],
    shown: Shown,
    requests: Mapping[str, RequestRow],
    order: Mapping[str, int],
    problems: Sequence[str],
    now: datetime,
    bounds: Bounds,
) -> Decision:
    """Decide one tick.

    `due` are the ledger's partitions with unsettled units, `settled` those without; `order` numbers the partitions that exist,
    and two are neighbours when their numbers follow on each other. `problems`: what makes store or source unfit; while there
    are any, nothing is asked for and nothing is healed.
    """
    memory, changes = _remember(due, shown, requests)
    if problems:
        return Decision(changes=tuple(changes.values()), notes=(f"no run is requested: {'; '.join(problems)}",))
    eligible: dict[str, tuple[DuePartition, int, datetime | None]] = {}
    counted: dict[str, list[str]] = {}
    for row in due:
        verdict, fruitless = _judge(row, memory.get(row.partition), shown, order, now, bounds)
        counted.setdefault(verdict, []).append(row.partition)
        if verdict == _ELIGIBLE:
            last = memory.get(row.partition)
            eligible[row.partition] = (row, fruitless, None if last is None else last.requested_at)
    asks = _asks(eligible, order, bounds)
    heals = _heals(settled, shown, order, bounds)
    wanted = sum(len(ask.partitions) for ask in asks)
    return Decision(
        asks=tuple(asks),
        heals=tuple(heals),
        changes=tuple(changes.values()),
        stuck=tuple(counted.get(_STUCK, ())),
        notes=tuple(_notes(counted, due, eligible=len(eligible), wanted=wanted)),
    )


_ELIGIBLE = "due"
_BUSY = "worked on by a living run"
_LATER = "not due yet"
_ASKED = "asked for, run not there yet"
_RESTING = "resting after a run that got nowhere"
_STUCK = "given up after runs that got nowhere"
_CANCELLED = "left alone because a person cancelled their run"
_UNKNOWN = "not in the grid or calendar any more"


def _remember(
    due: Sequence[DuePartition], shown: Shown, requests: Mapping[str, RequestRow]
) -> tuple[dict[str, RequestRow], dict[str, RequestRow]]:
    """Requests as they stand after what happened since the last tick; and those that changed by it."""
    memory = dict(requests)
    changes: dict[str, RequestRow] = {}
    work = {row.partition: row for row in due}
    for partition in work.keys() & memory.keys():
        row = memory[partition]
        if row.state == RequestState.REQUESTED and row.number in shown.launched:
            changes[partition] = memory[partition] = replace(row, state=RequestState.LAUNCHED, run_id=shown.launched[row.number])
    for run in shown.ended:
        for partition in run.partitions & work.keys():
            last = memory.get(partition)
            if last is not None and last.requested_at > run.ended_at:
                continue  # asked for again since
            if run.is_cancelled:
                changes[partition] = memory[partition] = _cancelled(work[partition], last, run)
            elif last is not None and last.state == RequestState.CANCELLED:
                changes[partition] = memory[partition] = replace(
                    last, state=RequestState.LAUNCHED, run_id=run.run_id, fruitless=0
                )
    for partition, kept in list(memory.items()):
        unsettled = work[partition].unsettled if partition in work else 0
        if kept.state == RequestState.CANCELLED and unsettled < kept.unsettled:
            changes[partition] = memory[partition] = replace(kept, unsettled=unsettled)
    return memory, changes


def _cancelled(left: DuePartition, row: RequestRow | None, run: EndedRun) -> RequestRow:
    return RequestRow(
        partition=left.partition,
        number=0 if row is None else row.number,
        run_key="" if row is None else row.run_key,
        requested_at=run.ended_at,
        run_id=run.run_id,
        state=RequestState.CANCELLED,
        unsettled=left.unsettled,
        attempts=left.attempts_counted,
    )


def _judge(
    row: DuePartition,
    last: RequestRow | None,
    shown: Shown,
    order: Mapping[str, int],
    now: datetime,
    bounds: Bounds,
) -> tuple[str, int]:
    """Where a partition stands, and how many requests in a row were fruitless."""
    if row.partition not in order:
        return _UNKNOWN, 0
    if row.partition in shown.living:
        return _BUSY, 0
    # RUNNING without a living run: its run is dead, and only another run can take it over
    if row.pending + row.failed_due + row.running == 0:
        return _LATER, 0
    if last is None:
        return _ELIGIBLE, 0
    is_planned_since = row.planned_at is not None and row.planned_at > last.requested_at
    if last.state == RequestState.CANCELLED:
        return (_ELIGIBLE if is_planned_since or row.unsettled > last.unsettled else _CANCELLED), 0
    age_s = (now - last.requested_at).total_seconds()
    if last.state == RequestState.REQUESTED:
        return (_ASKED if age_s < bounds.request_timeout_s else _ELIGIBLE), last.fruitless
    if is_planned_since or (row.unsettled, row.attempts_counted) != (last.unsettled, last.attempts):
        return _ELIGIBLE, 0
    fruitless = last.fruitless + 1
    # an unwell source charges nobody, however long it is so: its units must be found when it is well again
    if fruitless >= bounds.fruitless_max and not row.put_off:
        return _STUCK, fruitless
    pause_s = min(bounds.pause_cap_s, bounds.pause_base_s * 2.0 ** min(fruitless - 1, 32))
    return (_RESTING if age_s < pause_s else _ELIGIBLE), fruitless


def _asks(
    eligible: Mapping[str, tuple[DuePartition, int, datetime | None]], order: Mapping[str, int], bounds: Bounds
) -> list[Ask]:
    """Ranges of neighbours, all of them due; the longest unasked first, so that none starves behind the bound."""
    found = []
    for names in _ranges(eligible, order, {name: eligible[name][0].window or "" for name in eligible}):
        for start in range(0, len(names), bounds.partitions_per_run):
            some = names[start : start + bounds.partitions_per_run]
            window = eligible[some[0]][0].window or ""
            asked = [at for name in some if (at := eligible[name][2]) is not None]
            never_asked = len(asked) < len(some)
            rank = (not never_asked, min(asked).timestamp() if asked else 0.0, order[some[0]])
            fruitless = {name: eligible[name][1] for name in some if eligible[name][1]}
            attempt = 1 + max(eligible[name][0].attempt_max for name in some)
            found.append((rank, Ask(window, tuple(some), attempt, fruitless)))
    found.sort(key=lambda item: item[0])
    return [ask for _, ask in found[: bounds.requests_per_tick]]


def _ranges(names: Iterable[str], order: Mapping[str, int], windows: Mapping[str, str]) -> list[list[str]]:
    ordered = sorted(names, key=lambda name: order[name])
    if not ordered:
        return []
    ranges = [[ordered[0]]]
    for before, name in pairwise(ordered):
        if order[name] == order[before] + 1 and windows[name] == windows[before]:
            ranges[-1].append(name)
        else:
            ranges.append([name])
    return ranges


def _heals(settled: Collection[str], shown: Shown, order: Mapping[str, int], bounds: Bounds) -> list[str]:
    """Settled, and shown red or missing: red first."""
    wrong = [
        name
        for name in settled
        if name in order
        and (name in shown.failed or name not in shown.materialized)
        and name not in shown.in_progress
        and name not in shown.living
    ]
    wrong.sort(key=lambda name: (name not in shown.failed, order[name]))
    return wrong[: bounds.heals_per_tick]


def _notes(counted: Mapping[str, Sequence[str]], due: Sequence[DuePartition], *, eligible: int, wanted: int) -> Iterable[str]:
    if eligible > wanted:
        yield f"{eligible - wanted} more partitions are due and wait for the next tick"
    for verdict in (_BUSY, _ASKED, _RESTING, _CANCELLED, _STUCK, _UNKNOWN):
        if names := counted.get(verdict):
            yield f"{len(names)} {verdict} (e.g. {names[0]})"
    if later := counted.get(_LATER):
        waiting = set(later)
        times = [row.next_due for row in due if row.partition in waiting and row.next_due is not None]
        first = f", the first at {min(times).isoformat(timespec='seconds')}" if times else ""
        yield f"{len(later)} {_LATER}{first}"


def request_rows(ask: Ask, *, number: int, run_key: str, due: Mapping[str, DuePartition], now: datetime) -> list[RequestRow]:
    """What to remember of a request that is about to be made."""
    return [
        RequestRow(
            partition=name,
            number=number,
            run_key=run_key,
            requested_at=now,
            run_id=None,
            state=RequestState.REQUESTED,
            unsettled=due[name].unsettled,
            attempts=due[name].attempts_counted,
            fruitless=ask.fruitless.get(name, 0),
        )
        for name in ask.partitions
    ]
