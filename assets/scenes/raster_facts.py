"""What one raster file declares, checked before anything of it is decoded. Runs only in a bounded child (see `inspection`).

Every rejection says field, what was found and what is allowed; the file's name is the caller's to add, because equal bytes under
another name get the same answer from the ledger. Sizes are judged from the header: some hundred bytes can declare terabytes.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyproj
import shapely
from affine import Affine
from rasterio.enums import ColorInterp, MaskFlags
from rasterio.io import DatasetReader
from rasterio.windows import Window

from assets.scenes.footprint import NoFootprintError, footprint
from assets.scenes.model import Affine6, MaskSource
from assets.scenes.sidecars import RASTER_SIDECARS
from assets.scenes.tiff_tags import nodata_text
from resources.errors import ErrorKind, InputRejected
from resources.gdal_safety import describe_content, is_tiff, open_raster, raster_errors, read_head, safe_env

if TYPE_CHECKING:
    from assets.scenes.inspection import Limits

SUPPORTED_DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64")
_BLOCK_BYTES_MOST = 256 << 20
_PROBE_BYTES_MOST = 1 << 30
_NO_NAME = "\0"
_WINDOWS_NUMBERS = {"1.#QNAN": "nan", "-1.#QNAN": "nan", "-1.#IND": "nan", "1.#INF": "inf", "-1.#INF": "-inf"}


def look(path: str, limits: Limits) -> tuple[dict[str, Any], InputRejected | None]:
    """Facts about a raster as plain JSON values, its footprint as WKB in hex; and what is wrong with its pixels, if anything.

    Where the header can be trusted and the pixels cannot, the facts still say which tiles miss them. Raises `InputRejected` (no
    retry) and `TransientError` (retry), both without the file's name.
    """
    try:
        _check_sidecars(path)
        with safe_env(64), open_raster(path, limits.drivers, name=_NO_NAME) as dataset:
            _check_size(path, dataset, limits)
            crs, transform = _place(dataset)
            with raster_errors(path, name=_NO_NAME):
                bands = [_band(path, dataset, index) for index in dataset.indexes]
                _check_overviews(dataset)
            facts = {
                "driver": dataset.driver,
                "width": dataset.width,
                "height": dataset.height,
                "crs": _crs_text(dataset),
                "transform": list(transform),
                "footprint": _footprint(crs, transform, dataset),
                "bands": bands,
                "time_tag": _time_tag(dataset, limits.time_tag),
            }
            try:
                with raster_errors(path, name=_NO_NAME):
                    _decode_ends(dataset)
            except InputRejected as error:
                return facts, _nameless(error, path)
            return facts, None
    except InputRejected as error:
        raise _nameless(error, path) from error


def _nameless(error: InputRejected, path: str) -> InputRejected:
    return InputRejected(_without_name(error.message, path), kind=error.kind, input_digest="")


def _without_name(message: str, path: str) -> str:
    name = re.escape(os.path.basename(path))
    return re.sub(rf"({re.escape(path)}|{name})(?=[:,'])", "file", message.removeprefix(f"{_NO_NAME}: "))


def _reject(kind: ErrorKind, field: str, found: str, allowed: str) -> InputRejected:
    return InputRejected(f"{field}: found {found}; allowed: {allowed}", kind=kind, input_digest="")


def _check_sidecars(path: str) -> None:
    """GDAL opens `.ovr` and `.msk` by content with any driver it knows: only a TIFF may stand there."""
    for suffix in RASTER_SIDECARS:
        if os.path.lexists(path + suffix) and not is_tiff(read_head(path + suffix)):
            found = describe_content(read_head(path + suffix))
            raise _reject(ErrorKind.FORBIDDEN_DRIVER, f"sidecar {suffix}", found, "a TIFF; repair or remove it")


def _check_size(path: str, dataset: DatasetReader, limits: Limits) -> None:
    if dataset.count == 0:
        raise _reject(ErrorKind.NOT_A_RASTER, "bands", "0", "at least 1")
    if dataset.count > limits.max_bands:
        raise _reject(ErrorKind.TOO_LARGE, "bands", f"{dataset.count}", f"up to {limits.max_bands} (source.max_bands)")
    pixels = dataset.width * dataset.height
    shown = f"{dataset.width} x {dataset.height}"
    if pixels > limits.max_pixels:
        raise _reject(ErrorKind.TOO_LARGE, "size", f"{shown} pixels declared", f"up to {limits.max_pixels} (source.max_pixels)")
    declared = sum(pixels * _item_bytes(dtype) for dtype in dataset.dtypes)
    on_disk = max(1, os.stat(path).st_size)
    if declared > limits.max_expansion * on_disk and declared > 1 << 24:
        raise _reject(
            ErrorKind.TOO_LARGE,
            "size",
            f"{shown} pixels, {declared} bytes declared by a file of {on_disk} bytes",
            f"up to {limits.max_expansion:g} declared bytes for each byte on disk (source.max_expansion)",
        )
    for (rows, columns), dtype in zip(dataset.block_shapes, dataset.dtypes, strict=True):
        together = dataset.count if dataset.interleaving is not None and dataset.interleaving.value == "PIXEL" else 1
        size = rows * columns * _item_bytes(dtype) * together
        if size > _BLOCK_BYTES_MOST:
            raise _reject(
                ErrorKind.TOO_LARGE,
                "block size",
                f"{columns} x {rows} pixels ({size} bytes decoded at once)",
                f"up to {_BLOCK_BYTES_MOST} bytes; rewrite it with smaller tiles",
            )


def _item_bytes(dtype: str) -> int:
    return 8 if dtype.startswith("complex_") else np.dtype(dtype).itemsize


def _place(dataset: DatasetReader) -> tuple[pyproj.CRS, Affine6]:
    transform = dataset.transform
    without = transform == Affine.identity()
    gcps, _ = dataset.gcps
    if (dataset.crs is None or without) and (gcps or dataset.rpcs is not None):
        found = f"{len(gcps)} ground control points" if gcps else "rational polynomials (RPC)"
        raise _reject(ErrorKind.GCPS_ONLY, "georeference", f"{found} only", "a CRS and a geotransform; warp it first (gdalwarp)")
    if dataset.crs is None:
        also = ", and no geotransform" if without else ""
        raise _reject(ErrorKind.NO_CRS, "CRS", f"none{also}", "any CRS that PROJ can transform to WGS 84")
    if without:
        raise _reject(ErrorKind.NO_GEOTRANSFORM, "geotransform", "none", "an affine geotransform, north-up or not")
    if not all(map(math.isfinite, transform[:6])) or abs(transform.determinant) < 1e-300:
        found = f"{[float(value) for value in transform[:6]]}"
        raise _reject(ErrorKind.NO_GEOTRANSFORM, "geotransform", found, "one that can be inverted")
    a, b, c, d, e, f = (float(value) for value in transform[:6])
    return _crs(dataset), (a, b, c, d, e, f)


def _crs(dataset: DatasetReader) -> pyproj.CRS:
    allowed = "a projected or geographic CRS that PROJ can transform to WGS 84"
    try:
        crs = pyproj.CRS.from_user_input(_crs_text(dataset))
        pyproj.Transformer.from_crs(crs, "OGC:CRS84", always_xy=True)
    except pyproj.exceptions.ProjError:
        found = " ".join(str(dataset.crs.to_wkt()).split())[:120]
        raise _reject(ErrorKind.UNSUPPORTED_CRS, "CRS", found, allowed) from None
    if not (crs.is_projected or crs.is_geographic) or crs.is_geocentric:
        raise _reject(ErrorKind.UNSUPPORTED_CRS, "CRS", f"{crs.name!r} ({crs.type_name})", allowed)
    return crs


def _crs_text(dataset: DatasetReader) -> str:
    """An authority code where one says it all, else WKT: what another process needs to make the same CRS."""
    authority = dataset.crs.to_authority(confidence_threshold=100)
    return ":".join(authority) if authority else str(dataset.crs.to_wkt())


def _footprint(crs: pyproj.CRS, transform: Affine6, dataset: DatasetReader) -> str:
    try:
        shape = footprint(crs, transform, width=dataset.width, height=dataset.height)
    except NoFootprintError as error:
        raise _reject(ErrorKind.UNSUPPORTED_CRS, "footprint", str(error), "a raster that lies on the Earth") from None
    return str(shapely.to_wkb(shape, hex=True))


def _band(path: str, dataset: DatasetReader, index: int) -> dict[str, Any]:
    dtype = dataset.dtypes[index - 1]
    field = f"band {index}, dtype"
    if dtype not in SUPPORTED_DTYPES:
        raise _reject(ErrorKind.UNSUPPORTED_DTYPE, field, dtype, ", ".join(SUPPORTED_DTYPES))
    bits = int(dataset.tags(index, ns="IMAGE_STRUCTURE").get("NBITS", "0"))
    if np.dtype(dtype).kind in "iu" and 16 < bits < 32:
        raise _reject(ErrorKind.UNSUPPORTED_DTYPE, field, f"{bits}-bit integers, whose sign is lost", "up to 16 bits, or 32")
    interpretation = dataset.colorinterp[index - 1]
    return {
        "dtype": dtype,
        "nodata": _nodata(path, dataset, index),
        "scale": _finite(dataset.scales[index - 1], 1.0),
        "offset": _finite(dataset.offsets[index - 1], 0.0),
        "mask": _mask(dataset, index).value,
        "is_alpha": interpretation is ColorInterp.alpha,
        "is_palette": interpretation is ColorInterp.palette,
    }


def _finite(value: float, otherwise: float) -> float:
    return float(value) if math.isfinite(value) and (otherwise == 0.0 or value != 0.0) else otherwise


def _nodata(path: str, dataset: DatasetReader, index: int) -> str | None:
    """The nodata value as text that `float` reads (JSON has no NaN), brought to the band's own precision."""
    dtype = np.dtype(dataset.dtypes[index - 1])
    value = dataset.nodatavals[index - 1]
    written = nodata_text(path) if dataset.driver == "GTiff" else None
    if value is None and not written:
        return None
    field = f"band {index}, nodata"
    if written and _number(written) is None:  # GDAL takes words for 0, and would mask every zero
        raise _reject(ErrorKind.NODATA_OUT_OF_RANGE, field, repr(written), f"a number that {dtype} can hold")
    number = float(value) if value is not None else _number(str(written))
    assert number is not None
    found = str(value) if value is not None else str(written)
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        if not math.isfinite(number) or number != int(number) or not bounds.min <= number <= bounds.max:
            allowed = f"a whole number in {bounds.min}..{bounds.max} ({dtype})"
            raise _reject(ErrorKind.NODATA_OUT_OF_RANGE, field, found, allowed)
        return str(int(number)) if value is not None else None
    if dtype == np.float32 and math.isfinite(number):
        largest = float(np.finfo(np.float32).max)
        if abs(number) > largest * (1 + 1e-7):
            raise _reject(ErrorKind.NODATA_OUT_OF_RANGE, field, found, f"a number in -{largest:g}..{largest:g}, or nan ({dtype})")
        number = float(np.float32(math.copysign(min(abs(number), largest), number)))
    return repr(number)


def _number(text: str) -> float | None:
    try:
        return float(_WINDOWS_NUMBERS.get(text.upper(), text))
    except ValueError:
        return None


def _mask(dataset: DatasetReader, index: int) -> MaskSource:
    flags = dataset.mask_flag_enums[index - 1]
    if MaskFlags.nodata in flags:
        return MaskSource.NODATA
    if MaskFlags.alpha in flags:
        return MaskSource.ALPHA
    return MaskSource.PER_DATASET if MaskFlags.per_dataset in flags else MaskSource.NONE


def _check_overviews(dataset: DatasetReader) -> None:
    """A tag may name any file of the machine as this file's overviews; those in the file or in its `.ovr` need no tag."""
    named = dataset.tags(ns="OVERVIEWS").get("OVERVIEW_FILE")
    if named is not None:
        raise _reject(
            ErrorKind.FORBIDDEN_DRIVER, "tag OVERVIEW_FILE", repr(named[:120]), "none; overviews in the file or its .ovr"
        )


def _time_tag(dataset: DatasetReader, name: str) -> str | None:
    for namespace in (None, "IMAGERY"):
        found = dataset.tags(ns=namespace).get(name)
        if found is not None:
            return str(found)[:100]
    return None


def _decode_ends(dataset: DatasetReader) -> None:
    """Decode the first and the last block of each band: a file that was cut short or damaged at an end shows it here."""
    left = _PROBE_BYTES_MOST
    for index in dataset.indexes:
        for window in _end_windows(dataset, index):
            left -= int(window.width * window.height) * _item_bytes(dataset.dtypes[index - 1])
            if left < 0:
                return
            dataset.read(index, window=window)


def _end_windows(dataset: DatasetReader, index: int) -> Iterator[Window]:
    rows, columns = dataset.block_shapes[index - 1]
    yield Window(0, 0, min(columns, dataset.width), min(rows, dataset.height))
    last_column, last_row = (dataset.width - 1) // columns * columns, (dataset.height - 1) // rows * rows
    if (last_column, last_row) != (0, 0):
        yield Window(last_column, last_row, dataset.width - last_column, dataset.height - last_row)
