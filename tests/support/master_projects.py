"""A small real project of digitization: batches of small TIFFs, runs through the engine, and what it left behind."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from assets.digitization.batch_manifest import BatchManifest, read_batch_manifest
from assets.digitization.copies_batch import CopiesBatch
from assets.digitization.event_batch import EventsBatch
from assets.digitization.export import export_batch
from assets.digitization.fixity import FixityBatch
from assets.digitization.project import DigitizationProject
from assets.digitization.report import report_batch
from assets.digitization.shape import COPIES
from assets.project import open_project
from assets.sources.folder import FolderSource
from resources.engine import RunReport
from tests.support.masters import picture, write_master

WINDOW = "2026-01-01"
ARRIVED = datetime(2026, 1, 1, 12, tzinfo=UTC)
CONFIGURATION = """
pipeline = "digitization"
[source]
uri = "masters"
settle_s = 0
[window]
start = 2026-01-01
[retry]
base_s = 0.01
later_base_s = 0.0
[executor]
workers = 1
[store]
min_free_mb = 0
"""


class MasterProject:
    """The project in a folder, and the few things that tests do with it."""

    def __init__(self, folder: Path, *, extra: str = "") -> None:
        self.folder = folder
        self.masters = folder / "masters"
        self.masters.mkdir(parents=True)
        self.configure(extra=extra)
        self._runs = 0

    def configure(self, *changes: tuple[str, str], extra: str = "") -> None:
        """Write the configuration with some texts replaced."""
        text = CONFIGURATION
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        self.path.write_text(text + extra)
        os.utime(self.path, ns=(0, int(hashlib.sha256((text + extra).encode()).hexdigest()[:12], 16)))

    @property
    def path(self) -> Path:
        """The configuration file."""
        return self.folder / "tilewright.toml"

    @property
    def project(self) -> DigitizationProject:
        """The project as configured now."""
        found = open_project(self.path)
        assert isinstance(found, DigitizationProject)
        return found

    def add(self, name: str, *, seed: int = 1, arrived: datetime = ARRIVED, content: bytes | None = None) -> Path:
        """A small master at `name` below the masters, or `content` in its place, arrived at that time."""
        path = self.masters / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            write_master(path, picture(20, 30, seed=seed))
        else:
            path.write_bytes(content)
        return self.arrive(path, arrived)

    def arrive(self, path: Path, arrived: datetime = ARRIVED) -> Path:
        """Say that a file arrived at that time."""
        os.utime(path, (arrived.timestamp(), arrived.timestamp()))
        return path

    def copies(self, *windows: str) -> RunReport:
        """One run of the copies of some windows."""
        found = windows or (WINDOW,)
        return self._run(CopiesBatch(self.project, found, run_id=self._next()))

    def events(self, *windows: str) -> RunReport:
        """One run of their preservation events."""
        return self._run(EventsBatch(self.project, windows or (WINDOW,)))

    def export(self, *windows: str) -> RunReport:
        """One run of their preservation export."""
        return self._run(export_batch(self.project, windows or (WINDOW,)), inline=True)

    def report(self, *windows: str) -> RunReport:
        """One run of their pages."""
        found = windows or (WINDOW,)
        rows = self.project.ledger.planned(COPIES, found)
        return self._run(report_batch(self.project, found, rows), inline=True)

    def fixity(self, period: str) -> RunReport:
        """One run of the fixity checks of a period."""
        return self._run(FixityBatch(self.project, [period]))

    def everything(self) -> list[RunReport]:
        """Copies, events, export and page of the first window."""
        return [self.copies(), self.events(), self.export(), self.report()]

    def _run(self, batch: object, *, inline: bool = False) -> RunReport:
        return self.project.engine(inline=inline).run(batch, run_id=self._next())  # type: ignore[arg-type]

    def _next(self) -> str:
        self._runs += 1
        return f"run-{os.getpid()}-{self._runs}"

    def at(self, moment: datetime) -> None:
        """Say what time it is, from now on, until the configuration changes."""
        self.project.ledger.clock = lambda: moment

    def outputs(self) -> dict[str, str]:
        """Digest of every file of the store, by its place."""
        root = self.project.config.store_dir
        return {
            str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(root.rglob("*"))
            if path.is_file() and not path.name.startswith(".")
        }

    def event_ids(self) -> list[str]:
        """Identifiers of all events."""
        return sorted(event.event_id for event in self.project.ledger.events())


def bagit_lines(files: Mapping[str, Path]) -> str:
    """A `manifest-sha256.txt` over files by their place in the bag."""
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n" for name, path in files.items())


def batch_manifest_in(folder: Path) -> BatchManifest | None:
    """The list of a batch that is all there is in a folder."""
    source = FolderSource(folder)
    return read_batch_manifest(source.listing().entries, source)
