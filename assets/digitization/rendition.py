"""How the pixels of a page become the pixels of its copy: what is kept as it is, what is converted, and what is refused.

The one place that says which masters can be carried faithfully. Every conversion is a statement that goes into the copy's metrics
and into the preservation event; what is not listed here as carried is rejected, never degraded in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assets.digitization.icc import cmyk_to_srgb, profile_facts
from assets.digitization.identification import icc_of, palette_of
from assets.digitization.model import Extra, PageFacts, Photometric, SampleKind
from assets.digitization.tiff_directory import Directory
from resources.errors import ErrorKind, UnitRejected

Pixels = NDArray[np.uint8] | NDArray[np.uint16]
Convert = Callable[[NDArray[Any]], Pixels]

_GREY = (Photometric.MIN_IS_WHITE, Photometric.MIN_IS_BLACK)
_CARRIED = {
    Photometric.MIN_IS_WHITE: 1, Photometric.MIN_IS_BLACK: 1, Photometric.PALETTE: 1, Photometric.RGB: 3, Photometric.YCBCR: 3,
    Photometric.SEPARATED: 4,
}  # fmt: skip
_ORIENTATIONS = {
    2: "mirrored left to right",
    3: "turned by 180 degrees",
    4: "mirrored top to bottom",
    5: "transposed",
    6: "turned by 90 degrees clockwise",
    7: "transposed across the other diagonal",
    8: "turned by 90 degrees counter-clockwise",
}


@dataclass(frozen=True, slots=True)
class Rendition:
    """What a page becomes. `width` and `height` are the copy's, orientation applied; `bits` of each component.

    `convert` takes source samples `(band, y, x)` and gives components `(band, y, x)`; `icc` is the profile the copy carries.
    """

    width: int
    height: int
    colours: int
    extra: Extra | None
    bits: int
    icc: bytes
    orientation: int
    convert: Convert
    statements: tuple[str, ...]

    @property
    def components(self) -> int:
        """Colours and what comes beside them."""
        return self.colours + (self.extra is not None)

    @property
    def dtype(self) -> str:
        """Numpy name of a component's type in memory."""
        return "uint8" if self.bits <= 8 else "uint16"

    @property
    def size_bytes(self) -> int:
        """Bytes of the decoded pixels."""
        return self.width * self.height * self.components * (1 if self.bits <= 8 else 2)


def plan_rendition(page: PageFacts, directory: Directory, *, cmyk_profile: bytes = b"") -> Rendition:
    """How a page is carried. `cmyk_profile` stands for a CMYK page that has none of its own.

    Raises `UnitRejected` (UNSUPPORTED_DTYPE, UNSUPPORTED_COLOUR, CORRUPT_INPUT; no retry) saying what was found and is allowed.
    """
    _check_samples(page)
    icc = icc_of(directory)
    statements = [] if page.orientation == 1 else [f"orientation {page.orientation} applied: {_ORIENTATIONS[page.orientation]}"]
    colours, bits, convert, said = _colours(page, directory, icc, cmyk_profile)
    statements += said
    if page.photometric is Photometric.SEPARATED:
        icc = b""  # the copy is sRGB now
    elif icc:
        _check_space(page, icc, colours)
    else:
        statements.append("no ICC profile in the master: the copy says " + ("grey" if colours == 1 else "sRGB"))
    if page.resolution is None:
        statements.append("no absolute resolution in the master: none in the copy")
    turned = page.orientation >= 5
    return Rendition(
        width=page.height if turned else page.width,
        height=page.width if turned else page.height,
        colours=colours,
        extra=page.extras[0] if page.extras else None,
        bits=bits,
        icc=icc,
        orientation=page.orientation,
        convert=convert,
        statements=tuple(statements),
    )


def _check_samples(page: PageFacts) -> None:
    if page.sample_kind is not SampleKind.UNSIGNED:
        raise _refused(
            "samples", f"{page.bits}-bit {page.sample_kind} numbers", "unsigned whole numbers", ErrorKind.UNSUPPORTED_DTYPE
        )
    if page.photometric not in _CARRIED:
        raise _refused("colour", str(page.photometric), ", ".join(_CARRIED), ErrorKind.UNSUPPORTED_COLOUR)
    if len(page.extras) > 1:
        raise _refused("samples", f"{len(page.extras)} beside the colours", "one (alpha)", ErrorKind.UNSUPPORTED_COLOUR)
    colours = page.samples - len(page.extras)
    wanted = _CARRIED[page.photometric]
    if colours != wanted:
        raise _refused("samples", f"{colours} for {page.photometric}", str(wanted), ErrorKind.UNSUPPORTED_COLOUR)


def _colours(page: PageFacts, directory: Directory, icc: bytes, cmyk_profile: bytes) -> tuple[int, int, Convert, list[str]]:
    """Number of colours, bits of each, the conversion, and what to say of it."""
    if page.photometric in _GREY:
        bits, convert, said = _grey(page)
        return 1, bits, convert, said
    if page.photometric is Photometric.RGB:
        _allow_bits(page, (8, *range(9, 17)))
        return 3, page.bits, _as_is, []
    if page.photometric is Photometric.YCBCR:
        _allow_bits(page, (8,))
        if page.is_planar:
            raise _refused("planes", "YCbCr in separate planes", "interleaved", ErrorKind.UNSUPPORTED_COLOUR)
        return 3, 8, _as_is, ["YCbCr decoded to RGB"]
    if page.photometric is Photometric.PALETTE:
        _allow_bits(page, (1, 2, 4, 8))
        table = _palette(page, palette_of(directory))
        return 3, 8 * table.dtype.itemsize, _expand(table), [f"palette of {table.shape[1]} colours expanded to RGB"]
    whose = "the master's own ICC profile" if icc else "the configured CMYK profile"
    return 3, 8, _from_cmyk(page, icc or cmyk_profile), [f"CMYK converted to sRGB through {whose}"]


def _grey(page: PageFacts) -> tuple[int, Convert, list[str]]:
    _allow_bits(page, (1, 2, 4, *range(8, 17)))
    most = (1 << page.bits) - 1
    inverts = page.photometric is Photometric.MIN_IS_WHITE
    step = 255 // most if page.bits < 8 else 1  # 255, 85, 17: exact

    def convert(samples: NDArray[Any]) -> Pixels:
        grey = samples[:1]
        if inverts:
            grey = most - grey
        if step > 1:
            grey = (grey * step).astype(np.uint8)
        return np.concatenate([grey, samples[1:]]).astype(samples.dtype)

    said = ["white is 0 in the master: inverted"] if inverts else []
    if page.bits == 1:
        said.append("bitonal carried as 8-bit grey: 0 and 255")
    elif step > 1:
        said.append(f"{page.bits}-bit grey carried as 8 bits, times {step}")
    if step > 1 and page.extras:
        raise _refused("samples", f"alpha of {page.bits} bits", "alpha of 8 to 16 bits", ErrorKind.UNSUPPORTED_DTYPE)
    return max(page.bits, 8), convert, said


def _palette(page: PageFacts, written: tuple[int, ...]) -> Pixels:
    """The colour map as `(3, index)`, in 8 bits where its 16-bit numbers say no more than that."""
    count = 1 << page.bits
    if len(written) < 3 * count:
        raise UnitRejected(
            f"page {page.directory}: colour map: found {len(written)} numbers; allowed: {3 * count}", kind=ErrorKind.CORRUPT_INPUT
        )
    table = np.array(written[: 3 * count], dtype=np.uint16).reshape(3, count)
    if (table < 256).all():
        return table.astype(np.uint8)  # a writer that forgot to scale them; libtiff takes them so too
    if (table & 0xFF == 0).all() or (table % 257 == 0).all():
        return (table >> 8).astype(np.uint8)
    return table


def _expand(table: Pixels) -> Convert:
    def convert(samples: NDArray[Any]) -> Pixels:
        colours = table[:, samples[0]]
        extra = samples[1:].astype(table.dtype) * (257 if table.dtype == np.uint16 else 1)
        return np.concatenate([colours, extra.astype(table.dtype)])

    return convert


def _from_cmyk(page: PageFacts, icc: bytes) -> Convert:
    allowed = "8-bit CMYK with an ICC profile, its own or the configured one (derivative.cmyk_profile)"
    if page.bits != 8:
        raise _refused("colour", f"{page.bits}-bit CMYK", allowed, ErrorKind.UNSUPPORTED_COLOUR)
    if page.ink_set != 1 or page.extras:
        raise _refused("colour", "inks that are not CMYK alone", allowed, ErrorKind.UNSUPPORTED_COLOUR)
    if not icc:
        raise _refused(
            "colour", "CMYK without an ICC profile, which says nothing of its colours", allowed, ErrorKind.UNSUPPORTED_COLOUR
        )
    found = profile_facts(icc)
    if found.space != "CMYK":
        raise _refused("ICC profile", f"one for {found.space} in a CMYK page", "one for CMYK", ErrorKind.UNSUPPORTED_COLOUR)
    return cmyk_to_srgb(icc)


def _check_space(page: PageFacts, icc: bytes, colours: int) -> None:
    found, wanted = profile_facts(icc).space, "GRAY" if colours == 1 else "RGB"
    if found != wanted:
        raise _refused(
            "ICC profile", f"one for {found} in a page of {page.photometric}", f"one for {wanted}", ErrorKind.UNSUPPORTED_COLOUR
        )


def _allow_bits(page: PageFacts, allowed: tuple[int, ...]) -> None:
    if page.bits not in allowed:
        raise _refused("bits of a sample", f"{page.bits} for {page.photometric}", f"{list(allowed)}", ErrorKind.UNSUPPORTED_DTYPE)


def _refused(field: str, found: str, allowed: str, kind: ErrorKind) -> UnitRejected:
    return UnitRejected(f"{field}: found {found}; allowed: {allowed}: it cannot be carried faithfully", kind=kind)


def _as_is(samples: NDArray[Any]) -> Pixels:
    return samples


def oriented(pixels: Pixels, orientation: int) -> Pixels:
    """Pixels `(band, y, x)` turned so that row 0 is the top and column 0 the left of the picture (TIFF 6.0, tag 274)."""
    if orientation >= 5:
        pixels = np.swapaxes(pixels, 1, 2)
        orientation = {5: 1, 6: 2, 7: 3, 8: 4}[orientation]
    if orientation in (3, 4):
        pixels = pixels[:, ::-1, :]
    if orientation in (2, 3):
        pixels = pixels[:, :, ::-1]
    return pixels


def oriented_place(row: int, column: int, shape: tuple[int, int], *, page: PageFacts) -> tuple[int, int]:
    """Where a window `shape` (height, width) at `row`, `column` of the page's samples begins in the oriented picture."""
    height, width = shape
    full_height, full_width = page.height, page.width
    orientation = page.orientation
    if orientation >= 5:
        row, column, height, width = column, row, width, height
        full_height, full_width = full_width, full_height
        orientation = {5: 1, 6: 2, 7: 3, 8: 4}[orientation]
    if orientation in (3, 4):
        row = full_height - row - height
    if orientation in (2, 3):
        column = full_width - column - width
    return row, column
