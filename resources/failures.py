"""What a failed attempt leads to: another try in this run, a later run, quarantine, a stop, or an unwell source.

Belongs here: bounds on tries within a run, and the breaker. Bounds over all runs are the ledger's, which counts attempts across
crashes. A source is unwell when several units in a row exhaust their tries on it: then its units stay PENDING and their failures
in this run are VOID, because the units were not at fault.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from resources.backoff import full_jitter_s, later_run_s
from resources.config import RetryConfig
from resources.dispatch import Ended
from resources.errors import ErrorKind, Verdict
from resources.executor import Fate
from resources.ledger import Ledger
from resources.units import AttemptFailure, AttemptOutcome, UnitOfWork, UnitState

_EXHAUSTED = (UnitState.FAILED, UnitState.QUARANTINED)


@dataclass(frozen=True, slots=True)
class Again:
    """Try the unit again in this run: after a delay, or alone. `is_innocent`: it was lost beside others and is not charged."""

    delay_s: float = 0.0
    as_suspect: bool = False
    is_innocent: bool = False


class FailureLog:
    """Records failures of one run in the ledger and says which units are tried again."""

    def __init__(self, *, ledger: Ledger, retry: RetryConfig, run_id: str, rng: random.Random) -> None:
        self._ledger = ledger
        self._retry = retry
        self._run_id = run_id
        self._rng = rng
        self._tries: Counter[str] = Counter()
        self._exhausted: dict[str, list[str]] = {}
        self._unwell: dict[str, str] = {}
        self._deferred: dict[str, set[str]] = {}
        self._rejected: set[str] = set()
        self._known: set[str] = set()
        self._asked_s: dict[str, float] = {}

    def may_start(self, unit: UnitOfWork) -> bool:
        """False for a unit of an unwell source or of an input that was rejected meanwhile: no work is wasted on it."""
        if unit.unit.source in self._unwell:
            self._deferred.setdefault(unit.unit.source, set()).add(unit.unit.key)
            return False
        return not self._rejected.intersection(unit.unit.inputs)

    def succeeded(self, unit: UnitOfWork) -> None:
        """A source that answers is well: what was counted against it in a row is forgotten."""
        self._exhausted.pop(unit.unit.source, None)
        self._tries.pop(unit.unit.key, None)

    def record(self, group: Sequence[Ended]) -> list[tuple[Ended, Again | None]]:
        """Write a group of failures to the ledger in one go; None beside a failure when this run is through with the unit."""
        judged = [(ended, *self._judge(ended)) for ended in group]
        states = self._ledger.fail(self._run_id, [failure for _, failure, _ in judged]) if judged else {}
        results: list[tuple[Ended, Again | None]] = []
        for ended, failure, again in judged:
            state = states.get(failure.unit_key)
            wanted = again if again is not None and (again.is_innocent or state is UnitState.FAILED) else None
            is_exhausted = (
                wanted is None and state in _EXHAUSTED and ended.failure.verdict is Verdict.RETRY and not ended.is_answered
            )
            # a file that was replaced is another input to the next run; its source is well
            if is_exhausted and ended.fate is Fate.RETURNED and ended.failure.kind is not ErrorKind.INPUT_CHANGED:
                self._count_against(ended.unit.unit.source, failure.unit_key)
            results.append((ended, wanted))
        return results

    def _judge(self, ended: Ended) -> tuple[AttemptFailure, Again | None]:
        """What to write about a failure, and whether the unit is tried again in this run if the ledger still allows it."""
        key, failure = ended.unit.unit.key, ended.failure
        if failure.verdict is Verdict.STOP:
            return self._failure(ended, outcome=AttemptOutcome.VOID, charged=False, delay_s=0.0), None
        if ended.fate is not Fate.RETURNED and not ended.alone:
            written = self._failure(ended, outcome=AttemptOutcome.LOST, charged=False, delay_s=0.0)
            return written, Again(as_suspect=True, is_innocent=True)
        if failure.input_digest is not None and failure.input_digest not in self._known:
            self._rejected.add(failure.input_digest)
            self._known.add(failure.input_digest)
        self._tries[key] += 1
        asked_s = failure.retry_after_s or 0.0
        is_soon = asked_s <= self._retry.cap_s  # a run does not wait longer for a source than it would by itself
        is_tried_again = failure.verdict is Verdict.RETRY and self._tries[key] < self._retry.tries_in_run and is_soon
        delay_s = max(asked_s, self._delay_s(ended.attempt, within_run=is_tried_again, tries=self._tries[key]))
        self._asked_s[ended.unit.unit.source] = max(asked_s, self._asked_s.get(ended.unit.unit.source, 0.0))
        outcome = AttemptOutcome.LOST if ended.fate is Fate.LOST else AttemptOutcome.FAILED
        written = self._failure(ended, outcome=outcome, charged=True, delay_s=delay_s)
        return written, Again(delay_s=delay_s, as_suspect=ended.fate is Fate.LOST) if is_tried_again else None

    def void(self, attempts: Mapping[str, int], *, reason: str, kind: ErrorKind = ErrorKind.UNCLASSIFIED) -> None:
        """End attempts that do not count: their units are PENDING again."""
        self._ledger.fail(
            self._run_id,
            [
                AttemptFailure(key, number, Verdict.STOP, kind, reason, outcome=AttemptOutcome.VOID, charged=False)
                for key, number in attempts.items()
            ],
        )

    def inputs_were_rejected(self) -> bool:
        """True once after one or more inputs were rejected: the plan has to be looked at again.

        Units that still read such an input afterwards are held, and are quarantined one by one by trying them.
        """
        found = bool(self._rejected)
        self._rejected.clear()
        return found

    def close(self) -> None:
        """Put off what an unwell source left undone, so that the sensor does not ask for it again at once.

        What it failed before or after the breaker opened is VOID too: the longer it is unwell, the more units would be charged.
        """
        for source, keys in self._deferred.items():
            later, reason = self._later(source), self._unwell[source]
            self._ledger.void_failures(self._run_id, sorted(keys & self._tries.keys()), retry_at=later, reason=reason)
            self._ledger.defer(sorted(keys), retry_at=later, reason=reason)

    def reason(self) -> str:
        """Why the run is partial, for its summary."""
        return "; ".join(f"source {name!r} is unwell: {reason}" for name, reason in sorted(self._unwell.items()))

    def _failure(self, ended: Ended, *, outcome: AttemptOutcome, charged: bool, delay_s: float) -> AttemptFailure:
        return AttemptFailure(
            unit_key=ended.unit.unit.key,
            attempt=ended.attempt,
            verdict=ended.failure.verdict,
            kind=ended.failure.kind,
            message=ended.failure.message,
            outcome=outcome,
            charged=charged,
            retry_at=self._ledger.clock() + timedelta(seconds=delay_s),
            input_digest=ended.failure.input_digest,
        )

    def _delay_s(self, attempt: int, *, within_run: bool, tries: int) -> float:
        if within_run:
            return full_jitter_s(tries, base_s=self._retry.base_s, cap_s=self._retry.cap_s, rng=self._rng)
        rounds = max(1, attempt // self._retry.tries_in_run)
        return later_run_s(rounds, base_s=self._retry.later_base_s, cap_s=self._retry.later_cap_s, rng=self._rng)

    def _later(self, source: str) -> datetime:
        delay_s = later_run_s(1, base_s=self._retry.later_base_s, cap_s=self._retry.later_cap_s, rng=self._rng)
        return self._ledger.clock() + timedelta(seconds=max(delay_s, self._asked_s.get(source, 0.0)))

    def _count_against(self, source: str, key: str) -> None:
        if source in self._unwell:
            self._deferred.setdefault(source, set()).add(key)
            return
        row = self._exhausted.setdefault(source, [])
        row.append(key)
        if len(row) >= self._retry.breaker_units:
            reason = f"{len(row)} units in a row exhausted their tries on it"
            self._unwell[source] = reason
            self._ledger.void_failures(self._run_id, list(row), retry_at=self._later(source), reason=reason)
