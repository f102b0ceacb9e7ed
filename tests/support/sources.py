"""Builders for source folders: rasters good and bad, configurations over them, and one look at all of it."""

from __future__ import annotations

import atexit
import json
import os
import struct
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from affine import Affine

from assets.scenes.discovery import find_scenes
from assets.scenes.inspection import Inspector, Limits
from assets.scenes.model import Scene, SceneListing
from assets.sources.pinning import MemoryPins, PinBook
from resources.config import Config, load_config
from resources.gdal_safety import safe_env

NOW = datetime(2030, 1, 1, tzinfo=UTC)
"""The clock of these tests, long after their files were written, so that all of them have settled."""

UTM = "EPSG:32632"
PLACE = Affine(30.0, 0.0, 500_000.0, 0.0, -30.0, 5_000_000.0)
AT_180 = Affine(3000.0, 0.0, 700_000.0, 0.0, -3000.0, 5_000_000.0)
"""In EPSG:32660, across the antimeridian."""

DATED = "{name}_{date:%Y%m%d}.tif"
SHARED = Path(__file__).parents[2] / ".." / "shared" / "data"


def write_raster(
    path: Path, array: np.ndarray | None = None, *, place: Affine = PLACE, crs: str | None = UTM, **profile: Any
) -> Path:
    """Write `array` `(band, y, x)`, by default one band of 32 x 32, as a GeoTIFF. `colormap` makes a palette, `tags` are set."""
    pixels = np.arange(32 * 32, dtype="uint16").reshape(1, 32, 32) if array is None else array
    colormap, tags, gcps = profile.pop("colormap", None), profile.pop("tags", {}), profile.pop("gcps", None)
    path.parent.mkdir(parents=True, exist_ok=True)
    where = {} if gcps is not None or place == Affine.identity() else {"transform": place}
    with warnings.catch_warnings(), safe_env():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        shape = {"count": pixels.shape[0], "height": pixels.shape[1], "width": pixels.shape[2], "dtype": pixels.dtype}
        out = rasterio.open(path, "w", driver="GTiff", crs=None if gcps is not None else crs, **shape, **where, **profile)
        out.write(pixels)
        if gcps is not None:
            out.gcps = (gcps, rasterio.CRS.from_user_input(crs))
        if colormap is not None:
            out.write_colormap(1, colormap)
        if tags:
            out.update_tags(**tags)
        out.close()
    return path


def declare(path: Path, *, width: int, height: int, size_bytes: int = 1024) -> Path:
    """Write a TIFF header that declares `width` x `height` bytes of pixels in a file of `size_bytes`."""
    entries = [
        (256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1),
        (273, 4, 1, 512), (277, 3, 1, 1), (278, 4, 1, 1), (279, 4, 1, 100),
    ]  # fmt: skip
    body = struct.pack("<2sHIH", b"II", 42, 8, len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    path.write_bytes((body + struct.pack("<I", 0)).ljust(size_bytes, b"\0"))
    return path


def vrt(source: str, *, raw: bool = False) -> str:
    """A VRT of 16 x 16 pixels over another file, which GDAL opens whatever its name."""
    band = (
        f'<VRTRasterBand dataType="Byte" band="1" subClass="VRTRawRasterBand"><SourceFilename relativeToVRT="0">{source}'
        "</SourceFilename><ImageOffset>0</ImageOffset><PixelOffset>1</PixelOffset><LineOffset>16</LineOffset></VRTRasterBand>"
        if raw
        else f'<VRTRasterBand dataType="Byte" band="1"><SimpleSource><SourceFilename relativeToVRT="0">{source}</SourceFilename>'
        "<SourceBand>1</SourceBand></SimpleSource></VRTRasterBand>"
    )
    return (
        '<VRTDataset rasterXSize="16" rasterYSize="16"><SRS>EPSG:3857</SRS>'
        f"<GeoTransform>0, 10, 0, 0, 0, -10</GeoTransform>{band}</VRTDataset>"
    )


def write_item(path: Path, *, item_id: str, when: str | None, assets: dict[str, Any]) -> Path:
    """Write a STAC item."""
    document = {
        "type": "Feature", "stac_version": "1.0.0", "id": item_id, "geometry": None, "links": [],
        "properties": {"datetime": when}, "assets": assets,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def source_config(
    root: Path,
    *,
    patterns: Sequence[str] = (DATED,),
    area: str = "-180,-85,180,85",
    products: str = '[[products]]\nname = "all"\nbands = ["b1"]\nresampling = "nearest"\n',
    start: str = "2000-01-01",
    end: str | None = None,
    **source: Any,
) -> Config:
    """A configuration in `root` whose source is `root/scenes`, or wherever `uri` says; `source` are further keys of [source]."""
    keys = {"uri": str(root / "scenes"), "patterns": list(patterns), **source}
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in keys.items()]
    text = (
        "[source]\n" + "\n".join(lines) + f'\n[window]\nstart = {start}\nevery = "month"\n'
        + (f"end = {end}\n" if end else "")
        + f'[grid]\ntms = "WebMercatorQuad"\nzoom = 4\narea = "{area}"\n{products}'
    )  # fmt: skip
    path = root / "tilewright.toml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


def look(config: Config, *, book: PinBook | None = None, required: Sequence[str] = (), now: datetime = NOW) -> SceneListing:
    """One look at the source, with children that all tests share: one takes a second to start."""
    return find_scenes(config, ledger=book or MemoryPins(), required_bands=required, now=now, inspector=_children())


@cache
def _children() -> Inspector:
    inspector = Inspector(Limits(workers=1))
    atexit.register(inspector.__exit__, None, None, None)
    return inspector


def only(listing: SceneListing) -> Scene:
    """The one scene of a listing."""
    (scene,) = listing.scenes
    return scene


def touch(path: Path, when: datetime) -> None:
    """Set a file's mtime."""
    os.utime(path, (when.timestamp(), when.timestamp()))
