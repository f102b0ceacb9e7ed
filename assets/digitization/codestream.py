"""Pixels to a JPEG 2000 codestream and back, block by block: memory does not follow the size of a master.

The oriented, converted pixels of a page are first laid down as a tiled scratch picture (in memory while small, else beside the
staging name), from which OpenJPEG takes tile after tile. One thread and no clock: equal pixels and settings give equal bytes.
"""

from __future__ import annotations

import hashlib
import logging
import math
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import rasterio.shutil
from rasterio.errors import NotGeoreferencedWarning
from rasterio.io import DatasetReader, MemoryFile
from rasterio.windows import Window

from assets.digitization.model import PageFacts, Photometric
from assets.digitization.rendition import Rendition, oriented, oriented_place
from resources.errors import ErrorKind, InputRejected, UnitRejected
from resources.gdal_safety import open_raster, raster_errors

IN_MEMORY_BYTES = 48 << 20
BLOCK_PX = 1024
_CHUNK_BYTES = 32 << 20
_SMALLEST_PX = 128
_LEVELS_MOST = 6


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a codestream is made. `ratio` None: lossless (5/3 wavelet); else uncompressed over compressed bytes (9/7 wavelet)."""

    ratio: float | None = None
    tile_px: int = 1024

    def options(self, rendition: Rendition) -> dict[str, str]:
        """Creation options of GDAL's JP2OpenJPEG driver."""
        options = {
            "CODEC": "J2K",
            "REVERSIBLE": "YES" if self.ratio is None else "NO",
            "QUALITY": "100" if self.ratio is None else f"{100 / self.ratio:.6g}",
            "RESOLUTIONS": str(1 + decompositions(rendition.width, rendition.height)),
            "BLOCKXSIZE": str(self.tile_px),
            "BLOCKYSIZE": str(self.tile_px),
            "PROGRESSION": "RPCL",
            "TLM": "YES",
            "PLT": "YES",
            "YCC": "YES" if rendition.colours == 3 else "NO",
        }
        if rendition.bits not in (8, 16):
            options["NBITS"] = str(rendition.bits)
        return options


def decompositions(width: int, height: int) -> int:
    """Wavelet levels, so that the smallest picture within a copy has at most 128 pixels a side, or a 64th of the size."""
    return min(_LEVELS_MOST, max(0, math.ceil(math.log2(max(width, height) / _SMALLEST_PX))))


@contextmanager
def scratch_picture(master: Path, page: PageFacts, rendition: Rendition, scratch: Path) -> Iterator[DatasetReader]:
    """The page's pixels as they go into the copy, as an open tiled picture; gone afterwards. Call inside `safe_env`.

    Raises `UnitRejected` (CORRUPT_INPUT and others of `raster_errors`; no retry) when the pixels cannot all be decoded.
    """
    profile: dict[str, Any] = {
        "driver": "GTiff",
        "width": rendition.width,
        "height": rendition.height,
        "count": rendition.components,
        "dtype": rendition.dtype,
        "tiled": True,
        "blockxsize": 512,
        "blockysize": 512,
        "bigtiff": "IF_SAFER",
        "interleave": "pixel",
        "photometric": "RGB" if rendition.colours == 3 else "MINISBLACK",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        if rendition.size_bytes <= IN_MEMORY_BYTES:
            with MemoryFile(ext=".tif") as memory:
                with memory.open(**profile) as picture:
                    _lay_down(master, page, rendition, picture)
                with memory.open() as picture:
                    yield picture
            return
        try:
            with rasterio.open(scratch, "w", **profile) as picture:
                _lay_down(master, page, rendition, picture)
            with rasterio.open(scratch, driver="GTiff") as picture:
                yield picture
        finally:
            scratch.unlink(missing_ok=True)


def _lay_down(master: Path, page: PageFacts, rendition: Rendition, picture: Any) -> None:
    try:
        with (
            _no_complaint(page),
            raster_errors(master, name=f"page {page.directory}"),
            _open_page(master, page) as source,
        ):
            _check_samples(source, page)
            for window in _windows(source, page):
                samples = source.read(window=window)
                pixels = oriented(rendition.convert(samples), page.orientation)
                shape = int(window.height), int(window.width)
                row, column = oriented_place(int(window.row_off), int(window.col_off), shape, page=page)
                picture.write(pixels, window=Window(column, row, pixels.shape[2], pixels.shape[1]))
    except InputRejected as error:
        raise UnitRejected(error.message, kind=error.kind) from error


def _open_page(master: Path, page: PageFacts) -> DatasetReader:
    # the path is ours, the directory a number: nothing of the master decides what is opened.
    # Not raw, GDAL turns inks into colours without a profile and calls the fourth of them alpha
    raw = "GTIFF_RAW:" if page.photometric is Photometric.SEPARATED else ""
    return rasterio.open(f"{raw}GTIFF_DIR:{page.directory}:{master}", driver="GTiff")


def _check_samples(source: DatasetReader, page: PageFacts) -> None:
    wanted = (page.height, page.width, page.samples, "uint8" if page.bits <= 8 else "uint16")
    found = (source.height, source.width, source.count, source.dtypes[0])
    if found != wanted:
        raise UnitRejected(
            f"page {page.directory}: samples: found that GDAL reads them as {found}; allowed: {wanted}",
            kind=ErrorKind.UNSUPPORTED_COLOUR,
        )


def _windows(source: DatasetReader, page: PageFacts) -> Iterator[Window]:
    """Windows that cover the page, whole blocks of the file, of some tens of megabytes."""
    block_height, block_width = source.block_shapes[0]
    sample_bytes = page.samples * (1 if page.bits <= 8 else 2)
    if block_width < page.width:
        columns = max(1, BLOCK_PX // block_width) * block_width
        rows = max(1, BLOCK_PX // block_height) * block_height
    else:
        columns = page.width
        rows = max(1, _CHUNK_BYTES // (columns * sample_bytes) // block_height) * block_height
    for row in range(0, page.height, rows):
        for column in range(0, page.width, columns):
            yield Window(column, row, min(columns, page.width - column), min(rows, page.height - row))


@contextmanager
def _no_complaint(page: PageFacts) -> Iterator[None]:
    """What libtiff only warns of while decoding (cut JPEG data, bad fax codes) leaves pixels that were never scanned: refuse."""
    heard: list[str] = []

    class _Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    ears, logger = _Ear(level=logging.WARNING), logging.getLogger("rasterio._err")
    logger.addHandler(ears)
    try:
        yield
    finally:
        logger.removeHandler(ears)
    damage = [text for text in heard if "old-style JPEG" not in text]
    if damage:
        raise UnitRejected(
            f"page {page.directory}: pixels: found that the decoder complains: {damage[0][:300]}", kind=ErrorKind.CORRUPT_INPUT
        )


def encode(picture: DatasetReader, target: Path, rendition: Rendition, encoding: Encoding) -> None:
    """Write the codestream of a picture to `target`. Raises `UnitRejected`, `OSError`."""
    with rasterio.Env(GDAL_PAM_ENABLED="NO"), raster_errors(target, name="the copy's codestream"):
        rasterio.shutil.copy(picture, str(target), driver="JP2OpenJPEG", strict=False, **encoding.options(rendition))
    with suppress(OSError):
        Path(f"{target}.aux.xml").unlink(missing_ok=True)


def blocks(picture: DatasetReader) -> Iterator[np.ndarray[Any, Any]]:
    """Pixels `(band, y, x)` in blocks of 1024 x 1024, row after row."""
    for row in range(0, picture.height, BLOCK_PX):
        for column in range(0, picture.width, BLOCK_PX):
            height, width = min(BLOCK_PX, picture.height - row), min(BLOCK_PX, picture.width - column)
            yield picture.read(window=Window(column, row, width, height))


def pixels_sha256(picture: DatasetReader) -> str:
    """Sha256 (64 hex) of the decoded pixels: width, height, bands as 32-bit numbers, then blocks of 1024 x 1024, row after row.

    Within a block pixel after pixel with its bands together; 16-bit numbers little-endian, the others one byte.
    """
    digest = hashlib.sha256(struct.pack("<III", picture.width, picture.height, picture.count))
    for block in blocks(picture):
        plain = block.astype("<u2" if block.dtype == np.uint16 else "u1", copy=False)
        digest.update(np.ascontiguousarray(np.moveaxis(plain, 0, 2)).data)
    return digest.hexdigest()


def psnr_db(picture: DatasetReader, copy: DatasetReader, *, bits: int) -> float:
    """Peak signal to noise ratio of a copy in decibels; infinite when the pixels are equal."""
    squares, count = 0.0, 0
    for mine, theirs in zip(blocks(picture), blocks(copy), strict=True):
        difference = mine.astype(np.float64) - theirs
        squares += float(np.einsum("byx,byx->", difference, difference))
        count += difference.size
    return math.inf if squares == 0 else 10 * math.log10(((1 << bits) - 1) ** 2 * count / squares)


@contextmanager
def opened_copy(path: Path) -> Iterator[DatasetReader]:
    """A JP2 or a codestream for reading, by GDAL's OpenJPEG. Call inside `safe_env`. Raises as `open_raster`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with raster_errors(path, name="the copy"), open_raster(path, ("JP2OpenJPEG",), name="the copy") as copy:
            yield copy
