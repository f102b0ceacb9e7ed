"""Builders for pixel tests: scenes written as GeoTIFFs and pinned, tile boxes, and a direct gdalwarp of rasterio's own GDAL."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from affine import Affine

from assets.grid import Tile, TileBox
from assets.products.model import SceneInput, TileRequest
from assets.products.render import render_tile
from assets.scenes.model import BandRef, MaskSource
from resources.config_scenes import ProductConfig
from resources.gdal_safety import safe_env

UTM = "EPSG:32632"
SHARED_SCENES = Path(__file__).parents[2] / ".." / "shared" / "data" / "scenes"


def write_raster(
    path: Path, array: np.ndarray, *, transform: Affine, crs: str = UTM, overviews: Sequence[int] = (), **profile: Any
) -> Path:
    """Write `array` `(band, y, x)` as a GeoTIFF; `mask` `(y, x)` becomes an internal mask, `resample` makes overviews."""
    mask, scales, offsets = profile.pop("mask", None), profile.pop("scales", None), profile.pop("offsets", None)
    resample = profile.pop("resample", "average")
    path.parent.mkdir(parents=True, exist_ok=True)
    with safe_env(), rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        with rasterio.open(
            path, "w", driver="GTiff", width=array.shape[2], height=array.shape[1], count=array.shape[0], dtype=array.dtype,
            crs=crs, transform=transform, **profile,
        ) as out:  # fmt: skip
            out.write(array)
            if mask is not None:
                out.write_mask(mask)
            if scales is not None:
                out.scales, out.offsets = scales, offsets
        if overviews:
            with rasterio.open(path, "r+") as out:
                out.build_overviews(overviews, rasterio.enums.Resampling[resample])
    return path


def band_refs(path: Path, source_dir: Path, names: Sequence[str]) -> dict[str, BandRef]:
    """The bands of a file, pinned as they are now."""
    found = path.stat()
    with safe_env(), rasterio.open(path) as source:
        return {
            name: BandRef(
                name=name,
                uri=path.relative_to(source_dir).as_posix(),
                index=index,
                digest=hashlib.sha256(path.read_bytes()).hexdigest() if found.st_size < 1 << 26 else "0" * 64,
                size_bytes=found.st_size,
                mtime_ns=found.st_mtime_ns,
                inode=found.st_ino,
                dtype=source.dtypes[index - 1],
                nodata=source.nodatavals[index - 1],
                width=source.width,
                height=source.height,
                transform=tuple(source.transform)[:6],
                crs=source.crs.to_string(),
                scale=source.scales[index - 1],
                offset=source.offsets[index - 1],
                mask=MaskSource.NONE,
            )
            for index, name in enumerate(names, 1)
        }


def scene_of(
    source_dir: Path,
    files: Mapping[str, Sequence[str]] | Path,
    names: Sequence[str] = ("b1",),
    *,
    scene_id: str | None = None,
    day: int = 1,
) -> SceneInput:
    """A scene of one many-band file, or of `{relative path: band names}`."""
    if isinstance(files, Path):
        files = {files.relative_to(source_dir).as_posix(): names}
    bands: dict[str, BandRef] = {}
    for relative, inside in files.items():
        bands |= band_refs(source_dir / relative, source_dir, inside)
    digest = hashlib.sha256("".join(band.digest for band in bands.values()).encode()).hexdigest()
    name = scene_id or Path(next(iter(files))).stem
    return SceneInput(name, datetime(2024, 1, day, tzinfo=UTC), digest, bands)


def square(crs: str, left: float, top: float, resolution: float, px: int = 256) -> TileBox:
    """A square tile box with its left top corner there."""
    return TileBox(crs, (left, top - px * resolution, left + px * resolution, top), (px, px))


def tile_request(
    product: ProductConfig, box: TileBox, scenes: Sequence[SceneInput], source_dir: Path, **more: Any
) -> TileRequest:
    """A request with made-up key and place."""
    return TileRequest(
        product=product, box=box, tile=Tile(10, 1, 2), window="2024-01-01", unit_key="ab" * 32, scenes=tuple(scenes),
        source_dir=str(source_dir), **more,
    )  # fmt: skip


def rendered(request: TileRequest, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Render to `path`; the values `(band, y, x)` and where they are valid, as any reader sees them."""
    render_tile(request, path)
    with safe_env(), rasterio.open(path) as tile:
        return tile.read(), tile.read_masks() != 0


def gdalwarp(sources: Sequence[Path], target: Path, box: TileBox, *options: str) -> np.ndarray:
    """What `gdalwarp -et 0` of the very GDAL that rasterio carries makes of `sources` on `box`, `(band, y, x)`."""
    library = _gdal()
    left, bottom, right, top = box.bounds
    words = [
        "-of",
        "GTiff",
        "-overwrite",
        "-q",
        "-et",
        "0",
        "-t_srs",
        box.crs,
        "-te",
        repr(left),
        repr(bottom),
        repr(right),
        repr(top),
    ]
    words += ["-ts", str(box.shape[1]), str(box.shape[0]), *options]
    with safe_env():
        arguments = (ctypes.c_char_p * (len(words) + 1))(*(word.encode() for word in words), None)
        prepared = library.GDALWarpAppOptionsNew(arguments, None)
        assert prepared, library.CPLGetLastErrorMsg()
        opened = [library.GDALOpenEx(os.fsencode(path), 0x2, None, None, None) for path in sources]
        assert all(opened), library.CPLGetLastErrorMsg()
        usage = ctypes.c_int(0)
        made = library.GDALWarp(
            os.fsencode(target), None, len(opened), (ctypes.c_void_p * len(opened))(*opened), prepared, ctypes.byref(usage)
        )
        assert made, library.CPLGetLastErrorMsg()
        for handle in (made, *opened):
            library.GDALClose(handle)
        library.GDALWarpAppOptionsFree(prepared)
        with rasterio.open(target) as result:
            return result.read()


def _gdal() -> Any:
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {match[0] for line in lines if (match := re.search(r"/\S*rasterio\.libs/libgdal\S*", line))}
    library = ctypes.CDLL(paths.pop())
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    library.GDALOpenEx.restype, library.GDALOpenEx.argtypes = pointer, [text, ctypes.c_uint, pointer, pointer, pointer]
    library.GDALWarpAppOptionsNew.restype = pointer
    library.GDALWarpAppOptionsNew.argtypes = [ctypes.POINTER(text), pointer]
    library.GDALWarp.restype = pointer
    library.GDALWarp.argtypes = [text, pointer, ctypes.c_int, ctypes.POINTER(pointer), pointer, ctypes.POINTER(ctypes.c_int)]
    library.GDALClose.argtypes = library.GDALWarpAppOptionsFree.argtypes = [pointer]
    library.CPLGetLastErrorMsg.restype = text
    return library
