"""Partitions in the ledger: small stable ids, fences, and what is planned, settled or due in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, and_, case, func, literal_column, or_, select, update

from resources.ledger.connection import Connected, chunks
from resources.ledger.rows import DuePartition, HolderRow, PartitionRow
from resources.ledger.schema import lease_holders, membership, partitions, units
from resources.units import UnitState

_UNSETTLED = (UnitState.PENDING, UnitState.RUNNING, UnitState.FAILED)


class Partitions(Connected):
    """Reads and writes about partitions as wholes."""

    def partition_ids(self, asset: str, names: Iterable[str]) -> dict[str, int]:
        """A small number for each partition, the same for ever; made when first asked for."""
        found: dict[str, int] = {}
        wanted = list(dict.fromkeys(names))
        with self.reading() as connection:
            for chunk in chunks(wanted):
                found.update(_ids(connection, asset, chunk))
        missing = [name for name in wanted if name not in found]
        if missing:
            with self.writing() as connection:
                for chunk in chunks(missing):
                    self.insert_new(connection, partitions, [{"asset": asset, "partition": name} for name in chunk])
                    found.update(_ids(connection, asset, chunk))
        return found

    def fence(self, asset: str, names: Iterable[str]) -> dict[str, int]:
        """The fence of each partition: how many runs have taken it so far."""
        found: dict[str, int] = {}
        with self.reading() as connection:
            for chunk in chunks(names):
                rows = connection.execute(
                    select(partitions.c.partition, partitions.c.fence).where(
                        partitions.c.asset == asset, partitions.c.partition.in_(chunk)
                    )
                )
                found.update((name, fence) for name, fence in rows)
        return found

    def bump_fence(self, asset: str, names: Iterable[str]) -> dict[str, int]:
        """Raise the fence of each partition and return it: to be called under the lease. A writer with a lower one is late."""
        wanted = list(names)
        ids = self.partition_ids(asset, wanted)
        found: dict[str, int] = {}
        with self.writing() as connection:
            for chunk in chunks(sorted(ids.values())):
                rows = connection.execute(
                    update(partitions)
                    .where(partitions.c.id.in_(chunk))
                    .values(fence=partitions.c.fence + 1)
                    .returning(partitions.c.partition, partitions.c.fence)
                )
                found.update((name, fence) for name, fence in rows)
        return found

    def partition_rows(
        self, asset: str, window: str | None = None, *, names: Iterable[str] | None = None
    ) -> Iterator[PartitionRow]:
        """Planned partitions in order of name, with their units counted by state; of one window, or of these names."""

        statement = (
            select(
                partitions.c.asset,
                partitions.c.partition,
                partitions.c.window,
                partitions.c.tile,
                partitions.c.planned_at,
                partitions.c.fence,
                partitions.c.planned_units,
                func.count(units.c.id),
                _count(units.c.state == UnitState.PENDING),
                _count(units.c.state == UnitState.RUNNING),
                _count(units.c.state == UnitState.COMPLETE),
                _count(units.c.state == UnitState.FAILED),
                _count(units.c.state == UnitState.QUARANTINED),
                _count(units.c.state == UnitState.DISMISSED),
                func.min(case((units.c.state == UnitState.FAILED, units.c.retry_at))),
            )
            .select_from(partitions)
            .outerjoin(membership, membership.c.partition_id == partitions.c.id)
            .outerjoin(units, units.c.id == membership.c.unit_id)
            .where(partitions.c.asset == asset, partitions.c.planned_at.is_not(None))
            .group_by(partitions.c.id)
            .order_by(partitions.c.partition)
        )
        if window is not None:
            statement = statement.where(partitions.c.window == window)
        chosen = [statement] if names is None else [statement.where(partitions.c.partition.in_(some)) for some in chunks(names)]
        with self.reading() as connection:
            for query in chosen:
                for row in connection.execution_options(yield_per=1000).execute(query):
                    yield PartitionRow(*row)

    def due_partitions(self, asset: str, *, now: datetime) -> list[DuePartition]:
        """Partitions with units that are PENDING, RUNNING or FAILED, in order of name; cost follows their number alone."""
        is_failed = units.c.state == UnitState.FAILED
        is_pending = units.c.state == UnitState.PENDING
        is_due = or_(units.c.retry_at.is_(None), units.c.retry_at <= now)

        statement = (
            select(
                partitions.c.partition,
                partitions.c.window,
                partitions.c.tile,
                _count(and_(is_pending, is_due)),
                _count(and_(is_pending, ~is_due)),
                _count(units.c.state == UnitState.RUNNING),
                _count(and_(is_failed, is_due)),
                _count(and_(is_failed, ~is_due)),
                func.min(case((or_(is_failed, is_pending), units.c.retry_at))),
                func.sum(units.c.attempt),
                func.sum(units.c.attempts),
                partitions.c.planned_at,
                func.max(units.c.attempt),
                _count(and_(is_pending, units.c.retry_at.is_not(None))),
            )
            .select_from(units)
            .join(membership, membership.c.unit_id == units.c.id)
            .join(partitions, partitions.c.id == membership.c.partition_id)
            .where(units.c.asset == asset, _is_unsettled(), partitions.c.asset == asset)
            .group_by(partitions.c.id)
            .order_by(partitions.c.partition)
        )
        with self.reading() as connection:
            return [DuePartition(*row) for row in connection.execute(statement)]

    def settled_partitions(self, asset: str) -> set[str]:
        """Planned partitions in which every unit is settled, empty ones included."""
        unsettled = (
            select(membership.c.partition_id)
            .join(units, units.c.id == membership.c.unit_id)
            .where(units.c.asset == asset, _is_unsettled())
        )
        statement = select(partitions.c.partition).where(
            partitions.c.asset == asset, partitions.c.planned_at.is_not(None), partitions.c.id.not_in(unsettled)
        )
        with self.reading() as connection:
            return set(connection.execute(statement).scalars())

    def note_holder(self, ids: Sequence[int], *, run_id: str, pid: int, host: str) -> None:
        """Say who took the leases on these partition ids. After a crash: the row stays, though the lease is free."""
        since = self.clock()
        with self.writing() as connection:
            for chunk in chunks(ids):
                statement = self.insert(lease_holders)
                statement = statement.on_conflict_do_update(
                    index_elements=["partition_id"],
                    set_={name: statement.excluded[name] for name in ("run_id", "pid", "host", "since")},
                )
                values = [{"partition_id": item, "run_id": run_id, "pid": pid, "host": host, "since": since} for item in chunk]
                connection.execute(statement, values)

    def clear_holder(self, run_id: str) -> None:
        """Forget what this run held."""
        with self.writing() as connection:
            connection.execute(lease_holders.delete().where(lease_holders.c.run_id == run_id))

    def holders(self, *, ids: Iterable[int] | None = None) -> list[HolderRow]:
        """Who took which lease last, of these partition ids or of all; whether it is still held, the lease itself says."""
        statement = (
            select(
                partitions.c.asset,
                partitions.c.partition,
                partitions.c.id,
                lease_holders.c.run_id,
                lease_holders.c.pid,
                lease_holders.c.host,
                lease_holders.c.since,
            )
            .join(partitions, partitions.c.id == lease_holders.c.partition_id)
            .order_by(partitions.c.asset, partitions.c.partition)
        )
        chosen = [statement] if ids is None else [statement.where(partitions.c.id.in_(some)) for some in chunks(ids)]
        with self.reading() as connection:
            return [HolderRow(*row) for query in chosen for row in connection.execute(query)]


def _is_unsettled() -> ColumnElement[bool]:
    # written out, not bound: only then do both databases see that the partial index serves
    return units.c.state.in_([literal_column(f"'{state.value}'") for state in _UNSETTLED])


def _ids(connection: Connection, asset: str, names: Sequence[str]) -> dict[str, int]:
    rows = connection.execute(
        select(partitions.c.partition, partitions.c.id).where(partitions.c.asset == asset, partitions.c.partition.in_(names))
    )
    return dict(rows.tuples().all())


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)
