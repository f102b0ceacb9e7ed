"""Memory while rendering: flat in the size of a scene and in the number of scenes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rasterio
from affine import Affine

from assets.products.model import SceneInput, TileRequest
from resources.config_scenes import ProductConfig
from resources.gdal_safety import safe_env
from tests.support.pixels import UTM, scene_of, square, tile_request, write_raster

NORTH_UP = Affine(10, 0, 500_000, 0, -10, 5_000_000)
CHILD = r"""
import pickle, re, sys
from pathlib import Path
from assets.products.render import render_tile
for request in pickle.loads(sys.stdin.buffer.read()):
    render_tile(request, Path(sys.argv[1]))
# not ru_maxrss, which a child inherits from its parent
print(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
"""


def peak_kib(requests: list[TileRequest], directory: Path) -> int:
    """Peak resident memory of a process that renders these tiles one after the other."""
    command = [sys.executable, "-c", CHILD, str(directory / "out.tif")]
    done = subprocess.run(command, input=pickle.dumps(requests), check=True, capture_output=True, cwd=Path(__file__).parents[2])
    return int(done.stdout)


def large_scene(path: Path, side: int) -> SceneInput:
    """A tiled, really written uint16 scene of `side` x `side` pixels without overviews, that compresses well."""
    row = np.arange(side, dtype="uint16") % 4000 + 1
    profile = {"driver": "GTiff", "width": side, "height": side, "count": 1, "dtype": "uint16", "crs": UTM, "transform": NORTH_UP}
    with (
        safe_env(),
        rasterio.open(path, "w", tiled=True, blockxsize=512, blockysize=512, compress="zstd", zstd_level=1, **profile) as out,
    ):
        for top in range(0, side, 512):
            rows = min(512, side - top)
            out.write(np.broadcast_to(row, (rows, side)) + np.uint16(top), 1, window=rasterio.windows.Window(0, top, side, rows))
    return scene_of(path.parent, path)


@pytest.mark.parametrize("resampling", ["bilinear", "average"])
def test_peak_memory_does_not_grow_with_the_scene(tmp_path: Path, resampling: str) -> None:
    """Tiles of a 2 GB scene, from full resolution to 60 source pixels a pixel, peak within 10 % of those of a 100 MB scene."""
    product = ProductConfig(name="p", bands=("b1",), dtype="uint16", resampling=resampling)
    boxes = [square(UTM, 500_003, 4_999_997, resolution, 256) for resolution in (10.0, 50.0, 270.0)]
    peaks = []
    for side in (7_000, 32_000):
        scene = large_scene(tmp_path / f"{side}.tif", side)
        more = boxes if side == 7_000 else [*boxes, square(UTM, 520_003, 4_959_997, 600.0, 256)]
        peaks.append(peak_kib([tile_request(product, box, [scene], tmp_path) for box in more], tmp_path))
    assert peaks[1] < 1.1 * peaks[0], f"peaks {peaks} KiB"


@pytest.mark.parametrize("compositing", ["mean", "median"])
def test_peak_memory_does_not_grow_with_the_number_of_scenes(tmp_path: Path, compositing: str) -> None:
    """A tile of 768 px over 16 scenes peaks within 10 % of one over 4, as a stream and for the median, which needs them all."""
    scenes = []
    for number in range(16):
        array = np.full((3, 800, 800), number + 1, dtype="uint16")
        array[:, :, :: number + 2] = 0
        path = write_raster(tmp_path / f"s{number}.tif", array, transform=NORTH_UP, nodata=0, compress="zstd")
        scenes.append(scene_of(tmp_path, path, ("r", "g", "b")))
    product = ProductConfig(name="p", bands=("r", "g", "b"), dtype="uint16", compositing=compositing, nodata=0)
    box = square(UTM, 500_003, 4_999_997, 10.0, 768)
    few, many = (peak_kib([tile_request(product, box, scenes[:count], tmp_path)], tmp_path) for count in (4, 16))
    assert many < 1.1 * few, f"{few} KiB with 4 scenes, {many} KiB with 16"
