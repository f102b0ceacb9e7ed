"""Attempts: guarded transitions of units, in group commits.

A transition locks the rows that still are in the expected state, of the expected run and attempt, and changes exactly those: what
comes back is who won. A late writer finds its attempt over and changes nothing. An attempt is recorded before its work begins, so
that a crash leaves it to be counted; an output is recorded after it was promoted, never before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, false, null, select, true, update
from sqlalchemy.exc import IntegrityError as ConstraintError

from resources.errors import ErrorKind, Verdict
from resources.ledger.connection import Connected, chunks
from resources.ledger.letters import UNIT, add_notes, close_letters, input_letter, open_unit_letters
from resources.ledger.rows import LetterStatus, dump
from resources.ledger.schema import attempts, dead_letters, membership, partitions, rejected_inputs, runs, skips, units
from resources.units import RUNNABLE_STATES, AttemptFailure, AttemptOutcome, Completion, UnitState

_RUNNABLE = sorted(RUNNABLE_STATES)
_ADOPTABLE = [*_RUNNABLE, UnitState.QUARANTINED]
_RACES_MAX = 5

_COMPLETE_UNIT = (
    update(units)
    .where(units.c.id == bindparam("b_id"), units.c.attempt == bindparam("b_attempt"), units.c.state == bindparam("b_state"))
    .values(
        state=UnitState.COMPLETE,
        output_uri=bindparam("b_uri"),
        output_digest=bindparam("b_digest"),
        output_size=bindparam("b_size"),
        metrics=bindparam("b_metrics"),
        completed_at=bindparam("b_now"),
        suspect=false(),
        error_kind=null(),
        reason=null(),
        retry_at=null(),
        blocked_by=null(),
    )
)
_END_ATTEMPT = (
    update(attempts)
    .where(attempts.c.unit_id == bindparam("b_id"), attempts.c.number == bindparam("b_attempt"), attempts.c.outcome.is_(None))
    .values(
        ended_at=bindparam("b_now"),
        outcome=bindparam("b_outcome"),
        is_counted=bindparam("b_counted"),
        verdict=bindparam("b_verdict"),
        error_kind=bindparam("b_kind"),
        reason=bindparam("b_reason"),
        duration_s=bindparam("b_duration"),
    )
)
_FAIL_UNIT = (
    update(units)
    .where(units.c.id == bindparam("b_id"), units.c.attempt == bindparam("b_attempt"), units.c.state == UnitState.RUNNING)
    .values(
        state=bindparam("b_to"),
        attempts=units.c.attempts + bindparam("b_count"),
        suspect=bindparam("b_suspect"),
        error_kind=bindparam("b_kind"),
        reason=bindparam("b_reason"),
        retry_at=bindparam("b_retry_at", type_=units.c.retry_at.type),
        blocked_by=bindparam("b_blocked_by"),
    )
)


class Attempts(Connected):
    """What happens to a unit from its start to its end."""

    def start_attempts(self, run_id: str, keys: Sequence[str], *, alone: bool = False) -> dict[str, int]:
        """PENDING or FAILED -> RUNNING with a new attempt; key -> attempt number for those won.

        Two runs that ask for the same units at once win each unit once between them. After a crash: either the attempt is
        recorded and RUNNING, or nothing happened.
        """
        won: dict[str, int] = {}
        now = self.clock()
        with self.writing() as connection:
            for chunk in chunks(keys):
                rows = connection.execute(
                    select(units.c.id, units.c.key, units.c.attempt, units.c.round)
                    .where(units.c.key.in_(chunk), units.c.state.in_(_RUNNABLE))
                    .order_by(units.c.id)
                    .with_for_update()
                ).all()
                if not rows:
                    continue
                connection.execute(
                    update(units)
                    .where(units.c.id.in_([row.id for row in rows]), units.c.state.in_(_RUNNABLE))
                    .values(state=UnitState.RUNNING, attempt=units.c.attempt + 1, run_id=run_id, retry_at=None)
                )
                connection.execute(
                    attempts.insert(),
                    [
                        {
                            "unit_id": row.id,
                            "number": row.attempt + 1,
                            "round": row.round,
                            "run_id": run_id,
                            "is_alone": alone,
                            "started_at": now,
                        }
                        for row in rows
                    ],
                )
                won.update((row.key, row.attempt + 1) for row in rows)
        return won

    def complete(self, run_id: str, completions: Sequence[Completion]) -> set[str]:
        """RUNNING with that attempt of that run -> COMPLETE; the keys won. To be called after the output was promoted.

        A unit whose output URI another COMPLETE unit has does not win: it is quarantined as DUPLICATE_KEY with a dead letter that
        names the other, and the rest of the group is recorded. After a crash: all of the group is recorded, or none.
        """
        return self._record_outputs(completions, run_id=run_id)

    def adopt(self, completions: Sequence[Completion]) -> set[str]:
        """PENDING, FAILED or QUARANTINED -> COMPLETE without an attempt, for outputs found and verified; the keys won."""
        return self._record_outputs(completions, run_id=None)

    def _record_outputs(self, completions: Sequence[Completion], *, run_id: str | None) -> set[str]:
        won: set[str] = set()
        for chunk in chunks(completions):
            for race in range(_RACES_MAX):
                try:
                    with self.writing() as connection:
                        recorded = self._record_group(connection, chunk, run_id=run_id)
                    break
                except ConstraintError:
                    # another process completed the same output URI between look and write; the next look sees it
                    if race == _RACES_MAX - 1:
                        raise
            won |= recorded
        return won

    def _record_group(self, connection: Connection, completions: Sequence[Completion], *, run_id: str | None) -> set[str]:
        now = self.clock()
        by_key = {completion.unit_key: completion for completion in completions}
        statement = select(units.c.id, units.c.key, units.c.attempt, units.c.state, units.c.suspect).where(
            units.c.key.in_(list(by_key))
        )
        if run_id is None:
            statement = statement.where(units.c.state.in_(_ADOPTABLE))
        else:
            statement = statement.where(units.c.state == UnitState.RUNNING, units.c.run_id == run_id)
        rows = connection.execute(statement.order_by(units.c.id).with_for_update()).all()
        if run_id is not None:
            rows = [row for row in rows if row.attempt == by_key[row.key].attempt]
        if not rows:
            return set()
        taken = self._taken_uris(connection, {by_key[row.key].output_uri for row in rows})
        winners, losers = [], []
        for row in rows:
            uri = by_key[row.key].output_uri
            if uri in taken:
                losers.append((row, taken[uri]))
            else:
                taken[uri] = row.key
                winners.append(row)
        if winners:
            values = []
            for row in winners:
                done = by_key[row.key]
                values.append(
                    {
                        "b_id": row.id,
                        "b_attempt": row.attempt,
                        "b_state": row.state,
                        "b_uri": done.output_uri,
                        "b_digest": done.digest,
                        "b_size": done.size_bytes,
                        "b_metrics": dump(dict(done.metrics)),
                        "b_now": now,
                    }
                )
            connection.execute(_COMPLETE_UNIT, values)
            self._forget_replaced(connection, [(by_key[row.key].output_uri, row.id) for row in winners])
        if run_id is None:
            close_letters(connection, UNIT, [row.key for row in winners], LetterStatus.RESOLVED, now=now)
            add_notes(connection, [row.id for row in winners], "adopted", now=now)
        elif winners:
            connection.execute(
                _END_ATTEMPT,
                [
                    _end(row.id, row.attempt, now, AttemptOutcome.SUCCEEDED, duration_s=by_key[row.key].duration_s)
                    for row in winners
                ],
            )
        self._quarantine_duplicates(connection, losers, by_key, now=now)
        return {row.key for row in winners}

    @staticmethod
    def _taken_uris(connection: Connection, uris: Iterable[str]) -> dict[str, str]:
        rows = connection.execute(
            select(units.c.output_uri, units.c.key).where(
                units.c.output_uri.in_(sorted(uris)), units.c.state == UnitState.COMPLETE
            )
        )
        return dict(rows.tuples().all())

    @staticmethod
    def _forget_replaced(connection: Connection, outputs: Sequence[tuple[str, int]]) -> None:
        # a window output is overwritten under its one name: what a superseded unit had recorded there is gone
        connection.execute(
            update(units)
            .where(
                units.c.output_uri.in_([uri for uri, _ in outputs]),
                units.c.state.in_([UnitState.SUPERSEDED, UnitState.RETIRED]),
                units.c.state_before == UnitState.COMPLETE,
            )
            .values(state_before=UnitState.PENDING)
        )

    @staticmethod
    def _quarantine_duplicates(
        connection: Connection, losers: Sequence[tuple[Any, str]], by_key: dict[str, Completion], *, now: datetime
    ) -> None:
        opened = []
        for row, other in losers:
            reason = f"its output {by_key[row.key].output_uri} is already that of unit {other[:16]}"
            connection.execute(
                update(units)
                .where(units.c.id == row.id)
                .values(
                    state=UnitState.QUARANTINED, error_kind=ErrorKind.DUPLICATE_KEY, reason=reason, attempts=units.c.attempts + 1
                )
            )
            ending = _end(
                row.id,
                row.attempt,
                now,
                AttemptOutcome.FAILED,
                is_counted=True,
                verdict=Verdict.QUARANTINE,
                kind=ErrorKind.DUPLICATE_KEY,
                reason=reason,
            )
            connection.execute(_END_ATTEMPT, [ending])
            opened.append({"unit_id": row.id, "kind": ErrorKind.DUPLICATE_KEY, "verdict": Verdict.QUARANTINE, "reason": reason})
        open_unit_letters(connection, opened, now=now)

    def fail(self, run_id: str, failures: Sequence[AttemptFailure]) -> dict[str, UnitState]:
        """RUNNING with that attempt of that run -> where its verdict says; the new state of each unit won.

        RETRY: FAILED until `retry_at`, or QUARANTINED once `attempts_max` counted attempts are used up. QUARANTINE: QUARANTINED.
        STOP, or an outcome that does not count: PENDING; if LOST, suspect. A dead letter is opened in the same transaction; for a
        failure with `input_digest` it is the input's, once, however many units meet it.
        """
        states: dict[str, UnitState] = {}
        for chunk in chunks(failures):
            with self.writing() as connection:
                states.update(self._fail_group(connection, run_id, chunk))
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
                _end(
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
            connection.execute(_FAIL_UNIT, changes)
            connection.execute(_END_ATTEMPT, endings)
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

    def return_to_pending(self, keys: Iterable[str], *, reason: str, kind: ErrorKind) -> int:
        """COMPLETE -> PENDING, for outputs that are missing or differ; how many. Counted attempts begin again, history stays."""
        now = self.clock()
        returned = 0
        for chunk in chunks(keys):
            with self.writing() as connection:
                ids = list(
                    connection.execute(
                        update(units)
                        .where(units.c.key.in_(chunk), units.c.state == UnitState.COMPLETE)
                        .values(state=UnitState.PENDING, attempts=0, error_kind=kind, reason=reason, completed_at=None)
                        .returning(units.c.id)
                    ).scalars()
                )
                add_notes(connection, ids, "returned", now=now, kind=kind, reason=reason)
                returned += len(ids)
        return returned

    def take_over(self, run_id: str, asset: str, names: Iterable[str], *, boot_id: str) -> int:
        """End what earlier holders of these partitions left RUNNING; how many. To be called under the lease, before any start.

        Their attempts end LOST. One is charged only if it ran alone, in a run that did not end and on this boot of the machine:
        such a unit killed its worker. The units are PENDING and suspect, or QUARANTINED at the bound.
        """
        taken = 0
        for chunk in chunks(names, 200):
            with self.writing() as connection:
                taken += self._take_over(connection, run_id, asset, chunk, boot_id=boot_id)
        return taken

    def _take_over(self, connection: Connection, run_id: str, asset: str, names: Sequence[str], *, boot_id: str) -> int:
        now = self.clock()
        members = (
            select(membership.c.unit_id)
            .join(partitions, partitions.c.id == membership.c.partition_id)
            .where(partitions.c.asset == asset, partitions.c.partition.in_(names))
        )
        rows = connection.execute(
            select(units.c.id, units.c.attempt, units.c.attempts, units.c.run_id)
            .where(units.c.id.in_(members), units.c.state == UnitState.RUNNING)
            .order_by(units.c.id)
            .with_for_update()
        ).all()
        if not rows:
            return 0
        ids = [row.id for row in rows]
        charged: set[int] = set()
        for chunk in chunks(ids):
            charged.update(
                connection.execute(
                    select(attempts.c.unit_id)
                    .join(units, (units.c.id == attempts.c.unit_id) & (units.c.attempt == attempts.c.number))
                    .join(runs, runs.c.run_id == attempts.c.run_id)
                    .where(
                        attempts.c.unit_id.in_(chunk),
                        attempts.c.is_alone == true(),
                        attempts.c.outcome.is_(None),
                        runs.c.ended_at.is_(None),
                        runs.c.boot_id == boot_id,
                    )
                ).scalars()
            )
        changes, endings, opened = [], [], []
        for row in rows:
            is_counted = row.id in charged
            over = is_counted and row.attempts + 1 >= self.attempts_max
            reason = f"run {row.run_id} vanished while it worked on this; taken over by run {run_id}"
            changes.append(
                {
                    "b_id": row.id,
                    "b_attempt": row.attempt,
                    "b_to": UnitState.QUARANTINED if over else UnitState.PENDING,
                    "b_count": int(is_counted),
                    "b_suspect": True,
                    "b_kind": ErrorKind.WORKER_LOST,
                    "b_reason": reason,
                    "b_retry_at": None,
                    "b_blocked_by": None,
                }
            )
            endings.append(
                _end(
                    row.id,
                    row.attempt,
                    now,
                    AttemptOutcome.LOST,
                    is_counted=is_counted,
                    verdict=Verdict.RETRY,
                    kind=ErrorKind.WORKER_LOST,
                    reason=reason,
                )
            )
            if over:
                opened.append({"unit_id": row.id, "kind": ErrorKind.WORKER_LOST, "verdict": Verdict.RETRY, "reason": reason})
        connection.execute(_FAIL_UNIT, changes)
        connection.execute(_END_ATTEMPT, endings)
        open_unit_letters(connection, opened, now=now)
        return len(rows)

    def record_skips(self, run_id: str, keys: Iterable[str]) -> None:
        """Note that a run found these units done and left them alone. Raises `LookupError` before `begin_run`."""
        now = self.clock()
        with self.writing() as connection:
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


def _end(
    unit_id: int,
    attempt: int,
    now: datetime,
    outcome: AttemptOutcome,
    *,
    is_counted: bool = False,
    verdict: Verdict | None = None,
    kind: str | None = None,
    reason: str | None = None,
    duration_s: float | None = None,
) -> dict[str, Any]:
    return {
        "b_id": unit_id,
        "b_attempt": attempt,
        "b_now": now,
        "b_outcome": outcome,
        "b_counted": is_counted,
        "b_verdict": verdict,
        "b_kind": kind,
        "b_reason": reason,
        "b_duration": duration_s,
    }
