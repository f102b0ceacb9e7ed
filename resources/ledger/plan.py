"""Writing plans: which units a partition should have now, and what becomes of those that left.

A unit is never deleted. One that leaves the plan keeps what it was, so that coming back (a scene arrives, is withdrawn, arrives
again) finds its output complete. Units taken out of a partition are first put down as leavers, in the same transaction, and
looked at again when all partitions are written: a change of the metatile size moves units and touches none of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, case, delete, false, null, select, update

from resources.ledger.connection import chunks
from resources.ledger.leavers import GONE, Leavers, added
from resources.ledger.letters import UNIT, add_notes, close_letters, reopen_superseded
from resources.ledger.rows import LetterStatus, PlanChange, dump
from resources.ledger.schema import leavers, membership, partitions, rejected_inputs, units
from resources.units import PartitionPlan, PlannedUnit, UnitState

_PARTITIONS_PER_WRITE = 100
_KEPT = (UnitState.COMPLETE, UnitState.QUARANTINED, UnitState.DISMISSED)

_RETURN_UNIT = (
    update(units)
    .where(units.c.id == bindparam("b_id"))
    .values(
        state=bindparam("b_state"),
        state_before=null(),
        left_at=null(),
        retry_at=null(),
        blocked_by=case((bindparam("b_state") == UnitState.QUARANTINED, units.c.blocked_by), else_=null()),
    )
)
_REVISE_UNIT = (
    update(units)
    .where(units.c.id == bindparam("b_id"))
    .values(
        revision=bindparam("b_revision"),
        state=UnitState.PENDING,
        state_before=null(),
        left_at=null(),
        attempts=0,
        round=units.c.round + 1,
        suspect=false(),
        error_kind=null(),
        reason=null(),
        retry_at=null(),
        blocked_by=null(),
        spec=bindparam("b_spec"),
    )
)
_DESCRIBE_UNIT = (
    update(units)
    # one comparison each: a list of states cannot be bound in a statement that is executed for many rows
    .where(units.c.id == bindparam("b_id"), units.c.state != UnitState.COMPLETE, units.c.state != UnitState.RUNNING)
    .values(output_uri=bindparam("b_uri"), source=bindparam("b_source"), inputs=bindparam("b_inputs"))
)


class Plan(Leavers):
    """Writes of the plan."""

    def write_plan(self, asset: str, plans: Iterable[PartitionPlan], *, now: datetime | None = None) -> PlanChange:
        """Make each partition hold exactly the units of its plan. The same plan again writes nothing.

        New units are PENDING. A unit that is in no partition any more is SUPERSEDED where its product and tile have another one
        now, else RETIRED, and its open dead letter is closed; one that comes back is what it was, except that FAILED and RUNNING
        come back as PENDING. After a crash: some partitions have the new plan and others the old; write it again.
        """
        moment = now or self.clock()
        total = PlanChange()
        for chunk in chunks(plans, _PARTITIONS_PER_WRITE):
            for plan in chunk:
                if plan.asset != asset:
                    raise ValueError(f"a plan of {plan.asset!r} among those of {asset!r}: {plan.partition}")
            total = added(total, self._write_chunk(asset, {plan.partition: plan for plan in chunk}, moment))
        return added(total, self.settle_leavers(moment))

    def forget_partitions(self, asset: str, names: Iterable[str]) -> PlanChange:
        """Take these partitions out of the plan: they are no longer in the grid. Their ids stay theirs."""
        moment = self.clock()
        for chunk in chunks(names):
            with self.writing() as connection:
                ids = list(
                    connection.execute(
                        update(partitions)
                        .where(partitions.c.asset == asset, partitions.c.partition.in_(chunk))
                        .values(planned_at=None, fingerprint=None)
                        .returning(partitions.c.id)
                    ).scalars()
                )
                for some in chunks(ids):
                    held = list(
                        connection.execute(
                            select(membership.c.unit_id).distinct().where(membership.c.partition_id.in_(some))
                        ).scalars()
                    )
                    self.insert_new(connection, leavers, [{"unit_id": item} for item in held])
                    connection.execute(delete(membership).where(membership.c.partition_id.in_(some)))
        return self.settle_leavers(moment)

    def _write_chunk(self, asset: str, plans: Mapping[str, PartitionPlan], now: datetime) -> PlanChange:
        fingerprints = {name: _fingerprint(plan) for name, plan in plans.items()}
        with self.reading() as connection:
            known = _fingerprints(connection, asset, list(plans))
        changed = [plan for name, plan in plans.items() if known.get(name) != fingerprints[name]]
        unchanged = sum(len(plan.units) for name, plan in plans.items() if known.get(name) == fingerprints[name])
        change = PlanChange(unchanged=unchanged)
        if not changed:
            return change
        with self.writing() as connection:
            row = self.insert(partitions)
            row = row.on_conflict_do_update(
                index_elements=["asset", "partition"],
                set_={name: row.excluded[name] for name in ("window", "tile", "planned_at", "fingerprint", "planned_units")},
            )
            connection.execute(
                row,
                [
                    {
                        "asset": asset,
                        "partition": plan.partition,
                        "window": plan.window,
                        "tile": plan.tile,
                        "planned_at": now,
                        "fingerprint": fingerprints[plan.partition],
                        "planned_units": len(plan.units),
                    }
                    for plan in changed
                ],
            )
            wanted, duplicates = _distinct(changed)
            unit_ids: dict[str, int] = {}
            for some in chunks(wanted.values()):
                written, described, clashing = self._write_units(connection, asset, some, now)
                unit_ids.update(described)
                change = added(change, written)
                duplicates.update(clashing)
            self._write_membership(connection, asset, changed, unit_ids)
        return replace(change, duplicate_keys=tuple(sorted(duplicates)))

    def _write_units(
        self, connection: Connection, asset: str, wanted: Sequence[PlannedUnit], now: datetime
    ) -> tuple[PlanChange, dict[str, int], set[str]]:
        by_key = {unit.key: unit for unit in wanted}
        columns = (units.c.id, units.c.key, units.c.revision, units.c.state, units.c.state_before, units.c.blocked_by)
        places = (
            units.c.asset,
            units.c.product,
            units.c.window,
            units.c.tile,
            units.c.output_uri,
            units.c.source,
            units.c.inputs,
        )
        found = connection.execute(
            select(*columns, *places).where(units.c.key.in_(list(by_key))).order_by(units.c.id).with_for_update()
        ).all()
        known = {row.key for row in found}
        clashing: set[str] = set()
        returning, revised, described = [], [], []
        ids: dict[str, int] = {}
        unchanged = 0
        for row in found:
            unit = by_key[row.key]
            if (row.asset, row.product, row.window, row.tile) != (asset, unit.product, unit.window, unit.tile):
                clashing.add(row.key)
                continue
            ids[row.key] = row.id
            inputs = dump(list(unit.inputs))
            if row.revision != unit.revision:
                revised.append({"b_id": row.id, "b_revision": unit.revision, "b_spec": dump(dict(unit.spec))})
            elif row.state in GONE:
                returning.append(row)
            else:
                unchanged += 1
            if (row.output_uri, row.source, row.inputs) != (unit.output_uri, unit.source, inputs):
                described.append({"b_id": row.id, "b_uri": unit.output_uri, "b_source": unit.source, "b_inputs": inputs})
        fresh = [_new_unit(asset, unit, now) for unit in wanted if unit.key not in known]
        self.insert_new(connection, units, fresh)
        if fresh:
            inserted = connection.execute(select(units.c.key, units.c.id).where(units.c.key.in_([unit["key"] for unit in fresh])))
            ids.update((key, number) for key, number in inserted)
        if returning:
            self._return_units(connection, returning, now)
        if revised:
            connection.execute(_REVISE_UNIT, revised)
            revised_keys = [row.key for row in found if row.id in {item["b_id"] for item in revised}]
            close_letters(connection, UNIT, revised_keys, LetterStatus.SUPERSEDED, now=now)
        if described:
            connection.execute(_DESCRIBE_UNIT, described)
        change = PlanChange(new=len(fresh) + len(revised), restored=len(returning), unchanged=unchanged)
        return change, ids, clashing

    @staticmethod
    def _return_units(connection: Connection, rows: Sequence[Any], now: datetime) -> None:
        uris = [row.output_uri for row in rows if row.state_before == UnitState.COMPLETE]
        taken = set(
            connection.execute(
                select(units.c.output_uri).where(units.c.output_uri.in_(uris), units.c.state == UnitState.COMPLETE)
            ).scalars()
        )
        blocking = [row.blocked_by for row in rows if row.blocked_by is not None]
        still_rejected = set(
            connection.execute(
                select(rejected_inputs.c.digest).where(
                    rejected_inputs.c.digest.in_(blocking), rejected_inputs.c.lifted_at.is_(None)
                )
            ).scalars()
        )
        changes, reopened = [], []
        for row in rows:
            state = UnitState(row.state_before or UnitState.PENDING)
            is_replaced = state is UnitState.COMPLETE and row.output_uri in taken  # another unit's output has that name now
            is_freed = state is UnitState.QUARANTINED and row.blocked_by is not None and row.blocked_by not in still_rejected
            if is_replaced or is_freed or state not in _KEPT:
                state = UnitState.PENDING
            if state is UnitState.COMPLETE:
                taken.add(row.output_uri)
            if state is UnitState.QUARANTINED and row.blocked_by is None:
                reopened.append(row.key)
            changes.append({"b_id": row.id, "b_state": state})
        connection.execute(_RETURN_UNIT, changes)
        reopen_superseded(connection, UNIT, reopened)
        add_notes(connection, [row.id for row in rows], "restored", now=now)

    def _write_membership(
        self, connection: Connection, asset: str, plans: Sequence[PartitionPlan], unit_ids: Mapping[str, int]
    ) -> None:
        names = {plan.partition: plan for plan in plans}
        ids = dict(
            connection.execute(
                select(partitions.c.partition, partitions.c.id).where(
                    partitions.c.asset == asset, partitions.c.partition.in_(list(names))
                )
            )
            .tuples()
            .all()
        )
        held: dict[int, set[int]] = {number: set() for number in ids.values()}
        rows = connection.execute(
            select(membership.c.partition_id, membership.c.unit_id).where(membership.c.partition_id.in_(list(held)))
        )
        for partition_id, unit_id in rows:
            held[partition_id].add(unit_id)
        joining, leaving = [], []
        for name, plan in names.items():
            number = ids[name]
            wanted = {unit_ids[unit.key] for unit in plan.units if unit.key in unit_ids}
            joining += [{"partition_id": number, "unit_id": item} for item in sorted(wanted - held[number])]
            leaving += [{"b_partition": number, "b_unit": item} for item in sorted(held[number] - wanted)]
        self.insert_new(connection, membership, joining)
        if leaving:
            self.insert_new(connection, leavers, [{"unit_id": item} for item in {row["b_unit"] for row in leaving}])
            connection.execute(
                delete(membership).where(
                    membership.c.partition_id == bindparam("b_partition"), membership.c.unit_id == bindparam("b_unit")
                ),
                leaving,
            )


def _distinct(plans: Iterable[PartitionPlan]) -> tuple[dict[str, PlannedUnit], set[str]]:
    wanted: dict[str, PlannedUnit] = {}
    duplicates: set[str] = set()
    for plan in plans:
        for unit in plan.units:
            if wanted.setdefault(unit.key, unit).output_uri != unit.output_uri:
                duplicates.add(unit.key)
    return wanted, duplicates


def _fingerprints(connection: Connection, asset: str, names: Sequence[str]) -> dict[str, str | None]:
    rows = connection.execute(
        select(partitions.c.partition, partitions.c.fingerprint).where(
            partitions.c.asset == asset, partitions.c.partition.in_(names)
        )
    )
    return dict(rows.tuples().all())


def _fingerprint(plan: PartitionPlan) -> str:
    digest = hashlib.sha256(repr((plan.window, plan.tile)).encode())
    for unit in sorted(plan.units, key=lambda unit: unit.key):
        facts = (unit.key, unit.revision, unit.product, unit.window, unit.tile, unit.output_uri, unit.source, unit.inputs)
        digest.update(repr(facts).encode())
    return digest.hexdigest()


def _new_unit(asset: str, unit: PlannedUnit, now: datetime) -> dict[str, Any]:
    return {
        "key": unit.key,
        "revision": unit.revision,
        "asset": asset,
        "product": unit.product,
        "window": unit.window,
        "tile": unit.tile,
        "output_uri": unit.output_uri,
        "source": unit.source,
        "inputs": dump(list(unit.inputs)),
        "spec": dump(dict(unit.spec)),
        "state": UnitState.PENDING,
        "planned_at": now,
    }
