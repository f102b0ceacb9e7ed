"""A small project of made-up hills: two days, six partitions of four tiles, two products, 48 units a day."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from affine import Affine

from tests.support.sources import DATED, write_raster

FIRST, SECOND = "2024-06-01", "2024-06-02"
CONFIGURATION = f"""
[source]
patterns = ["{DATED}"]
bands = ["red", "green", "blue"]
settle_s = 0.0

[window]
start = {FIRST}
end = 2024-06-03
every = "day"

[grid]
crs = "EPSG:32632"
resolution = 10
origin = [500000, 5000000]
tile_px = 64
metatile = 2
area = "9.0001,45.1305,9.0485,45.153"

[[products]]
name = "true_colour"
bands = ["red", "green", "blue"]
dtype = "uint8"

[[products]]
name = "greenness"
expression = "(green - red) / (green + red)"
dtype = "float32"
nodata = "nan"

# what failed is put off for an hour: nothing but a person asks for it again
[retry]
tries_in_run = 1
later_base_s = 3600.0

[sensors]
interval_s = 10
"""


def write_project(folder: Path) -> Path:
    """Write scenes and configuration; returns the configuration's path."""
    write_scenes(folder / "scenes")
    path = folder / "tilewright.toml"
    path.write_text(CONFIGURATION)
    return path


def write_scenes(folder: Path) -> None:
    """Two overlapping scenes a day, of rolling made-up hills, which fill the area."""
    rows, columns = np.mgrid[0:256, 0:384]
    hills = np.stack(
        [
            60 + 120 * np.abs(np.sin((rows + columns * 0.7) / 37.0)),
            40 + 150 * np.abs(np.sin(rows / 23.0) * np.cos(columns / 31.0)),
            30 + columns / 3.0,
        ]
    )
    for day, light in ((FIRST, 1.0), (SECOND, 0.8)):
        for name, (left, right) in {"west": (0, 224), "east": (160, 384)}.items():
            pixels = (hills[:, :, left:right] * light).clip(1, 254).astype("uint8")
            place = Affine(10.0, 0.0, 500_000.0 + left * 10, 0.0, -10.0, 5_000_000.0)
            write_raster(folder / f"{name}_{day.replace('-', '')}.tif", pixels, place=place, nodata=0)
