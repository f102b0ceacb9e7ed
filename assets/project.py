"""A project opened from its configuration: what assets, sensors and the command line all stand on."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from assets.grid import Grid
from assets.planning import TileCover
from assets.products.model import check_products
from resources.config import Config, load_config
from resources.engine import Engine
from resources.leases import Leases
from resources.ledger import Ledger
from resources.opening import open_engine, open_leases, open_project_ledger, open_project_store
from resources.store import LocalStore
from resources.windows import WindowCalendar

WORKER_PRELOAD = ("assets.products.render", "assets.products.cog")


@dataclass(slots=True, weakref_slot=True, eq=False)
class Project:
    """Configuration and grid at once, the rest when first asked for. One per process and configuration: see `open_project`."""

    config: Config
    grid: Grid
    calendar: WindowCalendar
    ledger: Ledger
    leases: Leases
    _cover: TileCover | None = field(default=None, init=False)

    @property
    def store(self) -> LocalStore:
        """The store, checked to be the one the ledger remembers. Raises `EnvironmentUnfit` otherwise."""
        return open_project_store(self.config, self.ledger)

    @property
    def cover(self) -> TileCover:
        """Which tiles a footprint touches."""
        if self._cover is None:
            self._cover = TileCover(self.grid)
        return self._cover

    def engine(self, *, inline: bool = False, preload: Sequence[str] = WORKER_PRELOAD) -> Engine:
        """An engine: worker processes for tiles, this process (`inline`) for the few units of window outputs."""
        return open_engine(self.config, ledger=self.ledger, store=self.store, leases=self.leases, preload=preload, inline=inline)


_open: dict[tuple[Path, int], Project] = {}
_lock = threading.Lock()


def open_project(path: Path | str | None = None) -> Project:
    """The project of a configuration file, opened once per process and again when the file changes.

    Raises `ConfigurationError` (file, key, found, allowed) or `EnvironmentUnfit` when the ledger cannot be reached.
    """
    config = load_config(path)
    mark = (config.path, config.path.stat().st_mtime_ns)
    with _lock:
        if mark not in _open:
            check_products(config)
            ledger = open_project_ledger(config)
            _open[mark] = Project(
                config=config,
                grid=Grid.from_config(config),
                calendar=WindowCalendar(config.window),
                ledger=ledger,
                leases=open_leases(config, ledger),
            )
        return _open[mark]
