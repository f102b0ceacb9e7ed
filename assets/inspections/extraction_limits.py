"""Bombs: streams that inflate to more than memory holds. Found before a PDF library sees them, in bounded memory.

PDFium inflates a stream whole, up to 1 GiB, and says nothing when it drops the rest: a bomb would look like a page without text.
"""

from __future__ import annotations

import mmap
import re
import zlib
from pathlib import Path

from resources.errors import ErrorKind, UnitRejected

_STREAM = re.compile(rb"stream(?:\r\n|\n|\r)")
_CHUNK_BYTES = 1 << 16
_DEPTH_MAX = 8
"""Filters may be stacked: each layer of a bomb in a bomb inflates a thousandfold."""


def check_streams(path: Path, *, stream_bytes_max: int) -> None:
    """Raises `UnitRejected` (TOO_LARGE) when a deflated stream of the file inflates to more than `stream_bytes_max` bytes."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for found in _STREAM.finditer(content):
                if content[found.start() - 3 : found.start()] == b"end":
                    continue
                inflated = _inflated(content, found.end(), most=stream_bytes_max)
                if inflated > stream_bytes_max:
                    raise UnitRejected(
                        f"a stream at byte {found.start():,} inflates to more than {stream_bytes_max:,} bytes, the limit of "
                        "extraction.max_stream_mb; have the report delivered without it",
                        kind=ErrorKind.TOO_LARGE,
                    )


def _inflated(content: mmap.mmap, start: int, *, most: int) -> int:
    """Bytes of the largest layer of the stream at `start`, counted until `most` is exceeded. 0 for one that is not deflated."""
    layers: list[_Layer] = [_Layer()]
    if not _is_deflated(content[start : start + 2]):
        return 0
    at = start
    while not layers[0].is_over and at < len(content):
        pending = [(0, content[at : at + _CHUNK_BYTES])]
        at += _CHUNK_BYTES
        while pending:
            depth, block = pending.pop()
            layer = layers[depth]
            out, rest = layer.inflate(block)
            if layer.size > most:
                return layer.size
            if rest:
                pending.append((depth, rest))
            if not out:
                continue
            if layer.size == len(out) and depth + 1 < _DEPTH_MAX and _is_deflated(out[:2]):
                layers.append(_Layer())
            if depth + 1 < len(layers):
                pending.append((depth + 1, out))
    return max(layer.size for layer in layers)


def _is_deflated(head: bytes) -> bool:
    """RFC 1950: method 8, and a check of both bytes."""
    return len(head) == 2 and head[0] & 0x0F == 8 and (head[0] << 8 | head[1]) % 31 == 0


class _Layer:
    """One layer of deflation: what came out of it so far."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj()
        self.size = 0
        self.is_over = False

    def inflate(self, block: bytes) -> tuple[bytes, bytes]:
        """At most a chunk of what `block` inflates to, and what of it is still to be inflated."""
        if self.is_over:
            return b"", b""
        try:
            out = self._inflater.decompress(block, _CHUNK_BYTES)
        except zlib.error:
            # broken: the PDF library says so
            self.is_over = True
            return b"", b""
        self.size += len(out)
        self.is_over = self._inflater.eof
        return out, b"" if self.is_over else self._inflater.unconsumed_tail
