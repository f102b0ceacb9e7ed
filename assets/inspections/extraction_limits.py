"""Bombs: streams that inflate to more than memory holds. Found before a PDF library sees them, in bounded memory.

PDFium inflates a stream whole, up to 1 GiB, and says nothing when it drops the rest: a bomb would look like a page without text.
"""

from __future__ import annotations

import base64
import binascii
import mmap
import re
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from resources.errors import ErrorKind, UnitRejected

_STREAM = re.compile(rb"stream(?:\r\n|\n|\r)")
_CHUNK_BYTES = 1 << 16
_ARMOUR = re.compile(rb"/Filter\s*\[?\s*/(ASCIIHexDecode|AHx|ASCII85Decode|A85)\b")
_DICTIONARY_BYTES = 4096
_NO_HEX = re.compile(rb"[^0-9A-Fa-f]")
_NO_85 = re.compile(rb"[^!-uz]")
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
    blocks = _without_armour(content, start)
    head = next(blocks, b"")
    if not _is_deflated(head[:2]):
        return 0
    for block in chain([head], blocks):
        if layers[0].is_over:
            break
        pending = [(0, block)]
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


def _without_armour(content: mmap.mmap, start: int) -> Iterator[bytes]:
    """The bytes of the stream at `start`, to the end of the file, out of ASCIIHex or ASCII85 if that is its outer filter.

    PDF 1.7, 7.4.2 and 7.4.3. Where the text is not of that kind, or is over, so are the bytes.
    """
    before = content[max(0, start - _DICTIONARY_BYTES) : start]
    found = _ARMOUR.search(before, before.rfind(b" obj") + 1)
    kept = b""
    for at in range(start, len(content), _CHUNK_BYTES):
        block = content[at : at + _CHUNK_BYTES]
        if found is None:
            yield block
            continue
        is_hex = found[1] in (b"ASCIIHexDecode", b"AHx")
        text, end, _ = block.partition(b">" if is_hex else b"~")
        kept += (_NO_HEX if is_hex else _NO_85).sub(b"", text)
        plain, kept = _from_hex(kept) if is_hex else _from_85(kept)
        yield plain
        if end:
            return


def _from_hex(text: bytes) -> tuple[bytes, bytes]:
    whole = len(text) // 2 * 2
    return binascii.unhexlify(text[:whole]), text[whole:]


def _from_85(text: bytes) -> tuple[bytes, bytes]:
    """Whole groups, and the beginning of the next one. `z` stands for five `!`; a group beyond 32 bits ends what can be read."""
    text = text.replace(b"z", b"!!!!!")
    whole = len(text) // 5 * 5
    try:
        return base64.a85decode(text[:whole]), text[whole:]
    except ValueError:
        return b"", b""


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
