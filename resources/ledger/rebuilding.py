"""COMPLETE rows out of the ledger and back into one: for `rebuild-ledger`, from outputs that verify."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy import select

from resources.ledger.completions import Completions
from resources.ledger.connection import chunks
from resources.ledger.plan import Plan
from resources.ledger.reading import Reading
from resources.ledger.rows import RestoredUnit, UnitRow
from resources.ledger.schema import membership, partitions
from resources.units import UnitState


class Rebuilding(Plan, Completions, Reading):
    """Reads and writes of completed units as wholes."""

    def completed(self, asset: str | None = None) -> Iterator[UnitRow]:
        """Every COMPLETE unit, in the order they were first planned; a stream."""
        return self.units(asset=asset, state=UnitState.COMPLETE)

    def restore_completed(self, restored: Iterable[RestoredUnit]) -> int:
        """Make COMPLETE rows, members of their partitions, for outputs found and verified; how many were not so before.

        Done again, it changes nothing. After a crash: some are restored; do it again. The partitions get no fingerprint, so the
        next plan is compared in full.
        """
        count = 0
        for chunk in chunks(restored, 500):
            now = self.clock()
            with self.writing() as connection:
                for asset in sorted({item.asset for item in chunk}):
                    mine = [item for item in chunk if item.asset == asset]
                    rows = {
                        item.partition: {
                            "asset": asset,
                            "partition": item.partition,
                            "window": item.unit.window,
                            "tile": item.partition_tile,
                            "planned_at": now,
                        }
                        for item in mine
                    }
                    self.insert_new(connection, partitions, list(rows.values()))
                    _, unit_ids, _ = self._write_units(connection, asset, [item.unit for item in mine], now)
                    ids = dict(
                        connection.execute(
                            select(partitions.c.partition, partitions.c.id).where(
                                partitions.c.asset == asset, partitions.c.partition.in_(list(rows))
                            )
                        )
                        .tuples()
                        .all()
                    )
                    joining = [
                        {"partition_id": ids[item.partition], "unit_id": unit_ids[item.unit.key]}
                        for item in mine
                        if item.unit.key in unit_ids
                    ]
                    self.insert_new(connection, membership, joining)
            count += len(self.adopt([item.completion for item in chunk]))
        return count
