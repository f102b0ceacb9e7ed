"""Reads a product's finished tiles of one window as if they were a single raster, band by band and window by window.

No VRT and no tile index is opened: the drivers that follow file names are skipped in workers, and tiles of one grid need no
warping. Only files that the ledger holds complete are opened, by name, with their recorded digest confirmed at first use.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from rasterio.windows import Window

from assets.grid import Bounds, Tile
from assets.window_tiles import CompleteTile
from resources.errors import ErrorKind, InputRejected, TransientError, UnitRejected
from resources.gdal_safety import open_raster, raster_errors, safe_env
from resources.keys import digest_file

_OPEN_MAX = 16


class TileMosaic:
    """The complete tiles of one product on one grid, at least one of them. A context manager.

    Raises, on reading: `TransientError` (INPUT_CHANGED) when a tile is gone, may be retried after reconciliation;
    `UnitRejected` (OUTPUT_DIFFERS) when a tile is not what was recorded, not to be retried before it is repaired.
    """

    def __init__(self, store_dir: Path, tiles: Sequence[CompleteTile], *, gdal_cache_mb: int = 64) -> None:
        if not tiles:
            raise ValueError("a mosaic needs at least one tile")
        self._store_dir = store_dir
        self._tiles = {(tile.tile.x, tile.tile.y): tile for tile in tiles}
        self._first = Tile(tiles[0].tile.z, min(x for x, _ in self._tiles), min(y for _, y in self._tiles))
        self._height, self._width = tiles[0].box.shape
        self._open: OrderedDict[tuple[int, int], Any] = OrderedDict()
        self._confirmed: set[str] = set()
        self._stack = ExitStack()
        self._cache_mb = gdal_cache_mb
        boxes = [tile.box.bounds for tile in tiles]
        self.crs = tiles[0].box.crs
        self.bounds: Bounds = (
            min(box[0] for box in boxes),
            min(box[1] for box in boxes),
            max(box[2] for box in boxes),
            max(box[3] for box in boxes),
        )
        transform = tiles[0].box.transform
        self.resolution = (transform.a, -transform.e)

    def __enter__(self) -> TileMosaic:
        self._stack.enter_context(safe_env(self._cache_mb))
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        while self._open:
            self._open.popitem()[1].close()
        self._stack.close()

    def band_count(self) -> int:
        """Number of bands, of the first tile."""
        return int(self._file(min(self._tiles)).count)

    def read(self, band: int, *, column: int, row: int, width: int, height: int) -> np.ma.MaskedArray[Any, Any]:
        """Pixels `(y, x)` of 1-based `band`, masked where no tile is and where a tile's own mask or nodata says so."""
        dtype = self._file(min(self._tiles)).dtypes[band - 1]
        pixels: npt.NDArray[Any] = np.zeros((height, width), dtype=dtype)
        mask = np.ones((height, width), dtype=bool)
        for y in range(row // self._height, -(-(row + height) // self._height)):
            for x in range(column // self._width, -(-(column + width) // self._width)):
                place = (self._first.x + x, self._first.y + y)
                if place not in self._tiles:
                    continue
                left, top = max(column, x * self._width), max(row, y * self._height)
                right, bottom = min(column + width, (x + 1) * self._width), min(row + height, (y + 1) * self._height)
                part = self._read_part(
                    place, band, Window(left - x * self._width, top - y * self._height, right - left, bottom - top)
                )
                target = slice(top - row, bottom - row), slice(left - column, right - column)
                pixels[target] = part.data
                mask[target] = np.ma.getmaskarray(part)
        if pixels.dtype.kind == "f":
            mask |= ~np.isfinite(pixels)
        return np.ma.MaskedArray(pixels, mask)

    def read_small(self, tile: CompleteTile, bands: Sequence[int], *, side: int) -> np.ma.MaskedArray[Any, Any]:
        """One whole tile `(band, side, side)`, from its overviews where they serve; masked as `read` says."""
        file = self._file((tile.tile.x, tile.tile.y))
        with raster_errors(self._path((tile.tile.x, tile.tile.y))):
            part: np.ma.MaskedArray[Any, Any] = file.read(list(bands), out_shape=(len(bands), side, side), masked=True)
            return part

    def _read_part(self, place: tuple[int, int], band: int, window: Window) -> np.ma.MaskedArray[Any, Any]:
        file = self._file(place)
        with raster_errors(self._path(place)):
            part: np.ma.MaskedArray[Any, Any] = file.read(band, window=window, masked=True)
            return part

    def _path(self, place: tuple[int, int]) -> Path:
        return self._store_dir / self._tiles[place].output_uri

    def _file(self, place: tuple[int, int]) -> Any:
        if place in self._open:
            self._open.move_to_end(place)
            return self._open[place]
        tile, path = self._tiles[place], self._path(place)
        self._confirm(tile, path)
        try:
            file = open_raster(path, ["GTiff"])
        except InputRejected as error:
            raise _differs(tile, error.message) from error
        if file.shape != tile.box.shape:
            file.close()
            raise _differs(tile, f"it has shape {file.shape}, the grid asks {tile.box.shape}")
        self._open[place] = file
        if len(self._open) > _OPEN_MAX:
            self._open.popitem(last=False)[1].close()
        return file

    def _confirm(self, tile: CompleteTile, path: Path) -> None:
        if tile.key in self._confirmed:
            return
        try:
            digest = digest_file(path)
        except FileNotFoundError as error:
            raise TransientError(
                f"{tile.output_uri}: recorded complete, but there is no such file; reconciliation returns it to work",
                kind=ErrorKind.INPUT_CHANGED,
            ) from error
        if digest != tile.digest:
            raise _differs(tile, f"its digest is {digest[:16]}..., recorded was {tile.digest[:16]}...")
        self._confirmed.add(tile.key)


def _differs(tile: CompleteTile, why: str) -> UnitRejected:
    return UnitRejected(
        f"{tile.output_uri}: not the tile that was recorded: {why}. Run a deep verification, then replay",
        kind=ErrorKind.OUTPUT_DIFFERS,
    )
