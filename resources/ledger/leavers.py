"""Units taken out of a partition: what no partition holds any more leaves the plan, SUPERSEDED or RETIRED."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, delete, exists, select, update

from resources.ledger.connection import Connected
from resources.ledger.letters import UNIT, add_notes, close_letters
from resources.ledger.rows import LetterStatus, PlanChange
from resources.ledger.schema import attempts, leavers, membership, units
from resources.units import AttemptOutcome, UnitState

GONE = (UnitState.SUPERSEDED, UnitState.RETIRED)


class Leavers(Connected):
    """The second half of writing a plan."""

    def settle_leavers(self, now: datetime) -> PlanChange:
        """Look at every unit put down as a leaver, those of a crashed write included."""
        change = PlanChange()
        while True:
            with self.reading() as connection:
                if connection.execute(select(leavers.c.unit_id).limit(1)).first() is None:
                    return change
            with self.writing() as connection:
                waiting = list(
                    connection.execute(
                        select(leavers.c.unit_id).order_by(leavers.c.unit_id).limit(1000).with_for_update()
                    ).scalars()
                )
                change = added(change, _close_units(connection, waiting, now))
                connection.execute(delete(leavers).where(leavers.c.unit_id.in_(waiting)))


def _close_units(connection: Connection, ids: Sequence[int], now: datetime) -> PlanChange:
    """Those of `ids` that no partition holds -> SUPERSEDED or RETIRED."""
    twin = units.alias("twin")
    replaced = (
        exists()
        .where(
            twin.c.asset == units.c.asset,
            twin.c.window == units.c.window,
            twin.c.product == units.c.product,
            twin.c.tile.is_not_distinct_from(units.c.tile),
            twin.c.id != units.c.id,
            membership.c.unit_id == twin.c.id,
        )
        .correlate(units)
    )
    rows = connection.execute(
        select(units.c.id, units.c.key, units.c.state, units.c.attempt, replaced.label("is_replaced"))
        .where(
            units.c.id.in_(ids),
            units.c.state.not_in(GONE),
            ~exists().where(membership.c.unit_id == units.c.id).correlate(units),
        )
        .order_by(units.c.id)
        .with_for_update(of=units)
    ).all()
    for state, chosen in (
        (UnitState.SUPERSEDED, [row.id for row in rows if row.is_replaced]),
        (UnitState.RETIRED, [row.id for row in rows if not row.is_replaced]),
    ):
        if chosen:
            connection.execute(
                update(units)
                .where(units.c.id.in_(chosen))
                .values(state=state, state_before=units.c.state, left_at=now, retry_at=None)
            )
            add_notes(connection, chosen, state.lower(), now=now)
    running = [row.id for row in rows if row.state == UnitState.RUNNING]
    if running:
        connection.execute(
            update(attempts)
            .where(attempts.c.unit_id.in_(running), attempts.c.outcome.is_(None))
            .values(outcome=AttemptOutcome.VOID, is_counted=False, ended_at=now, reason="the unit left the plan")
        )
    quarantined = [row.key for row in rows if row.state == UnitState.QUARANTINED]
    close_letters(connection, UNIT, quarantined, LetterStatus.SUPERSEDED, now=now)
    superseded = sum(1 for row in rows if row.is_replaced)
    return PlanChange(superseded=superseded, retired=len(rows) - superseded)


def added(left: PlanChange, right: PlanChange) -> PlanChange:
    """The sum of two changes."""
    return PlanChange(
        new=left.new + right.new,
        restored=left.restored + right.restored,
        superseded=left.superseded + right.superseded,
        retired=left.retired + right.retired,
        unchanged=left.unchanged + right.unchanged,
        duplicate_keys=left.duplicate_keys + right.duplicate_keys,
    )
