"""What of a run waits, runs, comes back later or must run alone. Pure bookkeeping: no clock, no ledger, no process."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from resources.errors import ErrorKind, Verdict
from resources.executor import Fate, Outcome
from resources.staging import Staged, remove_staged
from resources.units import UnitOfWork
from resources.verdicts import Failure


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that did not succeed. `fate` tells a failure from a lost worker; `alone` that nothing else was running.

    `is_answered`: a unit of the same source succeeded after it, so that it does not speak against the source.
    """

    unit: UnitOfWork
    attempt: int
    fate: Fate
    failure: Failure
    alone: bool
    is_answered: bool = False


StagedUnit = tuple[UnitOfWork, int, tuple[Path, Staged]]


class Dispatch:
    """Units of one pass: a stream of fresh ones, delayed ones, suspects, and those in flight."""

    def __init__(self, fresh: Iterator[UnitOfWork], *, suspected: Collection[str] = ()) -> None:
        """`suspected`: keys of fresh units that must run alone; it may grow while `fresh` is read."""
        self._fresh = fresh
        self._suspected = suspected
        self._ready: deque[UnitOfWork] = deque()
        self._delayed: list[tuple[float, int, UnitOfWork]] = []
        self._suspects: deque[UnitOfWork] = deque()
        self._in_flight: dict[str, tuple[UnitOfWork, int, bool, Path]] = {}
        self._order = count()
        self._fresh_ended = False

    def take(self, most: int, now: float) -> list[UnitOfWork]:
        """Up to `most` units that may start now; delayed ones that are due first."""
        units: list[UnitOfWork] = []
        while len(units) < most and self._delayed and self._delayed[0][0] <= now:
            units.append(heapq.heappop(self._delayed)[2])
        while len(units) < most and self._ready:
            units.append(self._ready.popleft())
        units.extend(self._next_fresh(most - len(units)))
        return units

    def take_suspect(self) -> list[UnitOfWork]:
        """One suspect, to be run while nothing else does."""
        return [self._suspects.popleft()] if self._suspects else []

    def started(self, unit: UnitOfWork, attempt: int, *, alone: bool, path: Path) -> None:
        """Note a unit in flight."""
        self._in_flight[unit.unit.key] = (unit, attempt, alone, path)

    def ended(self, outcomes: Sequence[Outcome]) -> tuple[list[StagedUnit], list[Ended]]:
        """Split what came back into staged outputs and failures. They stay in flight until they are `written`."""
        staged: list[StagedUnit] = []
        failed: list[Ended] = []
        answered: set[str] = set()
        for outcome in reversed(outcomes):
            unit, attempt, alone, path = self._in_flight[outcome.task.unit_key]
            if isinstance(outcome.result, Staged):
                answered.add(unit.unit.source)
                staged.append((unit, attempt, (path, outcome.result)))
                continue
            if outcome.fate is not Fate.RETURNED:
                remove_staged(path)
            # a time bound hits only its own worker call, a death may have been another's doing
            alone = alone or (outcome.fate is Fate.TIME and outcome.alone)
            failure = outcome.result or _lost(outcome)
            failed.append(Ended(unit, attempt, outcome.fate, failure, alone, unit.unit.source in answered))
        return staged[::-1], failed[::-1]

    def written(self, outcomes: Sequence[Outcome]) -> None:
        """Forget what came back: the ledger has it."""
        for outcome in outcomes:
            self._in_flight.pop(outcome.task.unit_key, None)

    def later(self, unit: UnitOfWork, due: float) -> None:
        """Try a unit again at `due` (monotonic seconds)."""
        heapq.heappush(self._delayed, (due, next(self._order), unit))

    def suspect(self, unit: UnitOfWork) -> None:
        """Try a unit again, alone, when all else is done."""
        self._suspects.append(unit)

    def next_due(self) -> float | None:
        """When the next delayed unit may start; None when there is none."""
        return self._delayed[0][0] if self._delayed else None

    @property
    def is_empty(self) -> bool:
        """True when nothing waits; what is in flight does not count."""
        if not self._ready:
            self._ready.extend(self._next_fresh(1))
        return not (self._ready or self._delayed or self._suspects)

    def abandon(self) -> dict[str, tuple[int, Path]]:
        """Forget what is in flight: unit key -> (attempt, staging path)."""
        left = {key: (attempt, path) for key, (_, attempt, _, path) in self._in_flight.items()}
        self._in_flight.clear()
        return left

    def _next_fresh(self, most: int) -> list[UnitOfWork]:
        units: list[UnitOfWork] = []
        while len(units) < most and not self._fresh_ended:
            unit = next(self._fresh, None)
            if unit is None:
                self._fresh_ended = True
            elif unit.unit.key in self._suspected:
                self._suspects.append(unit)
            else:
                units.append(unit)
        return units


def _lost(outcome: Outcome) -> Failure:
    kind = ErrorKind.TIMEOUT if outcome.fate is Fate.TIME else ErrorKind.WORKER_LOST
    return Failure(Verdict.RETRY, kind, outcome.detail)
