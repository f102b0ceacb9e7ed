"""Taking over what a dead run left behind: its running attempts are lost, and only a proven killer is charged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, select, true

from resources.errors import ErrorKind, Verdict
from resources.ledger.connection import Connected, chunks
from resources.ledger.endings import END_ATTEMPT, FAIL_UNIT, ending
from resources.ledger.letters import open_unit_letters
from resources.ledger.schema import attempts, membership, partitions, runs, units
from resources.units import AttemptOutcome, UnitState


class TakeOver(Connected):
    """Writes at the start of a run."""

    def take_over(self, run_id: str, asset: str, names: Iterable[str], *, boot_id: str) -> int:
        """End what earlier holders of these partitions left RUNNING; how many. To be called under the lease, before any start.

        Their attempts end LOST. One is charged only if it ran alone, in a run that did not end and on this boot of the machine:
        such a unit killed its worker. The units are PENDING and suspect, or QUARANTINED at the bound.
        """
        taken = 0
        for chunk in chunks(names, 200):
            taken += self.write(self._take_over, run_id, asset, chunk, boot_id=boot_id)
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
                ending(
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
        connection.execute(FAIL_UNIT, changes)
        connection.execute(END_ATTEMPT, endings)
        open_unit_letters(connection, opened, now=now)
        return len(rows)
