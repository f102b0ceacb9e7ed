"""Completions: recording outputs that were promoted, and taking a record back whose output is gone.

Promote, then record; never the other order. A completion is won by the row that is still RUNNING in that attempt of that run. A
late writer finds its attempt over and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, false, func, null, or_, select, update
from sqlalchemy.exc import IntegrityError as ConstraintError

from resources.crashpoints import reach
from resources.errors import ErrorKind, Verdict
from resources.ledger.connection import chunks
from resources.ledger.endings import END_ATTEMPT, ending
from resources.ledger.leavers import GONE
from resources.ledger.letters import UNIT, add_notes, close_letters, open_unit_letters
from resources.ledger.row_outputs import OfferedRow, RowOutputs, standing_rows
from resources.ledger.rows import LetterStatus, dump
from resources.ledger.schema import attempts, units
from resources.row_tables import is_row_uri
from resources.units import RUNNABLE_STATES, AttemptOutcome, Completion, UnitState

_ADOPTABLE = [*sorted(RUNNABLE_STATES), UnitState.QUARANTINED]
_RACES_MAX = 5

_COMPLETE_UNIT = (
    update(units)
    .where(units.c.id == bindparam("b_id"), units.c.attempt == bindparam("b_attempt"), units.c.state == bindparam("b_state"))
    .values(
        state=UnitState.COMPLETE,
        output_digest=bindparam("b_digest"),
        output_size=bindparam("b_size"),
        metrics=bindparam("b_metrics"),
        revision=func.coalesce(bindparam("b_revision"), units.c.revision),
        completed_at=bindparam("b_now"),
        suspect=false(),
        error_kind=null(),
        reason=null(),
        retry_at=null(),
        blocked_by=null(),
    )
)
_KEEP_OUTPUT = (
    update(units)
    .where(units.c.id == bindparam("b_id"), units.c.state_before == UnitState.RUNNING)
    .values(
        state_before=UnitState.COMPLETE,
        output_uri=bindparam("b_uri"),
        output_digest=bindparam("b_digest"),
        output_size=bindparam("b_size"),
        metrics=bindparam("b_metrics"),
        revision=func.coalesce(bindparam("b_revision"), units.c.revision),
        completed_at=bindparam("b_now"),
        suspect=false(),
    )
)
_MOVE_OUTPUT = update(units).where(units.c.id == bindparam("b_id")).values(output_uri=bindparam("b_uri"))
_END_SUCCESS = (
    update(attempts)
    .where(attempts.c.unit_id == bindparam("b_id"), attempts.c.number == bindparam("b_attempt"), attempts.c.outcome.is_(None))
    .values(
        ended_at=bindparam("b_now"),
        outcome=AttemptOutcome.SUCCEEDED,
        is_counted=false(),
        duration_s=bindparam("b_duration"),
    )
)


class Completions(RowOutputs):
    """Writes about outputs."""

    def complete(self, run_id: str, completions: Sequence[Completion]) -> set[str]:
        """RUNNING with that attempt of that run -> COMPLETE; the keys won. To be called after the output was promoted.

        A unit whose output URI another COMPLETE unit has does not win: it is quarantined as DUPLICATE_KEY with a dead letter that
        names the other; the rest of the group is recorded. One that left the plan meanwhile does not win, but its output is on
        record as its own. Rows are written in the same transaction. After a crash: all of the group is recorded, or none.
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
                    recorded = self.write(self._record_group, chunk, run_id=run_id)
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
        columns = (units.c.id, units.c.key, units.c.attempt, units.c.state, units.c.output_uri, units.c.window)
        statement = select(*columns).where(units.c.key.in_(list(by_key)))
        if run_id is None:
            statement = statement.where(units.c.state.in_(_ADOPTABLE))
        else:
            statement = statement.where(units.c.state == UnitState.RUNNING, units.c.run_id == run_id)
        rows = connection.execute(statement.order_by(units.c.id).with_for_update()).all()
        if run_id is not None:
            rows = [row for row in rows if row.attempt == by_key[row.key].attempt]
            if len(rows) < len(by_key):
                self._record_leavers(connection, by_key, run_id=run_id, now=now)
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
            self._write_rows_of(connection, winners, by_key, now=now)
            reach("record.rows", run_id or "")
            self._record_winners(connection, winners, by_key, now=now)
        if run_id is None:
            close_letters(connection, UNIT, [row.key for row in winners], LetterStatus.RESOLVED, now=now)
            add_notes(connection, [row.id for row in winners], "adopted", now=now)
        elif winners:
            spent = [(row, by_key[row.key].duration_s) for row in winners]
            connection.execute(
                _END_SUCCESS, [{"b_id": row.id, "b_attempt": row.attempt, "b_now": now, "b_duration": s} for row, s in spent]
            )
        self._quarantine_duplicates(connection, losers, by_key, now=now)
        return {row.key for row in winners}

    def _record_leavers(self, connection: Connection, by_key: dict[str, Completion], *, run_id: str, now: datetime) -> None:
        """Outputs of units that left the plan while this very attempt ran: theirs if they return, and nobody's else."""
        rows = connection.execute(
            select(units.c.id, units.c.key, units.c.attempt, units.c.window)
            .where(
                units.c.key.in_(list(by_key)),
                units.c.state.in_(GONE),
                units.c.state_before == UnitState.RUNNING,
                units.c.run_id == run_id,
            )
            .order_by(units.c.id)
            .with_for_update()
        ).all()
        mine = [row for row in rows if row.attempt == by_key[row.key].attempt]
        taken = self._taken_uris(connection, {by_key[row.key].output_uri for row in mine}) if mine else {}
        kept = [row for row in mine if taken.setdefault(by_key[row.key].output_uri, row.key) == row.key]
        if kept:
            self._write_rows_of(connection, kept, by_key, now=now)
            values = [_recorded(row, by_key[row.key], now=now) | {"b_uri": by_key[row.key].output_uri} for row in kept]
            connection.execute(_KEEP_OUTPUT, values)

    def _write_rows_of(
        self, connection: Connection, rows: Sequence[Any], by_key: dict[str, Completion], *, now: datetime
    ) -> None:
        """Write what these units say in rows; for a unit whose output is a row, record the row that stands now."""
        offered = [OfferedRow(row.key, row.window, said) for row in rows for said in by_key[row.key].rows]
        if not offered:
            return
        self.write_rows(connection, offered, now=now)
        by_uri = {by_key[row.key].output_uri: row.key for row in rows if is_row_uri(by_key[row.key].output_uri)}
        for uri, (digest, size) in standing_rows(connection, by_uri).items():
            by_key[by_uri[uri]] = replace(by_key[by_uri[uri]], digest=digest, size_bytes=size)

    @staticmethod
    def _record_winners(connection: Connection, rows: Sequence[Any], by_key: dict[str, Completion], *, now: datetime) -> None:
        moved = [
            {"b_id": row.id, "b_uri": by_key[row.key].output_uri} for row in rows if row.output_uri != by_key[row.key].output_uri
        ]
        if moved:
            connection.execute(_MOVE_OUTPUT, moved)
        values = [_recorded(row, by_key[row.key], now=now) | {"b_attempt": row.attempt, "b_state": row.state} for row in rows]
        connection.execute(_COMPLETE_UNIT, values)

    @staticmethod
    def _taken_uris(connection: Connection, uris: Iterable[str]) -> dict[str, str]:
        """URIs that a COMPLETE unit has, with its key. Where one that left the plan had it, its output is overwritten now."""
        rows = connection.execute(
            select(units.c.id, units.c.key, units.c.output_uri, units.c.state).where(
                units.c.output_uri.in_(list(uris)),
                or_(units.c.state == UnitState.COMPLETE, units.c.state_before == UnitState.COMPLETE),
            )
        ).all()
        replaced = [row.id for row in rows if row.state != UnitState.COMPLETE]
        if replaced:
            connection.execute(update(units).where(units.c.id.in_(replaced)).values(state_before=UnitState.PENDING))
        return {row.output_uri: row.key for row in rows if row.state == UnitState.COMPLETE}

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
            ended = ending(
                row.id,
                row.attempt,
                now,
                AttemptOutcome.FAILED,
                is_counted=True,
                verdict=Verdict.QUARANTINE,
                kind=ErrorKind.DUPLICATE_KEY,
                reason=reason,
            )
            connection.execute(END_ATTEMPT, [ended])
            opened.append({"unit_id": row.id, "kind": ErrorKind.DUPLICATE_KEY, "verdict": Verdict.QUARANTINE, "reason": reason})
        open_unit_letters(connection, opened, now=now)

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


def _recorded(row: Any, done: Completion, *, now: datetime) -> dict[str, Any]:
    """Parameters that say what a unit's output is."""
    return {
        "b_id": row.id,
        "b_digest": done.digest,
        "b_size": done.size_bytes,
        "b_metrics": dump(done.metrics if type(done.metrics) is dict else dict(done.metrics)),
        "b_revision": done.revision,
        "b_now": now,
    }
