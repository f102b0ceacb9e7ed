"""Attempts: guarded transitions of units, in group commits.

A transition locks the rows that still are in the expected state, of the expected run and attempt, and changes exactly those: what
comes back is who won. A late writer finds its attempt over and changes nothing. An attempt is recorded before its work begins, so
that a crash leaves it to be counted; an output is recorded after it was promoted, never before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import Boolean, Connection, bindparam, select, update

from resources.errors import Verdict
from resources.ledger.connection import Connected, chunks
from resources.ledger.endings import END_ATTEMPT, FAIL_UNIT, ending
from resources.ledger.letters import input_letter, open_unit_letters
from resources.ledger.schema import attempts, dead_letters, rejected_inputs, runs, skips, units
from resources.units import RUNNABLE_STATES, AttemptFailure, AttemptOutcome, UnitState

_RUNNABLE = sorted(RUNNABLE_STATES)


class Attempts(Connected):
    """What happens to a unit from its start to its end."""

    def start_attempts(self, run_id: str, keys: Sequence[str], *, alone: bool = False) -> dict[str, int]:
        """PENDING or FAILED -> RUNNING with a new attempt; key -> attempt number for those won.

        Two runs that ask for the same units at once win each unit once between them. After a crash: either the attempt is
        recorded and RUNNING, or nothing happened.
        """
        return self.write(self._start, run_id, keys, alone=alone)

    def _start(self, connection: Connection, run_id: str, keys: Sequence[str], *, alone: bool) -> dict[str, int]:
        won: dict[str, int] = {}
        now = self.clock()
        for chunk in chunks(keys):
            is_runnable = units.c.state.in_(_RUNNABLE)
            ordered = select(units.c.id).where(units.c.key.in_(chunk), is_runnable).order_by(units.c.id).with_for_update()
            rows = connection.execute(
                update(units)
                .where(units.c.id.in_(ordered), is_runnable)
                .values(state=UnitState.RUNNING, attempt=units.c.attempt + 1, run_id=run_id, retry_at=None)
                .returning(units.c.id, units.c.key, units.c.attempt)
            ).all()
            started = select(
                units.c.id,
                units.c.attempt,
                units.c.round,
                bindparam("b_run", run_id),
                bindparam("b_alone", alone, type_=Boolean()),
                bindparam("b_now", now, type_=attempts.c.started_at.type),
            ).where(units.c.id.in_([row.id for row in rows]))
            columns = ["unit_id", "number", "round", "run_id", "is_alone", "started_at"]
            connection.execute(attempts.insert().from_select(columns, started))
            won.update((row.key, row.attempt) for row in rows)
        return won

    def fail(self, run_id: str, failures: Sequence[AttemptFailure]) -> dict[str, UnitState]:
        """RUNNING with that attempt of that run -> where its verdict says; the new state of each unit won.

        RETRY: FAILED until `retry_at`, or QUARANTINED once `attempts_max` counted attempts are used up. QUARANTINE: QUARANTINED.
        STOP, or an outcome that does not count: PENDING; if LOST, suspect. A dead letter is opened in the same transaction; for a
        failure with `input_digest` it is the input's, once, however many units meet it.
        """
        states: dict[str, UnitState] = {}
        for chunk in chunks(failures):
            states |= self.write(self._fail_group, run_id, chunk)
        return states

    def _fail_group(self, connection: Connection, run_id: str, failures: Sequence[AttemptFailure]) -> dict[str, UnitState]:
        now = self.clock()
        by_key = {failure.unit_key: failure for failure in failures}
        rows = connection.execute(
            select(units.c.id, units.c.key, units.c.attempt, units.c.attempts, units.c.suspect, units.c.window)
            .where(units.c.key.in_(list(by_key)), units.c.state == UnitState.RUNNING, units.c.run_id == run_id)
            .order_by(units.c.id)
            .with_for_update()
        ).all()
        changes, endings, opened = [], [], []
        states: dict[str, UnitState] = {}
        for row in rows:
            failure = by_key[row.key]
            if failure.attempt != row.attempt:
                continue
            outcome, is_counted = _counting(failure)
            state = self._state_after(failure, is_counted=is_counted, attempts_before=row.attempts)
            blocked_by = failure.input_digest if state is UnitState.QUARANTINED else None
            reason = failure.message
            if blocked_by is not None:
                reason = f"input {blocked_by[:16]} is rejected: {failure.message}"
                self._reject(connection, blocked_by, failure, window=row.window, now=now)
            changes.append(
                {
                    "b_id": row.id,
                    "b_attempt": row.attempt,
                    "b_to": state,
                    "b_count": int(is_counted),
                    "b_suspect": outcome is AttemptOutcome.LOST or (row.suspect and state is not UnitState.QUARANTINED),
                    "b_kind": failure.kind,
                    "b_reason": reason,
                    "b_retry_at": failure.retry_at if state is UnitState.FAILED else None,
                    "b_blocked_by": blocked_by,
                }
            )
            endings.append(
                ending(
                    row.id,
                    row.attempt,
                    now,
                    outcome,
                    is_counted=is_counted,
                    verdict=failure.verdict,
                    kind=failure.kind,
                    reason=failure.message,
                )
            )
            if state is UnitState.QUARANTINED and blocked_by is None:
                opened.append({"unit_id": row.id, "kind": failure.kind, "verdict": failure.verdict, "reason": reason})
            states[row.key] = state
        if changes:
            connection.execute(FAIL_UNIT, changes)
            connection.execute(END_ATTEMPT, endings)
            open_unit_letters(connection, opened, now=now)
        return states

    def _state_after(self, failure: AttemptFailure, *, is_counted: bool, attempts_before: int) -> UnitState:
        if not is_counted:
            return UnitState.PENDING
        if failure.verdict is Verdict.QUARANTINE or attempts_before + 1 >= self.attempts_max:
            return UnitState.QUARANTINED
        return UnitState.FAILED

    def _reject(self, connection: Connection, digest: str, failure: AttemptFailure, *, window: str | None, now: datetime) -> None:
        found = connection.execute(
            select(rejected_inputs.c.lifted_at, rejected_inputs.c.round, rejected_inputs.c.name)
            .where(rejected_inputs.c.digest == digest)
            .with_for_update()
        ).first()
        if found is not None and found.lifted_at is None:
            return
        round_number = 1 if found is None else found.round + 1
        name = f"input {digest[:16]}" if found is None else found.name
        row = {"digest": digest, "name": name, "kind": failure.kind, "reason": failure.message, "window": window}
        row |= {"rejected_at": now, "lifted_at": None, "round": round_number}
        upsert = self.insert(rejected_inputs)
        connection.execute(upsert.on_conflict_do_update(index_elements=["digest"], set_=row), row)
        letter = input_letter(
            digest=digest,
            name=name,
            kind=failure.kind,
            reason=failure.message,
            window=window,
            round_number=round_number,
            now=now,
        )
        self.insert_new(connection, dead_letters, [letter])

    def record_skips(self, run_id: str, keys: Iterable[str]) -> None:
        """Note that a run found these units done and left them alone. Raises `LookupError` before `begin_run`."""
        noted = list(keys)
        self.write(self._skip, run_id, noted)

    def _skip(self, connection: Connection, run_id: str, keys: Sequence[str]) -> None:
        now = self.clock()
        number = connection.execute(select(runs.c.number).where(runs.c.run_id == run_id)).scalar()
        if number is None:
            raise LookupError(f"run {run_id!r} was not begun")
        for chunk in chunks(keys):
            chosen = select(bindparam("b_number", number), units.c.id, bindparam("b_now", now, type_=skips.c.at.type))
            connection.execute(
                self.insert(skips)
                .from_select(["run_number", "unit_id", "at"], chosen.where(units.c.key.in_(chunk)))
                .on_conflict_do_nothing()
            )


def _counting(failure: AttemptFailure) -> tuple[AttemptOutcome, bool]:
    if failure.outcome is AttemptOutcome.VOID or failure.verdict is Verdict.STOP:
        return AttemptOutcome.VOID, False
    if failure.outcome is AttemptOutcome.LOST:
        return AttemptOutcome.LOST, failure.charged
    return AttemptOutcome.FAILED, True
