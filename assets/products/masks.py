"""Masks from QA bands: which pixels of a scene are left out.

QA bands are bit fields: a bit is tested, never the whole number. They are read nearest and at full resolution, because an
averaged bit field means nothing. A pixel that the QA band does not cover, or marks as nodata, is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resources.config_scenes import MaskConfig
from resources.errors import ErrorKind, UnitRejected


def masked_out(mask: MaskConfig, quality: NDArray[Any], dtype: str) -> NDArray[np.bool_]:
    """Where `quality` `(y, x)`, NaN where absent, says that a pixel is to be left out: any of the bits set, or any of the values.

    `dtype` is the band's own, so that the bits of a negative number are those that were stored. Raises `UnitRejected`
    (CONTRACT_VIOLATED, no retry) when the band is not of whole numbers or a bit lies beyond its width.
    """
    kind = np.dtype(dtype)
    if kind.kind not in "iu":
        raise UnitRejected(
            f"mask band {mask.band!r}: found dtype {dtype}; allowed: whole numbers", kind=ErrorKind.CONTRACT_VIOLATED
        )
    width = kind.itemsize * 8
    if any(bit >= width for bit in mask.bits):
        raise UnitRejected(
            f"mask band {mask.band!r}: bits {list(mask.bits)} of dtype {dtype}; allowed: 0..{width - 1}",
            kind=ErrorKind.CONTRACT_VIOLATED,
        )
    absent = np.isnan(quality)
    whole = np.where(absent, 0, quality).astype(np.int64)
    wanted = sum(1 << bit for bit in set(mask.bits))
    # as two's complement, so that bit 63 is a number int64 can hold
    hit = (whole & np.int64(wanted - (1 << 64) if wanted >= 1 << 63 else wanted)) != 0
    if mask.values:
        hit |= np.isin(whole, np.array(mask.values, dtype=np.int64))
    result: NDArray[np.bool_] = absent | hit
    return result
