"""The copies of a run: planned from the source as it is now, handed to the engine lazily."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from assets.digitization.copies import CopyWorks
from assets.digitization.shape import COPIES
from assets.digitization.stock import WindowStock, take_stock
from assets.partition_batch import StockedBatch
from resources.ledger import UnitRow
from resources.units import UnitOfWork

if TYPE_CHECKING:
    from assets.digitization.project import DigitizationProject


class CopiesBatch(StockedBatch[WindowStock]):
    """Partitions of access copies are batch windows."""

    asset = COPIES

    def __init__(self, project: DigitizationProject, windows: Sequence[str], *, run_id: str) -> None:
        super().__init__(windows, take_stock(project, windows, run_id=run_id))
        self._works = CopyWorks(project)

    def work(self, rows: Sequence[UnitRow]) -> Iterable[UnitOfWork]:
        """Work of planned units."""
        return self._works.of(rows)
