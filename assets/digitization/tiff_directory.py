"""The directories of a TIFF as they are written: every page's tags, read without decoding a pixel.

Reads classic and Big TIFF by the TIFF 6.0 and BigTIFF layouts. Every count and offset of a master comes from outside, so each is
checked against the file's size and a bound before anything is read for it; nothing a file declares makes this take long.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import BinaryIO

from resources.errors import ErrorKind, UnitRejected

Value = tuple[int, ...] | tuple[float, ...] | tuple[Fraction, ...] | str | bytes

ENTRIES_MOST = 4_096
VALUE_BYTES_MOST = 32 << 20
OFFSETS_MOST = 4_000_000

_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_FORMATS = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 11: "f", 12: "d", 13: "I", 16: "Q", 17: "q", 18: "Q"}


@dataclass(frozen=True, slots=True)
class Directory:
    """One page: its tags by number, and where it lies in the file."""

    offset: int
    tags: Mapping[int, Value]

    def number(self, tag: int, default: int | None = None) -> int | None:
        """The first number of a tag, or `default` where it is absent or holds none."""
        value = self.tags.get(tag)
        return value[0] if isinstance(value, tuple) and value and isinstance(value[0], int) else default

    def numbers(self, tag: int) -> tuple[int, ...]:
        """All whole numbers of a tag; empty where it is absent."""
        value = self.tags.get(tag)
        return tuple(item for item in value if isinstance(item, int)) if isinstance(value, tuple) else ()

    def fraction(self, tag: int) -> Fraction | None:
        """The first rational of a tag; None where it is absent, or divides by zero."""
        value = self.tags.get(tag)
        return value[0] if isinstance(value, tuple) and value and isinstance(value[0], Fraction) else None

    def text(self, tag: int) -> str | None:
        """The text of a tag, trimmed; None where it is absent or empty."""
        value = self.tags.get(tag)
        return value.strip() or None if isinstance(value, str) else None

    def raw(self, tag: int) -> bytes:
        """The bytes of a tag; empty where it is absent."""
        value = self.tags.get(tag)
        if isinstance(value, tuple) and all(isinstance(item, int) and 0 <= item < 256 for item in value):
            return bytes(item for item in value if isinstance(item, int))
        return value if isinstance(value, bytes) else b""


@dataclass(frozen=True, slots=True)
class _Layout:
    order: str
    is_big: bool

    def unpack(self, kind: str, content: bytes, start: int = 0) -> int:
        return int(struct.unpack_from(self.order + kind, content, start)[0])


class TiffFile:
    """The directories of a TIFF in a seekable stream."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.size_bytes = stream.seek(0, os.SEEK_END)
        self._layout: _Layout | None = None

    @property
    def is_big(self) -> bool:
        """Whether it is a BigTIFF. Only after `pages`."""
        return self._layout is not None and self._layout.is_big

    def pages(self, *, pages_most: int) -> list[Directory]:
        """Every directory of the chain, in its order.

        Raises `UnitRejected` (no retry): NOT_A_RASTER for another format, CORRUPT_INPUT for a chain that leads out of the file or
        back into itself, TOO_LARGE for more than `pages_most` pages.
        """
        head = self._at(0, 16, "header")
        offset = self._first(head)
        found: list[Directory] = []
        seen: set[int] = set()
        while offset:
            if offset in seen:
                raise _corrupt(
                    f"directory {len(found) + 1}: the chain of pages leads back to offset {offset}; what follows is lost"
                )
            if len(found) >= pages_most:
                raise UnitRejected(
                    f"pages: found more than {pages_most}; allowed: {pages_most} (limits.max_pages)", kind=ErrorKind.TOO_LARGE
                )
            seen.add(offset)
            directory, offset = self.directory(offset)
            found.append(directory)
        if not found:
            raise _corrupt("pages: found none; allowed: at least one")
        return found

    def directory(self, offset: int) -> tuple[Directory, int]:
        """The directory at `offset` and the offset of the next one (0: none). Raises `UnitRejected` (CORRUPT_INPUT)."""
        layout = self._layout
        assert layout is not None
        wide, entry, inline = ("Q", 20, 8) if layout.is_big else ("I", 12, 4)
        lead = 8 if layout.is_big else 2
        count = layout.unpack("Q" if layout.is_big else "H", self._at(offset, lead, "directory"))
        if not 0 < count <= ENTRIES_MOST:
            raise _corrupt(f"directory at {offset}: found {count} entries; allowed: 1 to {ENTRIES_MOST}")
        content = self._at(offset + lead, count * entry, "directory")
        tags: dict[int, Value] = {}
        for start in range(0, len(content), entry):
            tag, kind = struct.unpack_from(layout.order + "HH", content, start)
            length = layout.unpack(wide, content, start + 4)
            if kind not in _SIZES:
                continue  # TIFF 6.0: readers skip fields of an unknown type
            size = length * _SIZES[kind]
            place = start + 4 + struct.calcsize(wide)
            if size <= inline:
                tags.setdefault(tag, _value(layout, kind, content[place : place + size]))
            elif size <= (8 * OFFSETS_MOST if tag in STRIP_TAGS else VALUE_BYTES_MOST):
                where = layout.unpack(wide, content, place)
                tags.setdefault(tag, _value(layout, kind, self._at(where, size, f"tag {tag}")))
            else:
                raise _corrupt(f"tag {tag}: found {size} bytes; allowed: {VALUE_BYTES_MOST}")
        # some writers end the file after their last directory: no next page
        tail = self._read(offset + lead + len(content), struct.calcsize(wide))
        return Directory(offset, tags), layout.unpack(wide, tail) if len(tail) == struct.calcsize(wide) else 0

    def _first(self, head: bytes) -> int:
        order = {b"II": "<", b"MM": ">"}.get(head[:2])
        magic = int(struct.unpack_from(order + "H", head, 2)[0]) if order else 0
        if order is None or magic not in (42, 43):
            raise UnitRejected("content: found no TIFF; allowed: a TIFF", kind=ErrorKind.NOT_A_RASTER)
        self._layout = layout = _Layout(order, is_big=magic == 43)
        return layout.unpack("Q", head, 8) if layout.is_big else layout.unpack("I", head, 4)

    def _at(self, offset: int, size: int, what: str) -> bytes:
        if size > self.size_bytes or offset > self.size_bytes - min(size, 8):
            raise _corrupt(f"{what}: lies at {offset} with {size} bytes; the file ends at {self.size_bytes}: it was cut short")
        content = self._read(offset, size)
        if len(content) < min(size, 8) or (what != "header" and len(content) < size):
            raise _corrupt(f"{what}: lies at {offset} with {size} bytes; the file ends at {self.size_bytes}: it was cut short")
        return content

    def _read(self, offset: int, size: int) -> bytes:
        if offset >= self.size_bytes:
            return b""
        self._stream.seek(offset)
        return self._stream.read(size)


STRIP_TAGS = frozenset({273, 279, 324, 325})


def _value(layout: _Layout, kind: int, content: bytes) -> Value:
    if kind == 2:
        return content.split(b"\0")[0].decode("utf-8", "replace")
    if kind == 7:
        return content
    if kind in (5, 10):
        whole = struct.unpack(f"{layout.order}{len(content) // 4}{'I' if kind == 5 else 'i'}", content)
        return tuple(Fraction(top, bottom) for top, bottom in zip(whole[::2], whole[1::2], strict=True) if bottom)
    code = _FORMATS[kind]
    return struct.unpack(f"{layout.order}{len(content) // _SIZES[kind]}{code}", content)


def _corrupt(message: str) -> UnitRejected:
    return UnitRejected(message, kind=ErrorKind.CORRUPT_INPUT)
