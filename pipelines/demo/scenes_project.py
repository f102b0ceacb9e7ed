"""The demo's project folder: scenes of three made-up days, one of them broken, with area, zones and configuration.

Building it twice gives the same bytes and the same times, so that a second demo finds the first one's work done.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import rasterio
from affine import Affine
from rasterio.shutil import copy

from pipelines.demo.imagery import NODATA, Imagery

_EPSG = "EPSG:4326"
_DARKER_PER_DAY = 0.08


@dataclass(frozen=True, slots=True)
class Cut:
    """One scene: name, made-up acquisition time, and its part of the picture as `(left, top, right, bottom)` in 0..1."""

    place: str
    acquired: datetime
    extent: tuple[float, float, float, float]

    @property
    def file_name(self) -> str:
        """Name that holds place and time, as satellite operators write them."""
        return f"rmnp-{self.place}_{self.acquired:%Y%m%dT%H%M%S}.tif"


def _at(day: int, minute: int) -> datetime:
    return datetime(2024, 6, day, 17, minute, tzinfo=UTC)


CUTS = (
    Cut("west", _at(1, 5), (0.00, 0.00, 0.46, 1.00)),
    Cut("middle", _at(1, 6), (0.36, 0.02, 0.74, 0.98)),
    Cut("east", _at(1, 7), (0.66, 0.00, 1.00, 1.00)),
    Cut("north", _at(2, 5), (0.02, 0.00, 1.00, 0.60)),
    Cut("south", _at(2, 6), (0.00, 0.48, 0.97, 1.00)),
    Cut("northwest", _at(3, 5), (0.00, 0.00, 0.57, 0.58)),
    Cut("northeast", _at(3, 6), (0.45, 0.00, 1.00, 0.60)),
    Cut("southwest", _at(3, 7), (0.01, 0.45, 0.58, 1.00)),
    Cut("southeast", _at(3, 8), (0.44, 0.47, 1.00, 0.99)),
)
BROKEN = Cut("centre", _at(3, 9), (0.20, 0.20, 0.80, 0.80))
"""Its header is right and its pixel data end half way, as after an interrupted transfer."""

LATE = Cut("late", _at(2, 7), (0.30, 0.30, 0.55, 0.55))
"""A scene that is not there at first."""

CONFIGURATION = """\
# The demo's configuration, written by `tilewright demo`. docs/configuration.md has every key.
state = "state"
# the daemon runs windows as soon as their scenes are there
autostart = true

[source]
uri = "scenes"
patterns = ["{place}_{date:%Y%m%dT%H%M%S}.tif"]
bands = ["red", "green", "blue"]
settle_s = 1.0

[window]
start = 2024-06-01
end = 2024-06-04
every = "day"

[grid]
tms = "WebMercatorQuad"
zoom = 12
tile_px = 128
metatile = 2
area = "area.geojson"

[[products]]
name = "true_colour"
bands = ["red", "green", "blue"]
dtype = "uint8"

[[products]]
name = "greenness"
expression = "(green - red) / (green + red)"
dtype = "float32"
nodata = "nan"

[zones]
path = "zones.geojson"
id_field = "name"

[store]
uri = "outputs"

[retry]
base_s = 0.2
cap_s = 1.0
later_base_s = 2.0
later_cap_s = 5.0

[sensors]
interval_s = 4

[retention]
staging_hours = 0
"""


@dataclass(frozen=True, slots=True)
class DemoProject:
    """A built project: its configuration file, its scenes folder, the broken scene, and what the pixels are."""

    config: Path
    scenes: Path
    broken: Path
    imagery: Imagery

    def add_late_scene(self) -> Path:
        """Put the late scene beside the others; returns its path. After a crash: whole or absent, never half."""
        return _write_scene(self.imagery, LATE, self.scenes)


def build_project(folder: Path, imagery: Imagery) -> DemoProject:
    """Write the demo's inputs and configuration under `folder`; what is there and equal stays untouched.

    After a crash: every file is written aside and renamed, so building again completes it.
    """
    scenes = folder / "scenes"
    scenes.mkdir(parents=True, exist_ok=True)
    for cut in CUTS:
        _write_scene(imagery, cut, scenes)
    broken = _write_scene(imagery, BROKEN, scenes, keep=0.5)
    (scenes / LATE.file_name).unlink(missing_ok=True)
    _place(folder / "area.geojson", imagery.area.to_json(drop_id=True, sort_keys=True).encode())
    _place(folder / "zones.geojson", imagery.zones.to_json(drop_id=True, sort_keys=True).encode())
    _place(folder / "tilewright.toml", CONFIGURATION.encode())
    return DemoProject(config=folder / "tilewright.toml", scenes=scenes, broken=broken, imagery=imagery)


def _write_scene(imagery: Imagery, cut: Cut, folder: Path, *, keep: float = 1.0) -> Path:
    """A cloud-optimized GeoTIFF of the cut, of which only the first `keep` of its bytes are kept."""
    bands, height, width = imagery.pixels.shape
    left, top, right, bottom = cut.extent
    rows, columns = slice(int(top * height), int(bottom * height)), slice(int(left * width), int(right * width))
    pixels = imagery.pixels[:, rows, columns]
    share = 1.0 - _DARKER_PER_DAY * (cut.acquired.day - 1)
    darker = np.where(pixels == NODATA, NODATA, np.round(pixels * share)).astype(np.uint8)
    profile = {"driver": "GTiff", "dtype": "uint8", "crs": _EPSG, "nodata": NODATA, "photometric": "RGB"}
    whole = imagery.transform
    transform = Affine(whole.a, 0.0, whole.c + columns.start * whole.a, 0.0, whole.e, whole.f + rows.start * whole.e)
    with rasterio.MemoryFile() as plain, rasterio.MemoryFile() as optimized:
        with plain.open(count=bands, height=darker.shape[1], width=darker.shape[2], transform=transform, **profile) as scene:
            scene.write(darker)
            scene.descriptions = ("red", "green", "blue")
        # this driver puts the header first, so that a file cut short still opens
        copy(plain.name, optimized.name, driver="COG", blocksize=128, compress="deflate", overviews="NONE")
        content = optimized.read()
    path = folder / cut.file_name
    _place(path, content[: int(len(content) * keep)])
    os.utime(path, (cut.acquired.timestamp(), cut.acquired.timestamp()))
    return path


def _place(path: Path, content: bytes) -> None:
    """Write a file whole, unless it is already there with that content."""
    if path.is_file() and path.read_bytes() == content:
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_bytes(content)
    aside.replace(path)
