"""Reads of units: what is planned, where it stands, what happened to it, and the five numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_, select

from resources.ledger.connection import Connected, chunks
from resources.ledger.rows import Counts, HistoryEntry, UnitRow
from resources.ledger.schema import attempts, membership, notes, partitions, runs, skips, units
from resources.units import AttemptOutcome, UnitState

_PARTITIONS_PER_READ = 50
_PARTITIONS_PER_PAGE = 200
_ROWS_PER_FETCH = 1000
_SQL_TEXT_END = "\U0010ffff"


def unit_row(partition: Any) -> tuple[Any, ...]:
    """The columns of a `UnitRow`, in its order."""
    columns = units.c
    return (
        columns.key,
        columns.revision,
        columns.asset,
        columns.product,
        columns.window,
        columns.tile,
        partition,
        columns.output_uri,
        columns.source,
        columns.inputs,
        columns.spec,
        columns.state,
        columns.attempts,
        columns.round,
        columns.attempt,
        columns.error_kind,
        columns.reason,
        columns.retry_at,
        columns.blocked_by,
        columns.output_digest,
        columns.output_size,
        columns.metrics,
        columns.completed_at,
        columns.suspect,
        columns.run_id,
    )


_STATE_AT = 11
_STATES = {state.value: state for state in UnitState}


def as_unit(row: Sequence[Any]) -> UnitRow:
    """The value of a row selected by `unit_row`."""
    values = list(row)
    values[_STATE_AT] = _STATES[values[_STATE_AT]]
    return UnitRow(*values)


class Reading(Connected):
    """Reads of units."""

    def planned(self, asset: str, names: Iterable[str]) -> Iterator[UnitRow]:
        """Units that these partitions hold now, in order of partition and unit key; a stream."""
        statement = (
            select(*unit_row(partitions.c.partition))
            .join(membership, membership.c.unit_id == units.c.id)
            .join(partitions, partitions.c.id == membership.c.partition_id)
            .order_by(partitions.c.partition, units.c.key)
        )
        for chunk in chunks(sorted(set(names)), _PARTITIONS_PER_READ):
            with self.reading() as connection:
                rows = connection.execute(statement.where(partitions.c.asset == asset, partitions.c.partition.in_(chunk))).all()
            yield from map(as_unit, rows)

    def planned_pages(self, asset: str, names: Iterable[str], *, size: int) -> Iterator[list[UnitRow]]:
        """Units that these partitions hold now, at most `size` at once: flat in memory, however many one partition holds.

        Units of one partition come one after another, in the order in which they were first planned.
        """
        for chunk in chunks(dict.fromkeys(names), _PARTITIONS_PER_PAGE):
            held = (
                select(membership.c.partition_id, membership.c.unit_id)
                .join(partitions, partitions.c.id == membership.c.partition_id)
                .where(partitions.c.asset == asset, partitions.c.partition.in_(chunk))
                .order_by(membership.c.partition_id, membership.c.unit_id)
                .limit(size)
            )
            page = held
            while True:
                some = page.subquery()
                statement = (
                    select(*unit_row(partitions.c.partition), some.c.partition_id, some.c.unit_id)
                    .join(some, some.c.unit_id == units.c.id)
                    .join(partitions, partitions.c.id == some.c.partition_id)
                    .order_by(some.c.partition_id, some.c.unit_id)
                )
                with self.reading() as connection:
                    rows = connection.execute(statement).all()
                if rows:
                    yield [as_unit(row[:-2]) for row in rows]
                if len(rows) < size:
                    break
                last_partition, last_unit = rows[-1][-2:]
                page = held.where(
                    membership.c.partition_id >= last_partition,
                    or_(membership.c.partition_id > last_partition, membership.c.unit_id > last_unit),
                )

    def seconds(self, asset: str, names: Iterable[str]) -> dict[str, float]:
        """Partition -> seconds that workers spent on the units it holds now, over all attempts and runs."""
        statement = (
            select(partitions.c.partition, func.sum(attempts.c.duration_s))
            .join(membership, membership.c.partition_id == partitions.c.id)
            .join(attempts, attempts.c.unit_id == membership.c.unit_id)
            .group_by(partitions.c.partition)
        )
        found: dict[str, float] = {}
        for chunk in chunks(sorted(set(names)), _PARTITIONS_PER_READ):
            with self.reading() as connection:
                rows = connection.execute(statement.where(partitions.c.asset == asset, partitions.c.partition.in_(chunk))).all()
            found.update({name: float(total or 0.0) for name, total in rows})
        return found

    def last_completions(self, sources: Iterable[str]) -> dict[str, datetime]:
        """Source -> when a unit of it was completed last; a source that never gave one is left out."""
        found: dict[str, datetime] = {}
        for chunk in chunks(sorted(set(sources))):
            statement = (
                select(units.c.source, func.max(units.c.completed_at))
                .where(units.c.source.in_(chunk), units.c.state == UnitState.COMPLETE)
                .group_by(units.c.source)
            )
            with self.reading() as connection:
                found.update({source: at for source, at in connection.execute(statement) if at is not None})
        return found

    def units(
        self,
        *,
        asset: str | None = None,
        window: str | None = None,
        state: UnitState | Sequence[UnitState] | None = None,
        product: str | None = None,
        keys: Iterable[str] | None = None,
        limit: int | None = None,
    ) -> Iterator[UnitRow]:
        """Units by filter, in the order they were first planned, those that left the plan included; a stream."""
        where: list[ColumnElement[bool]] = []
        if asset is not None:
            where.append(units.c.asset == asset)
        if window is not None:
            where.append(units.c.window == window)
        if product is not None:
            where.append(units.c.product == product)
        if state is not None:
            where.append(units.c.state.in_([state] if isinstance(state, str) else list(state)))
        left = limit
        for chunk in [None] if keys is None else chunks(dict.fromkeys(keys)):
            chosen = where if chunk is None else [*where, units.c.key.in_(chunk)]
            for row in self._pages(chosen):
                if left is not None:
                    if left <= 0:
                        return
                    left -= 1
                yield row

    def _pages(self, where: Sequence[ColumnElement[bool]]) -> Iterator[UnitRow]:
        # by pages, not by an open cursor: a slow reader must not hold a transaction
        one_partition = (
            select(func.min(partitions.c.partition))
            .join(membership, membership.c.partition_id == partitions.c.id)
            .where(membership.c.unit_id == units.c.id)
            .correlate(units)
            .scalar_subquery()
        )
        statement: Select[Any] = select(*unit_row(one_partition), units.c.id).where(*where).order_by(units.c.id)
        last = 0
        while True:
            with self.reading() as connection:
                rows = connection.execute(statement.where(units.c.id > last).limit(_ROWS_PER_FETCH)).all()
            for row in rows:
                yield as_unit(row[:-1])
            if len(rows) < _ROWS_PER_FETCH:
                return
            last = rows[-1][-1]

    def unit(self, key_prefix: str) -> UnitRow | None:
        """The unit whose key begins so; None when there is none. Raises `LookupError` when several do."""
        where = [units.c.key >= key_prefix, units.c.key < key_prefix + _SQL_TEXT_END]
        if len(key_prefix) == 64:
            where = [units.c.key == key_prefix]
        found = []
        for row in self._pages(where):
            found.append(row)
            if len(found) > 1:
                raise LookupError(f"more than one unit key begins with {key_prefix!r}; give more of it")
        return found[0] if found else None

    def history(self, key: str) -> list[HistoryEntry]:
        """Attempts, skips and notes of one unit, in time order."""
        with self.reading() as connection:
            unit_id = connection.execute(select(units.c.id).where(units.c.key == key)).scalar()
            tried = (
                connection.execute(select(attempts).where(attempts.c.unit_id == unit_id).order_by(attempts.c.number))
                .mappings()
                .all()
            )
            skipped = connection.execute(
                select(skips.c.at, runs.c.run_id)
                .join(runs, runs.c.number == skips.c.run_number)
                .where(skips.c.unit_id == unit_id)
            ).all()
            noted = connection.execute(select(notes).where(notes.c.unit_id == unit_id).order_by(notes.c.id)).mappings().all()
        entries = [
            HistoryEntry(
                at=row["started_at"],
                what="attempt",
                run_id=row["run_id"],
                number=row["number"],
                round=row["round"],
                outcome=AttemptOutcome(row["outcome"]) if row["outcome"] else None,
                is_counted=row["is_counted"],
                error_kind=row["error_kind"],
                reason=row["reason"],
                ended_at=row["ended_at"],
                duration_s=row["duration_s"],
            )
            for row in tried
        ]
        entries += [HistoryEntry(at=at, what="skip", run_id=run_id) for at, run_id in skipped]
        entries += [
            HistoryEntry(at=row["at"], what=row["what"], error_kind=row["error_kind"], reason=row["reason"], who=row["who"])
            for row in noted
        ]
        return sorted(entries, key=lambda entry: entry.at)  # stable: of one moment, attempts first

    def counts(
        self,
        *,
        asset: str | None = None,
        window: str | None = None,
        partitions_of: tuple[str, Iterable[str]] | None = None,
        run_id: str | None = None,
    ) -> Counts:
        """The five numbers of planned units, by filter.

        `partitions_of` is `(asset, partitions)`; with `run_id` alone, those of the run. With a run, a COMPLETE unit counts as
        processed if that run made it and as skipped otherwise; a DISMISSED unit is skipped.
        """
        made: set[int] = set()
        with self.reading() as connection:
            if run_id is not None:
                if partitions_of is None:
                    row = connection.execute(select(runs.c.asset, runs.c.partitions).where(runs.c.run_id == run_id)).first()
                    partitions_of = None if row is None else (row.asset, json.loads(row.partitions))
                made.update(
                    connection.execute(
                        select(attempts.c.unit_id).where(
                            attempts.c.run_id == run_id, attempts.c.outcome == AttemptOutcome.SUCCEEDED
                        )
                    ).scalars()
                )
            where: list[ColumnElement[bool]] = []
            if asset is not None:
                where.append(units.c.asset == asset)
            if window is not None:
                where.append(units.c.window == window)
            by_state: dict[UnitState, int] = {}
            processed = 0
            seen: set[int] = set()
            for member in self._members(partitions_of):
                chosen = and_(*where, member)
                for state, number in connection.execute(
                    select(units.c.state, func.count()).where(chosen).group_by(units.c.state)
                ):
                    by_state[UnitState(state)] = by_state.get(UnitState(state), 0) + number
                if made:
                    done = connection.execute(select(units.c.id).where(chosen, units.c.state == UnitState.COMPLETE)).scalars()
                    seen.update(made.intersection(done))
        complete = by_state.get(UnitState.COMPLETE, 0)
        processed = complete if run_id is None else len(seen)
        return Counts(
            processed=processed,
            skipped=complete - processed + by_state.get(UnitState.DISMISSED, 0),
            failed=by_state.get(UnitState.FAILED, 0),
            quarantined=by_state.get(UnitState.QUARANTINED, 0),
            not_attempted=by_state.get(UnitState.PENDING, 0) + by_state.get(UnitState.RUNNING, 0),
            by_state=by_state,
        )

    @staticmethod
    def _members(partitions_of: tuple[str, Iterable[str]] | None) -> Iterator[ColumnElement[bool]]:
        if partitions_of is None:
            yield units.c.id.in_(select(membership.c.unit_id))
            return
        asset, names = partitions_of
        for chunk in chunks(dict.fromkeys(names)):
            yield units.c.id.in_(
                select(membership.c.unit_id)
                .join(partitions, partitions.c.id == membership.c.partition_id)
                .where(partitions.c.asset == asset, partitions.c.partition.in_(chunk))
            )
