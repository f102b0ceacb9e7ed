"""What one 256 px tile costs, beside a bare loop of the same read, warp and write.

Run: `python -m benchmarks.pixel_cost [TILES]`. `tile_requests` and `render_and_replace` also serve to measure the engine's bound:
a bare process pool calls `render_and_replace`, the engine calls `render_tile` between its own steps.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import rasterio
from affine import Affine
from rasterio.enums import Resampling
from rasterio.vrt import WarpedVRT

from assets.grid import Tile, TileBox
from assets.products.cog import validate_tile
from assets.products.fit import parse_crs
from assets.products.model import SceneInput, TileRequest
from assets.products.render import render_tile
from assets.scenes.model import BandRef
from resources.config_scenes import ProductConfig
from resources.gdal_safety import safe_env
from resources.keys import digest_file

_SIDE_PX = 3000
_TILE_PX = 256
_RESOLUTION_M = 14.0
_LEFT, _TOP = 1_004_700.0, 5_642_000.0


def benchmark_scene(directory: Path, dtype: str) -> SceneInput:
    """A tiled, deflated three-band scene of waves and noise in UTM, written to `directory`."""
    rows, columns = np.mgrid[0:_SIDE_PX, 0:_SIDE_PX]
    noise = np.random.default_rng(1).normal(0, 3, rows.shape)
    waves = (127 + 100 * np.sin(columns / 170) * np.cos(rows / 230) + noise).clip(1, 255)
    array = (np.stack([waves, waves[::-1], waves[:, ::-1]]) * (1 if dtype == "uint8" else 40)).astype(dtype)
    path = directory / f"scene_{dtype}.tif"
    place = Affine(10, 0, 500_000, 0, -10, 5_000_000)
    with safe_env(), rasterio.open(
        path, "w", driver="GTiff", width=_SIDE_PX, height=_SIDE_PX, count=3, dtype=dtype, crs="EPSG:32632", transform=place,
        tiled=True, blockxsize=256, blockysize=256, compress="deflate",
    ) as out:  # fmt: skip
        out.write(array)
    digest, found = digest_file(path), path.stat()
    bands = {
        name: BandRef(
            name=name,
            uri=path.name,
            index=index,
            digest=digest,
            size_bytes=found.st_size,
            mtime_ns=found.st_mtime_ns,
            inode=found.st_ino,
            dtype=dtype,
            nodata=None,
            width=_SIDE_PX,
            height=_SIDE_PX,
            transform=(10.0, 0.0, 500_000.0, 0.0, -10.0, 5_000_000.0),
            crs="EPSG:32632",
        )
        for index, name in enumerate(("r", "g", "b"), 1)
    }
    return SceneInput("benchmark", datetime(2024, 1, 1, tzinfo=UTC), digest, bands)


def tile_requests(directory: Path, count: int, *, dtype: str = "uint16", resampling: str = "bilinear") -> list[TileRequest]:
    """`count` tiles of 256 px over a benchmark scene that is written to `directory`."""
    scene = benchmark_scene(directory, dtype)
    product = ProductConfig.model_validate({"name": "rgb", "bands": ("r", "g", "b"), "dtype": dtype, "resampling": resampling})
    span, across = _TILE_PX * _RESOLUTION_M, 6
    requests = []
    for number in range(count):
        column, row = number % across, number // across % across
        left, top = _LEFT + column * span, _TOP - row * span
        box = TileBox("EPSG:3857", (left, top - span, left + span, top), (_TILE_PX, _TILE_PX))
        key = f"{number:064x}"
        requests.append(
            TileRequest(product, box, Tile(13, column, number // across), "2024-01-01", key, (scene,), str(directory))
        )
    return requests


def render_and_replace(request: TileRequest, path: Path) -> None:
    """The work without any guarantee: render beside `path` and rename over it."""
    staged = path.with_name(f"bare-{os.getpid()}-{path.name}")
    render_tile(request, staged)
    staged.replace(path)


def bare_tile(request: TileRequest, path: Path, *, exact: bool = True) -> None:
    """The same read, warp and write straight through rasterio: no masks, no tags, no metrics. Call inside `safe_env`."""
    band, box, product = request.scenes[0].bands["r"], request.box, request.product
    options = {"tolerance": 1e-9, "XSCALE": 1, "YSCALE": 1} if exact else {}
    height, width = box.shape
    place = {"crs": parse_crs(box.crs), "transform": box.transform, "width": width, "height": height}
    with rasterio.open(Path(request.source_dir) / band.uri) as source, WarpedVRT(
        source, resampling=Resampling[product.resampling], **place, **options
    ) as warped:  # fmt: skip
        values, mask = warped.read(), warped.dataset_mask()
    with rasterio.open(
        path, "w", driver="COG", count=3, dtype=product.dtype, compress="deflate", predictor="yes", blocksize=256, **place
    ) as out:  # fmt: skip
        out.write(values)
        out.write_mask(mask)


def cpu_ms(work: Callable[[TileRequest, Path], object], requests: list[TileRequest], path: Path) -> float:
    """Milliseconds of CPU a tile, the best of three passes."""
    work(requests[0], path)
    passes = []
    for _ in range(3):
        started = time.process_time()
        for request in requests:
            work(request, path)
        passes.append(1000 * (time.process_time() - started) / len(requests))
    return min(passes)


def main() -> None:
    """Print the cost of each step as milliseconds and as a ratio to the bare loop."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 36
    with tempfile.TemporaryDirectory() as folder, safe_env():
        directory = Path(folder)
        for dtype in ("uint8", "uint16"):
            for resampling in ("nearest", "bilinear"):
                requests = tile_requests(directory, count, dtype=dtype, resampling=resampling)
                path = directory / "tile.tif"
                bare = cpu_ms(bare_tile, requests, path)
                inexact = cpu_ms(lambda request, out: bare_tile(request, out, exact=False), requests, path)
                ours = cpu_ms(render_tile, requests, path)
                checked = cpu_ms(validate_tile, requests[-1:], path)
                print(
                    f"{dtype:7} {resampling:9} render {ours:6.2f} ms, validate {checked:5.2f} ms; bare exact {bare:6.2f} ms "
                    f"(x {ours / bare:4.2f}), bare with GDAL's tolerance {inexact:6.2f} ms"
                )


if __name__ == "__main__":
    main()
