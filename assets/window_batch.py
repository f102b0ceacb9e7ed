"""A batch of window outputs: few units, each one file of a whole window, keyed on what it is made from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assets.partition_batch import PartitionBatch
from resources.keys import canonical, unit_key
from resources.ledger import Ledger, UnitRow
from resources.units import PartitionPlan, PlannedUnit, UnitOfWork, Validate, Work


def window_unit(
    product: str, uri: str, ingredients: Mapping[str, Any], *, work: Work, validate: Validate, source: str = "store"
) -> UnitOfWork:
    """The unit of one window output: a file that keeps its name, `uri`, and is made again when its ingredients change.

    `ingredients` are the arguments of `unit_key`; their destination names the window. What it is made from is in the key alone.
    """
    planned = PlannedUnit(
        key=unit_key(**ingredients),
        product=product,
        window=ingredients["destination"]["window"],
        output_uri=uri,
        source=source,
        spec=json.loads(canonical({name: ingredients[name] for name in ("operation", "version", "settings", "destination")})),
    )
    return UnitOfWork(planned, work, validate, replaces=True)


class WindowBatch(PartitionBatch):
    """Window outputs of one asset. Writes its plan when made: the partition is the window."""

    replaces = True

    def __init__(self, asset: str, works: Mapping[str, Sequence[UnitOfWork]], *, ledger: Ledger) -> None:
        super().__init__(tuple(works))
        self.asset = asset
        self._works = {work.unit.key: work for some in works.values() for work in some}
        ledger.write_plan(
            asset,
            [PartitionPlan(asset, window, window, tuple(work.unit for work in some)) for window, some in works.items()],
        )

    def work(self, rows: Sequence[UnitRow]) -> Iterable[UnitOfWork]:
        """Work of planned units."""
        return [self._works[row.key] for row in rows if row.key in self._works]
