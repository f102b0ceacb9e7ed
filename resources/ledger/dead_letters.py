"""Dead letters and rejected inputs: the record of every quarantine, and its two ways out, replay and dismissal.

A unit that is QUARANTINED without a letter of its own is blocked by a rejected input, and the input has the letter. Letters are
closed, never deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, false, func, null, select, update

from resources.errors import Verdict
from resources.ledger.connection import Connected, chunks
from resources.ledger.letters import INPUT, UNIT, add_notes, close_letters, input_letter, reopen_superseded
from resources.ledger.rows import DeadLetter, InputRejection, LetterStatus, RejectedInput
from resources.ledger.schema import dead_letters, rejected_inputs, units
from resources.units import RUNNABLE_STATES, UnitState

_ROWS_PER_FETCH = 1000
_GONE = (UnitState.SUPERSEDED, UnitState.RETIRED)


class DeadLetters(Connected):
    """Reads and writes of dead letters and rejected inputs."""

    def rejected_inputs(self) -> dict[str, RejectedInput]:
        """Inputs that are rejected now, by digest."""
        columns = rejected_inputs.c
        statement = select(columns.digest, columns.kind, columns.reason, columns.name).where(columns.lifted_at.is_(None))
        with self.reading() as connection:
            return {row.digest: RejectedInput(*row) for row in connection.execute(statement)}

    def reject_inputs(self, rejections: Sequence[InputRejection]) -> int:
        """Record inputs found unfit, one dead letter each; how many letters were opened. Said again, it changes nothing.

        An input that was gone and is back has its old letter opened again. After a crash: all of a call's inputs, or none.
        """
        now = self.clock()
        opened = 0
        with self.writing() as connection:
            for chunk in chunks({rejection.digest: rejection for rejection in rejections}.values()):
                opened += self._reject_inputs(connection, chunk, now)
        return opened

    def _reject_inputs(self, connection: Connection, rejections: Sequence[InputRejection], now: datetime) -> int:
        digests = [rejection.digest for rejection in rejections]
        known = {
            row.digest: row
            for row in connection.execute(select(rejected_inputs).where(rejected_inputs.c.digest.in_(digests)).with_for_update())
        }
        rows, letters, standing = [], [], []
        for rejection in rejections:
            before = known.get(rejection.digest)
            if before is not None and before.lifted_at is None:
                standing.append(rejection)
                continue
            round_number = 1 if before is None else before.round + 1
            facts = asdict(rejection)
            rows.append(facts | {"rejected_at": now, "lifted_at": None, "round": round_number})
            letters.append(input_letter(**facts, round_number=round_number, now=now))
        if rows:
            statement = self.insert(rejected_inputs)
            fresh = {name: statement.excluded[name] for name in rows[0] if name != "digest"}
            connection.execute(statement.on_conflict_do_update(index_elements=["digest"], set_=fresh), rows)
            self.insert_new(connection, dead_letters, letters)
        reopened = reopen_superseded(connection, INPUT, [rejection.digest for rejection in standing])
        self._name_inputs(connection, [item for item in standing if known[item.digest].name == _nameless(item.digest)])
        return len(letters) + reopened

    @staticmethod
    def _name_inputs(connection: Connection, rejections: Sequence[InputRejection]) -> None:
        # met first inside a unit, an input has no name but its digest; the manifest knows better
        for rejection in rejections:
            nameless = _nameless(rejection.digest)
            for table, key in ((rejected_inputs, rejected_inputs.c.digest), (dead_letters, dead_letters.c.subject_key)):
                connection.execute(
                    update(table).where(key == rejection.digest, table.c.name == nameless).values(name=rejection.name)
                )

    def block_units(self, digest: str, keys: Iterable[str]) -> int:
        """PENDING or FAILED -> QUARANTINED for units that a rejected input holds back: no attempt, no letter of their own."""
        blocked = 0
        with self.writing() as connection:
            reason = connection.execute(
                select(rejected_inputs.c.reason).where(rejected_inputs.c.digest == digest, rejected_inputs.c.lifted_at.is_(None))
            ).scalar()
            if reason is None:
                raise LookupError(f"input {digest[:16]} is not rejected")
            for chunk in chunks(keys):
                blocked += connection.execute(
                    update(units)
                    .where(units.c.key.in_(chunk), units.c.state.in_(sorted(RUNNABLE_STATES)))
                    .values(
                        state=UnitState.QUARANTINED,
                        blocked_by=digest,
                        error_kind="rejected_scene",
                        reason=f"input {digest[:16]} is rejected: {reason}",
                        retry_at=null(),
                    )
                ).rowcount
        return blocked

    def dead_letters(
        self,
        *,
        status: LetterStatus | str | None = LetterStatus.OPEN,
        window: str | None = None,
        kind: str | None = None,
        product: str | None = None,
        older_than: datetime | None = None,
        ids: Iterable[int] | None = None,
    ) -> Iterator[DeadLetter]:
        """Dead letters by filter, oldest first; a stream. `older_than` compares the last time; `status=None` is every one."""
        where: list[ColumnElement[bool]] = []
        for column, value in (
            (dead_letters.c.status, status),
            (dead_letters.c.window, window),
            (dead_letters.c.kind, kind),
            (dead_letters.c.product, product),
        ):
            if value is not None:
                where.append(column == value)
        if older_than is not None:
            where.append(dead_letters.c.last_at < older_than)
        for chunk in [None] if ids is None else chunks(sorted(set(ids))):
            chosen = where if chunk is None else [*where, dead_letters.c.id.in_(chunk)]
            yield from self._pages_of_letters(chosen)

    def _pages_of_letters(self, where: Sequence[ColumnElement[bool]]) -> Iterator[DeadLetter]:
        statement = select(dead_letters).where(*where).order_by(dead_letters.c.id).limit(_ROWS_PER_FETCH)
        last = 0
        while True:
            with self.reading() as connection:
                rows = connection.execute(statement.where(dead_letters.c.id > last)).mappings().all()
            for row in rows:
                values = dict(row)
                yield DeadLetter(**values | {"verdict": Verdict(values["verdict"]), "status": LetterStatus(values["status"])})
            if len(rows) < _ROWS_PER_FETCH:
                return
            last = rows[-1]["id"]

    def replay(self, ids: Iterable[int], *, who: str) -> int:
        """Ask again for what these open letters set aside, as a new round; how many letters were replayed.

        A unit becomes PENDING with no counted attempts. An input is no longer rejected, and the units it blocked are PENDING,
        those included that left the plan meanwhile and may return. After a crash: all of a thousand letters, or none of them.
        """
        now = self.clock()
        replayed = 0
        for chunk in chunks(sorted(set(ids))):
            with self.writing() as connection:
                letters = self._close(connection, chunk, LetterStatus.REPLAYED, now, who=who, why=None)
                keys = [key for subject, key in letters if subject == UNIT]
                digests = [key for subject, key in letters if subject == INPUT]
                self._requeue(connection, [units.c.key.in_(keys), units.c.state == UnitState.QUARANTINED], now, who)
                connection.execute(update(rejected_inputs).where(rejected_inputs.c.digest.in_(digests)).values(lifted_at=now))
                blocked = units.c.blocked_by.in_(digests)
                self._requeue(connection, [blocked, units.c.state == UnitState.QUARANTINED], now, who)
                connection.execute(
                    update(units)
                    .where(blocked, units.c.state.in_(_GONE), units.c.state_before == UnitState.QUARANTINED)
                    .values(state_before=UnitState.PENDING, attempts=0, round=units.c.round + 1, blocked_by=null())
                )
                replayed += len(letters)
        return replayed

    @staticmethod
    def _requeue(connection: Connection, where: Sequence[ColumnElement[bool]], now: datetime, who: str) -> None:
        unit_ids = connection.execute(
            update(units)
            .where(*where)
            .values(
                state=UnitState.PENDING,
                attempts=0,
                round=units.c.round + 1,
                suspect=false(),
                retry_at=null(),
                blocked_by=null(),
            )
            .returning(units.c.id)
        ).scalars()
        add_notes(connection, list(unit_ids), "replayed", now=now, who=who)

    def dismiss(self, ids: Iterable[int], *, who: str, why: str) -> int:
        """Close these open letters for good: a person took care. How many were closed.

        The unit is DISMISSED and nothing more is done for it; an input stays rejected, its letter closed.
        """
        if not who.strip() or not why.strip():
            raise ValueError("a dismissal names who dismissed and why")
        now = self.clock()
        dismissed = 0
        for chunk in chunks(sorted(set(ids))):
            with self.writing() as connection:
                letters = self._close(connection, chunk, LetterStatus.DISMISSED, now, who=who, why=why)
                for subject, column in ((UNIT, units.c.key), (INPUT, units.c.blocked_by)):
                    keys = [key for found, key in letters if found == subject]
                    unit_ids = connection.execute(
                        update(units)
                        .where(column.in_(keys), units.c.state == UnitState.QUARANTINED)
                        .values(state=UnitState.DISMISSED)
                        .returning(units.c.id)
                    ).scalars()
                    add_notes(connection, list(unit_ids), "dismissed", now=now, reason=why, who=who)
                dismissed += len(letters)
        return dismissed

    @staticmethod
    def _close(
        connection: Connection, ids: Sequence[int], status: LetterStatus, now: datetime, *, who: str, why: str | None
    ) -> list[tuple[str, str]]:
        rows = connection.execute(
            update(dead_letters)
            .where(dead_letters.c.id.in_(ids), dead_letters.c.status == LetterStatus.OPEN)
            .values(status=status, closed_at=now, who=who, why=why)
            .returning(dead_letters.c.subject, dead_letters.c.subject_key)
        )
        return [(subject, key) for subject, key in rows]

    def close_superseded_inputs(self, live_digests: Iterable[str]) -> int:
        """Close the open letters of inputs that the source no longer holds; how many. Their rejection stays, lest they return."""
        live = set(live_digests)
        with self.writing() as connection:
            standing = connection.execute(
                select(dead_letters.c.subject_key).where(
                    dead_letters.c.status == LetterStatus.OPEN, dead_letters.c.subject == INPUT
                )
            ).scalars()
            gone = [digest for digest in standing if digest not in live]
            return close_letters(connection, INPUT, gone, LetterStatus.SUPERSEDED, now=self.clock())

    def letter_counts(self) -> dict[str, int]:
        """Open dead letters by error kind."""
        statement = (
            select(dead_letters.c.kind, func.count())
            .where(dead_letters.c.status == LetterStatus.OPEN)
            .group_by(dead_letters.c.kind)
        )
        with self.reading() as connection:
            found: Any = connection.execute(statement).tuples().all()
            return dict(found)


def _nameless(digest: str) -> str:
    return f"input {digest[:16]}"
