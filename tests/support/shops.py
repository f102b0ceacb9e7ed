"""An engine in a folder with all it stands on, for tests that run it in their own process."""

from __future__ import annotations

import random
from pathlib import Path

from resources.config import load_config
from resources.engine import Engine
from resources.ledger import Ledger, open_ledger
from resources.opening import open_engine, open_leases, open_project_store
from resources.store import LocalStore
from resources.units import AttemptOutcome, UnitState
from tests.support.batches import ASSET
from tests.support.child import write_config


class Shop:
    """An engine in a folder, with what it stands on."""

    def __init__(self, folder: Path, store_uri: str = "outputs") -> None:
        self.path = write_config(folder)
        self.path.write_text(self.path.read_text().replace("[store]", f'[store]\nuri = "{store_uri}"'))
        self.config = load_config(self.path)
        self.ledger: Ledger = open_ledger(self.config)
        self.store: LocalStore = open_project_store(self.config, self.ledger)
        leases = open_leases(self.config, self.ledger)
        self.engine: Engine = open_engine(self.config, ledger=self.ledger, store=self.store, leases=leases)
        self.engine.rng = random.Random(1)

    def state(self, tile: str) -> UnitState:
        """State of the unit of a tile."""
        return next(row.state for row in self.ledger.units(asset=ASSET) if row.tile == tile)

    def outcomes(self, tile: str) -> list[AttemptOutcome | None]:
        """How its attempts ended, in order."""
        key = next(row.key for row in self.ledger.units(asset=ASSET) if row.tile == tile)
        return [entry.outcome for entry in self.ledger.history(key) if entry.what == "attempt"]
