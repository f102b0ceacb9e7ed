"""The copies of a run: planned from the source as it is now, handed to the engine lazily."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from assets.digitization.copies import CopyWorks
from assets.digitization.shape import COPIES
from assets.digitization.stock import WindowStock, take_stock
from resources.ledger import UnitRow
from resources.units import UnitOfWork

if TYPE_CHECKING:
    from assets.digitization.project import DigitizationProject


class CopiesBatch:
    """Partitions of access copies are batch windows."""

    def __init__(self, project: DigitizationProject, windows: Sequence[str], *, run_id: str) -> None:
        self._windows = tuple(windows)
        self._works = CopyWorks(project)
        self._stock = take_stock(project, windows, run_id=run_id)

    @property
    def asset(self) -> str:
        """Name of the asset in the ledger."""
        return COPIES

    @property
    def partitions(self) -> Sequence[str]:
        """Window keys of this run."""
        return self._windows

    @property
    def replaces(self) -> bool:
        """A copy's name carries its key and is written once."""
        return False

    @property
    def stock(self) -> dict[str, WindowStock]:
        """What each window of the run holds."""
        return self._stock

    @property
    def refreshed(self) -> list[str]:
        """Windows whose manifest was written anew when stock was taken."""
        return [window for window, stock in self._stock.items() if stock.is_manifest_made]

    def work(self, rows: Sequence[UnitRow]) -> Iterable[UnitOfWork]:
        """Work of planned units."""
        return self._works.of(rows)

    def replan(self) -> None:
        """A copy has one master; no other copy can be made without it."""
