"""The boxes of a JP2 around a codestream: size, colour, alpha, capture resolution, and what the copy says of itself.

GDAL's OpenJPEG driver writes a fine codestream, but its JP2 boxes leave out the ICC profile and the resolution; so it writes the
codestream alone and the boxes are written here, by ISO/IEC 15444-1, Annex I. Equal values give equal bytes.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

from assets.digitization.icc import profile_facts
from assets.digitization.model import Extra
from resources.errors import ErrorKind, UnitRejected

FACTS_UUID = uuid.uuid5(uuid.NAMESPACE_URL, "https://tilewright.invalid/jp2-facts/1")
"""Names the UUID box in which a copy says what it is made from; readers skip boxes that they do not know."""

_SIGNATURE = b"\r\n\x87\n"
_FACTS_BYTES_MOST = 1 << 20
_SRGB, _GREYSCALE = 16, 17
_OPACITY = {Extra.UNASSOCIATED: 1, Extra.ASSOCIATED: 2, Extra.UNSPECIFIED: 65535}


@dataclass(frozen=True, slots=True)
class Jp2Header:
    """What the header boxes say. `per_metre` are pixels across and down; `icc` empty: sRGB or grey by number of `colours`."""

    width: int
    height: int
    colours: int
    extra: Extra | None
    bits: int
    icc: bytes
    per_metre: tuple[Fraction, Fraction] | None


def write_jp2(
    stream: BinaryIO, header: Jp2Header, facts: Mapping[str, Any], codestream: BinaryIO, *, codestream_bytes: int
) -> None:
    """Write a whole JP2 to `stream`. Raises `OSError`. After a crash: part of a file under a staging name."""
    needs_jpx = bool(header.icc) and not profile_facts(header.icc).is_restricted
    brand, also = (b"jpx ", (b"jpx ", b"jp2 ", b"jpxb")) if needs_jpx else (b"jp2 ", (b"jp2 ",))
    stream.write(_box(b"jP  ", _SIGNATURE))
    stream.write(_box(b"ftyp", brand + struct.pack(">I", 0) + b"".join(also)))
    stream.write(_box(b"jp2h", _header_boxes(header, any_icc=needs_jpx)))
    plain = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    stream.write(_box(b"uuid", FACTS_UUID.bytes + plain))
    if codestream_bytes + 8 < 1 << 32:
        stream.write(struct.pack(">I4s", codestream_bytes + 8, b"jp2c"))
    else:
        stream.write(struct.pack(">I4sQ", 1, b"jp2c", codestream_bytes + 16))
    shutil.copyfileobj(codestream, stream, 1 << 20)


def _header_boxes(header: Jp2Header, *, any_icc: bool) -> bytes:
    components = header.colours + (header.extra is not None)
    boxes = [_box(b"ihdr", struct.pack(">IIHBBBB", header.height, header.width, components, header.bits - 1, 7, 0, 0))]
    if header.icc:
        boxes.append(_box(b"colr", struct.pack(">BBB", 3 if any_icc else 2, 0, 0) + header.icc))
    else:
        boxes.append(_box(b"colr", struct.pack(">BBBI", 1, 0, 0, _GREYSCALE if header.colours == 1 else _SRGB)))
    if header.extra is not None:
        channels = [(place, 0, place + 1) for place in range(header.colours)]
        # an opacity belongs to the whole picture; a channel that says nothing of itself to nothing
        channels.append((header.colours, _OPACITY[header.extra], 65535 if header.extra is Extra.UNSPECIFIED else 0))
        boxes.append(_box(b"cdef", struct.pack(">H", len(channels)) + b"".join(struct.pack(">HHH", *one) for one in channels)))
    if header.per_metre is not None:
        across, down = header.per_metre
        (down_n, down_d, down_e), (across_n, across_d, across_e) = _scaled(down), _scaled(across)
        resolution = struct.pack(">HHHHbb", down_n, down_d, across_n, across_d, down_e, across_e)
        boxes.append(_box(b"res ", _box(b"resc", resolution)))
    return b"".join(boxes)


def _scaled(value: Fraction) -> tuple[int, int, int]:
    """`value` as (numerator, denominator, exponent of ten) of 16, 16 and 8 bits: the nearest of those with small denominators."""
    exponent = 0
    while value >= 65536:
        value, exponent = value / 10, exponent + 1
    candidates = []
    for power in range(exponent, exponent + 4):
        scaled = value / 10 ** (power - exponent)
        near = scaled.limit_denominator(min(65535, max(1, int(65535 / max(scaled, Fraction(1))))))
        if 0 < near.numerator <= 65535:
            candidates.append((abs(near - scaled) * 10 ** (power - exponent), power, near))
    if not candidates:
        return 1, 65535, 0
    _, power, near = min(candidates, key=lambda item: (item[0], item[1]))
    return near.numerator, near.denominator, power


def _box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", len(content) + 8, kind) + content


@dataclass(frozen=True, slots=True)
class Box:
    """A box found in a file: its kind, and where its content lies."""

    kind: str
    offset: int
    size_bytes: int


def boxes_of(path: Path) -> Iterator[Box]:
    """The boxes of a file, in order, those within jp2h and res too. Raises `UnitRejected` (INVALID_OUTPUT) for a broken chain."""
    with open(path, "rb") as stream:
        yield from _walk(stream, 0, os.fstat(stream.fileno()).st_size)


def _walk(stream: BinaryIO, start: int, end: int) -> Iterator[Box]:
    while start < end:
        stream.seek(start)
        lead = stream.read(16)
        if len(lead) < 8:
            raise _broken(start)
        length, kind = struct.unpack_from(">I4s", lead)
        head = 8
        if length == 1 and len(lead) == 16:
            length, head = struct.unpack_from(">Q", lead, 8)[0], 16
        elif length == 0:
            length = end - start
        if length < head or start + length > end:
            raise _broken(start)
        name = kind.decode("latin-1")
        yield Box(name, start + head, length - head)
        if name in ("jp2h", "res "):
            yield from _walk(stream, start + head, start + length)
        start += length


def read_facts(path: Path) -> dict[str, Any] | None:
    """What a copy says of itself; None for a JP2 of another hand. Raises `OSError`, and `UnitRejected` (INVALID_OUTPUT)."""
    for box in boxes_of(path):
        if box.kind != "uuid" or not 16 <= box.size_bytes <= _FACTS_BYTES_MOST:
            continue
        content = read_box(path, box)
        if content[:16] == FACTS_UUID.bytes:
            try:
                found = json.loads(content[16:])
            except ValueError as error:
                raise UnitRejected(f"facts of the copy: cannot be read: {error}", kind=ErrorKind.INVALID_OUTPUT) from error
            return found if isinstance(found, dict) else None
    return None


def read_box(path: Path, box: Box) -> bytes:
    """The content of a box. Raises `OSError`."""
    with open(path, "rb") as stream:
        stream.seek(box.offset)
        return stream.read(box.size_bytes)


def _broken(offset: int) -> UnitRejected:
    return UnitRejected(f"boxes: the chain breaks at byte {offset}", kind=ErrorKind.INVALID_OUTPUT)
