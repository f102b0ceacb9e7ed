"""Tiles through the engine against the same read, warp and write in a bare process pool, and memory against a scene's size."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import rasterio
from affine import Affine
from rasterio.warp import transform_bounds

from assets.planning import WindowPlan
from assets.project import open_project
from assets.scenes_project import ScenesProject
from assets.stock import list_scenes
from assets.tiles import TilesBatch
from benchmarks.measuring import Bound, PeakMemory, paired_ratio, report, wall_s
from resources.units import UnitOfWork

WINDOW = "2026-01-01"
TILE_PX = 256
CONFIGURATION = """
[source]
settle_s = 0
patterns = ["{{scene}}_{{date:%Y%m%d}}.tif"]
[window]
start = 2026-01-01
end = 2026-01-02
[grid]
crs = "EPSG:32632"
resolution = 10
tile_px = 256
metatile = 8
area = "{area}"
[executor]
workers = 2
[[products]]
name = "colour"
bands = ["b1", "b2", "b3"]
dtype = "uint16"
"""


@dataclass(slots=True)
class TileProject:
    """A project of one scene in another UTM zone, so that every tile is really warped."""

    folder: Path
    width_px: int

    def build(self) -> ScenesProject:
        """Write scene and configuration; open the project with an empty ledger and store."""
        scenes = self.folder / "scenes"
        scenes.mkdir(parents=True)
        write_scene(scenes / "scene_20260101.tif", width_px=self.width_px)
        with rasterio.open(scenes / "scene_20260101.tif") as scene:
            area = ",".join(f"{edge:.4f}" for edge in transform_bounds(scene.crs, "OGC:CRS84", *scene.bounds))
        (self.folder / "tilewright.toml").write_text(CONFIGURATION.format(area=area))
        return open_project(self.folder / "tilewright.toml")


def write_scene(path: Path, *, width_px: int) -> None:
    """A tiled, compressed three-band uint16 scene of `width_px` x `width_px` at 10 m, in EPSG:32633, written strip by strip."""
    rng = np.random.default_rng(7)
    texture = rng.integers(0, 4000, size=(3, 512, 512), dtype="uint16")
    profile = {
        "driver": "GTiff", "width": width_px, "height": width_px, "count": 3, "dtype": "uint16", "crs": "EPSG:32633",
        "transform": Affine(10, 0, 30_000, 0, -10, 5_230_000 + 10 * width_px), "tiled": True, "blockxsize": 512,
        "blockysize": 512, "compress": "deflate", "zlevel": 1, "bigtiff": "if_safer",
    }  # fmt: skip
    with rasterio.open(path, "w", **profile) as out:
        for row in range(0, width_px, 512):
            height = min(512, width_px - row)
            strip = np.tile(texture, (1, 1, -(-width_px // 512)))[:, :height, :width_px]
            out.write(strip, window=((row, row + height), (0, width_px)))


def bare_unit(work: UnitOfWork, path: Path) -> None:
    """The same read, warp and write, and `os.replace`: no fsync, no validation, no record."""
    staged = path.with_name(f".{path.name}")
    work.work(staged)
    os.replace(staged, path)


def _preload() -> None:
    for name in ScenesProject.worker_preload:
        __import__(name)


@dataclass(slots=True)
class Comparison:
    """The two contenders over one project's units."""

    project: ScenesProject

    def works(self) -> list[UnitOfWork]:
        """Work of every tile, from the plan."""
        found = list_scenes(self.project, now=self.project.ledger.clock())
        plan = WindowPlan(
            self.project.config, grid=self.project.grid, cover=self.project.cover, window=WINDOW, scenes=found.scenes, rejected=()
        )
        works = (plan.work(product, tile) for product in self.project.config.products for tile in self.project.grid.tiles)
        return [work for work in works if work is not None]

    def bare(self, _: int) -> float:
        """Seconds of a bare pool of two processes."""
        works = self.works()
        with tempfile.TemporaryDirectory() as name:
            paths = [Path(name, f"{number}.tif") for number in range(len(works))]

            def run() -> None:
                context = multiprocessing.get_context("spawn")
                with ProcessPoolExecutor(2, mp_context=context, initializer=_preload) as pool:
                    list(pool.map(bare_unit, works, paths, chunksize=4))

            return wall_s(run)

    def engine(self, number: int) -> float:
        """Seconds of the engine, planning included, into a store of its own."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "scenes").symlink_to(self.project.config.source_dir)
            (folder / "tilewright.toml").write_text(self.project.config.path.read_text())
            project = open_project(folder / "tilewright.toml")
            names = [f"{WINDOW}|{tile}" for tile in project.grid.partitions]
            run_id = f"bench{number}-{secrets.token_hex(4)}"
            batch = TilesBatch(project, names, run_id=run_id)
            taken = wall_s(lambda: project.engine().run(batch, run_id=run_id))
            assert project.ledger.counts(asset="tiles").processed == len(self.works())
            return taken


def bench_against_pool(pairs: int) -> Bound:
    """Wall time of some 1,000 tiles of 256 px: engine over bare pool."""
    with tempfile.TemporaryDirectory() as name:
        comparison = Comparison(TileProject(Path(name), width_px=8_192).build())
        tiles = len(comparison.works())
        ratio, ratios = paired_ratio(comparison.engine, comparison.bare, pairs=pairs)
    detail = ", ".join(f"{item:.2f}" for item in ratios)
    return Bound(f"engine / bare pool, {tiles:,} tiles of {TILE_PX} px", ratio, 1.10, "x", detail)


def bench_scene_memory() -> Bound:
    """Peak memory of a run over a 2 GB scene over that of a run over a 100 MB scene, the same number of tiles from each."""
    peaks = {width: _peak_of(width) for width in (4_096, 18_432)}
    small, large = peaks.values()
    detail = ", ".join(f"{width * width * 6 / 1e6:,.0f} MB: {peak / 1e6:.0f} MB" for width, peak in peaks.items())
    return Bound("peak memory, 2 GB / 100 MB scene", large / small, 1.1, "x", detail)


def _peak_of(width_px: int) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_tiles", "scene", str(width_px)], check=True, capture_output=True, text=True
    )
    return int(done.stdout.split()[-1])


def _print_peak(width_px: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        project = TileProject(Path(name), width_px=width_px).build()
        names = [f"{WINDOW}|{tile}" for tile in list(project.grid.partitions)[-3:]]
        with PeakMemory() as peak:
            batch = TilesBatch(project, names, run_id="memory")
            report_ = project.engine().run(batch, run_id="memory")
        assert report_.summary.processed > 0, report_.summary
        print(peak.bytes)


def main() -> int:
    """Print the bounds of tiles; 1 when one is broken."""
    if sys.argv[1:2] == ["scene"]:
        _print_peak(int(sys.argv[2]))
        return 0
    return report([bench_against_pool(3), bench_scene_memory()])


if __name__ == "__main__":
    sys.exit(main())
