"""A small real project of the main job: scenes as GeoTIFFs, a grid of 4 x 3 tiles, two products, runs through the engine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from affine import Affine
from shapely.geometry import box, mapping

from assets.project import open_project
from assets.scenes_project import ScenesProject
from assets.tiles import TilesBatch
from resources.engine import RunReport
from resources.ledger import UnitRow
from resources.units import UnitState
from tests.support.sources import write_raster

WINDOW = "2026-01-01"
CONFIGURATION = """
[source]
uri = "scenes"
patterns = ["{scene}_{date:%Y%m%d}.tif"]
settle_s = 0
[window]
start = 2026-01-01
end = 2026-01-03
[grid]
crs = "EPSG:32632"
resolution = 10
origin = [500000, 5003840]
tile_px = 64
metatile = 2
area = "area.geojson"
[retry]
base_s = 0.01
later_base_s = 0.0
[executor]
workers = 1
[store]
min_free_mb = 0
[[products]]
name = "grey"
bands = ["b1"]
[[products]]
name = "ratio"
expression = "b2 / b1"
dtype = "float32"
nodata = "nan"
"""
AREA = {
    "type": "FeatureCollection",
    "crs": {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::32632"}},
    "features": [{"type": "Feature", "properties": {}, "geometry": mapping(box(500_010, 5_001_930, 502_550, 5_003_830))}],
}
TILES = 12


class TileProject:
    """The project in a folder, and the few things that tests do with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scenes = folder / "scenes"
        self.scenes.mkdir(parents=True)
        (folder / "area.geojson").write_text(json.dumps(AREA))
        self.configure()
        self._runs = 0

    def configure(self, *changes: tuple[str, str], extra: str = "") -> None:
        """Write the configuration with some texts replaced."""
        text = CONFIGURATION
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = self.folder / "tilewright.toml"
        path.write_text(text + extra)
        os.utime(path, ns=(0, hash((text, extra)) % 10**15))

    @property
    def project(self) -> ScenesProject:
        """The project as configured now."""
        found = open_project(self.folder / "tilewright.toml")
        assert isinstance(found, ScenesProject)
        return found

    def add_scene(self, name: str, *, day: str = "20260101", column: int = 0, columns: int = 256, base: int = 100) -> Path:
        """Write a two-band scene that covers all rows, and `columns` pixel columns of the area from `column` on."""
        rows, cols = np.mgrid[0:192, 0:columns]
        pixels = np.stack([base + (rows + cols) % 50, 2 * (base + (rows + cols) % 50)]).astype("uint16")
        place = Affine(10, 0, 500_000 + 10 * column, 0, -10, 5_003_840)
        return write_raster(
            self.scenes / f"{name}_{day}.tif", pixels, place=place, tiled=True, blockxsize=64, blockysize=64, compress="deflate"
        )

    def run(self, window: str = WINDOW) -> RunReport:
        """Run all tiles of a window."""
        self._runs += 1
        run_id = f"run{self._runs}"
        names = [f"{window}|{name}" for name in self.project.grid.partitions]
        return self.project.engine().run(TilesBatch(self.project, names, run_id=run_id), run_id=run_id)

    def rows(self, *states: UnitState) -> list[UnitRow]:
        """Units planned now, of those states or of all."""
        found = self.project.ledger.planned("tiles", [f"{WINDOW}|{name}" for name in self.project.grid.partitions])
        return [row for row in found if not states or row.state in states]

    def outputs(self) -> dict[str, tuple[int, int]]:
        """Every output with its inode and time: equal means untouched."""
        store = self.project.store
        return {uri: (store.path(uri).stat().st_ino, store.path(uri).stat().st_mtime_ns) for uri in store.walk("tiles")}


def numbers(report: RunReport) -> tuple[int, int, int, int, int]:
    """Processed, skipped, failed, quarantined, not attempted."""
    summary = report.summary
    return summary.processed, summary.skipped, summary.failed, summary.quarantined, summary.not_attempted
