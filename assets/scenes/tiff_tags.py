"""The nodata text of a TIFF as it is written, which GDAL drops without a word when it does not fit the pixels.

Reads the first directory of classic and Big TIFF by the TIFF 6.0 and BigTIFF layouts, a few bytes at a time, and nothing else.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

_GDAL_NODATA = 42113
_ASCII = 2
_TEXT_MOST = 256
_ENTRIES_MOST = 4096


def nodata_text(path: Path | str) -> str | None:
    """Text of the GDAL_NODATA tag of the first page; None when there is none, or the file is no TIFF. Raises `OSError`."""
    with open(path, "rb") as stream:
        try:
            return _nodata_text(stream)
        except (struct.error, ValueError):
            return None


def _nodata_text(stream: BinaryIO) -> str | None:
    head = stream.read(16)
    order = {b"II": "<", b"MM": ">"}.get(head[:2])
    if order is None or head[2:4] not in (b"*\0", b"\0*", b"+\0", b"\0+"):
        return None
    big = b"+" in head[2:4]
    offset = struct.unpack_from(order + ("Q" if big else "I"), head, 8 if big else 4)[0]
    stream.seek(offset)
    count_size, entry_size, inline = (8, 20, 8) if big else (2, 12, 4)
    count = struct.unpack(order + ("Q" if big else "H"), stream.read(count_size))[0]
    entries = stream.read(min(count, _ENTRIES_MOST) * entry_size)
    for start in range(0, len(entries) - entry_size + 1, entry_size):
        tag, kind, length = struct.unpack_from(order + ("HHQ" if big else "HHI"), entries, start)
        if tag != _GDAL_NODATA or kind != _ASCII:
            continue
        value = start + (12 if big else 8)
        if length <= inline:
            text = entries[value : value + length]
        else:
            stream.seek(struct.unpack_from(order + ("Q" if big else "I"), entries, value)[0])
            text = stream.read(min(length, _TEXT_MOST))
        return text.split(b"\0")[0].decode("ascii", "replace").strip()
    return None
