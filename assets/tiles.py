"""The tiles of a run: planned from the source as it is now, handed to the engine lazily."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assets.grid import Tile
from assets.partition_batch import StockedBatch
from assets.scenes_project import ScenesProject
from assets.scenes_shape import TILES
from assets.stock import WindowStock, refresh_window, take_stock
from resources.ledger import UnitRow
from resources.units import UnitOfWork


class TilesBatch(StockedBatch[WindowStock]):
    """Partitions `window|metatile` of the tiles asset."""

    asset = TILES

    def __init__(self, project: ScenesProject, partitions: Sequence[str], *, run_id: str) -> None:
        super().__init__(partitions, take_stock(project, [name.partition("|")[0] for name in partitions], run_id=run_id))
        self._project = project
        self._run_id = run_id

    def work(self, rows: Sequence[UnitRow]) -> Iterable[UnitOfWork]:
        """Work of planned units. One whose scenes no longer give its key is left out: the plan has moved on."""
        for row in rows:
            stock = self.stock[row.window]
            work = stock.plan.work(self._project.config.product(row.product), Tile.parse(row.tile or ""))
            if work is not None and work.unit.key == row.key:
                yield work

    def replan(self) -> None:
        """Plan again without the inputs that were rejected meanwhile."""
        for window, stock in self.stock.items():
            self.stock[window] = refresh_window(self._project, window, stock.scenes, run_id=self._run_id)
