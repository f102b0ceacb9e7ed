"""A project of scenes: what the main job has beside what every project has, its grid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from assets.grid import Grid, Tile
from assets.outlook import Outlook
from assets.planning import TileCover
from assets.products.model import check_products
from assets.project import Project
from assets.rebuilt import Rebuilt
from assets.survey import Survey
from resources.config_scenes import ScenesConfig


class ScenesProject(Project):
    """A project whose units are tiles: a partition is a batch window and a metatile of the grid."""

    worker_preload = ("assets.products.render", "assets.products.cog")
    config: ScenesConfig

    def __init__(self, config: ScenesConfig) -> None:
        check_products(config)
        super().__init__(config)
        self.grid = Grid.from_config(config)
        self._cover: TileCover | None = None

    @property
    def cover(self) -> TileCover:
        """Which tiles a footprint touches."""
        if self._cover is None:
            self._cover = TileCover(self.grid)
        return self._cover

    def partitions_of(self, window: str) -> Sequence[str]:
        """A window's metatiles."""
        return [f"{window}|{tile}" for tile in self.grid.partitions]

    def survey(self, *, now: datetime) -> Survey:
        """List the scenes. Raises `EnvironmentUnfit` (SOURCE_MISSING) when their folder is not there."""
        from assets.scenes_survey import survey_of
        from assets.stock import list_scenes

        return survey_of(list_scenes(self, now=now))

    def outlook(self, windows: Sequence[str], *, window: str | None) -> Outlook:
        """The tiles that would be planned now."""
        from assets.scenes_outlook import scenes_outlook

        return scenes_outlook(self, windows, window=window)

    def tile_partition(self, name: str) -> str | None:
        """The metatile of that name, or the one that holds the output tile of that name."""
        if name in self.grid.partitions:
            return name
        try:
            found = self.grid.partition_of(Tile.parse(name))
        except ValueError:
            return None
        return found if found in self.grid.partitions else None

    def rebuild(self) -> Rebuilt:
        """Plans from the scenes, completion from tiles, catalogue, statistics and report that verify."""
        from assets.rebuilding import rebuild

        return rebuild(self)

    def plan_again(self, windows: Iterable[str], *, run_id: str) -> None:
        """Plan windows from their scenes as they are now, those among them that were rejected and may be used again."""
        from assets.stock import take_stock

        take_stock(self, windows, run_id=run_id)
