"""What a master is, from its bytes and never from its name: format, pages, colour, resolution, who captured it with what.

Judges only what can be told without decoding; whether its pixels can be carried into a copy is the derivation's to say.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from typing import BinaryIO

from assets.digitization.model import Extra, MasterFacts, PageFacts, Photometric, SampleKind
from assets.digitization.tiff_directory import Directory, TiffFile
from resources.errors import ErrorKind, UnitRejected
from resources.gdal_safety import HEAD_BYTES, describe_content, is_tiff

IDENTIFICATION_VERSION = "1"
"""Raise it when `identify` finds more in a file, or judges otherwise."""

_EXIF = 34665
_ICC = 34675
_PHOTOMETRIC = {
    0: Photometric.MIN_IS_WHITE,
    1: Photometric.MIN_IS_BLACK,
    2: Photometric.RGB,
    3: Photometric.PALETTE,
    4: Photometric.MASK,
    5: Photometric.SEPARATED,
    6: Photometric.YCBCR,
    8: Photometric.CIELAB,
    9: Photometric.ICCLAB,
    10: Photometric.ITULAB,
}
_KINDS = {1: SampleKind.UNSIGNED, 2: SampleKind.SIGNED, 3: SampleKind.FLOAT, 4: SampleKind.UNSIGNED}
_EXTRAS = {0: Extra.UNSPECIFIED, 1: Extra.ASSOCIATED, 2: Extra.UNASSOCIATED}
_COMPRESSION = {
    1: "none", 2: "ccitt_rle", 3: "ccitt_g3", 4: "ccitt_g4", 5: "lzw", 6: "old_jpeg", 7: "jpeg", 8: "deflate", 32773: "packbits",
    32809: "thunderscan", 32946: "deflate", 34712: "jpeg2000", 34925: "lzma", 50000: "zstd", 50001: "webp",
}  # fmt: skip
_COLOURS = {
    Photometric.MIN_IS_WHITE: 1, Photometric.MIN_IS_BLACK: 1, Photometric.PALETTE: 1, Photometric.MASK: 1, Photometric.RGB: 3,
    Photometric.YCBCR: 3, Photometric.CIELAB: 3, Photometric.ICCLAB: 3, Photometric.ITULAB: 3, Photometric.SEPARATED: 4,
}  # fmt: skip
_CAPTURE = {
    270: "description", 271: "make", 272: "model", 305: "software", 306: "date_time", 315: "artist", 316: "host_computer",
    33432: "copyright", 269: "document_name", 285: "page_name",
}  # fmt: skip
_CAPTURE_EXIF = {36867: "date_time_original", 36868: "date_time_digitized", 42036: "lens_model", 42033: "body_serial_number"}
_CAPTURE_EXIF_NUMBERS = {33434: "exposure_time_s", 33437: "f_number", 37386: "focal_length_mm"}
_TEXT_MOST = 500


@dataclass(frozen=True, slots=True)
class MasterLimits:
    """What a master may declare. `max_pixels` is width x height of one page; `max_pages` pages of one file."""

    max_pixels: int = 4_000_000_000
    max_pages: int = 2_000
    max_expansion: float = 5_000.0


DEFAULT_LIMITS = MasterLimits()


def identify(stream: BinaryIO, limits: MasterLimits) -> MasterFacts:
    """The facts of the master in a seekable `stream`; what makes it unreadable is told in them, not raised.

    Reads its directories and no pixels. Raises `OSError` when the system cannot read it (whether to retry is the caller's table
    to say).
    """
    try:
        head = stream.read(HEAD_BYTES)
        if not is_tiff(head):
            found = describe_content(head)
            kind = ErrorKind.NOT_A_RASTER if head else ErrorKind.EMPTY_FILE
            return MasterFacts(found, fault_kind=kind, fault=f"content: found {found}; allowed: a TIFF")
        return _tiff(stream, limits)
    except UnitRejected as error:
        return MasterFacts("TIFF", fault_kind=error.kind, fault=error.message)


def _tiff(stream: BinaryIO, limits: MasterLimits) -> MasterFacts:
    tiff = TiffFile(stream)
    directories = tiff.pages(pages_most=limits.max_pages)
    pages, reduced = [], 0
    for place, directory in enumerate(directories, start=1):
        if directory.number(254, 0) == 1 and place > 1:
            reduced += 1  # a smaller rendition of a page that is there whole
            continue
        page = _page(directory, place)
        _check_declared(page, directory, tiff.size_bytes, limits)
        pages.append(page)
    return MasterFacts("BigTIFF" if tiff.is_big else "TIFF", tuple(pages), reduced, capture=_capture(tiff, directories[0]))


def _page(directory: Directory, place: int) -> PageFacts:
    width, height = directory.number(256), directory.number(257)
    if not width or not height:
        raise UnitRejected(f"page {place}: size: found {width} x {height}; allowed: 1 x 1 or more", kind=ErrorKind.CORRUPT_INPUT)
    compression = directory.number(259, 1) or 1
    meaning = directory.number(262)
    photometric = Photometric.OTHER if meaning is None else _PHOTOMETRIC.get(meaning, Photometric.OTHER)
    bits = directory.numbers(258) or (1,)
    if len(set(bits)) > 1:
        raise UnitRejected(
            f"page {place}: bits of a sample: found {list(bits)}; allowed: the same for all", kind=ErrorKind.UNSUPPORTED_DTYPE
        )
    # old-style JPEG may leave the number of samples out (TIFF technical note 2)
    samples = directory.number(277) or (_COLOURS.get(photometric, 1) if compression == 6 else 1)
    kinds = {_KINDS.get(number, SampleKind.OTHER) for number in directory.numbers(339) or (1,)}
    orientation = directory.number(274, 1) or 1
    icc = directory.raw(_ICC)
    return PageFacts(
        directory=place,
        width=width,
        height=height,
        samples=samples,
        bits=bits[0],
        sample_kind=kinds.pop() if len(kinds) == 1 else SampleKind.OTHER,
        photometric=photometric,
        compression=_COMPRESSION.get(compression, f"scheme {compression}"),
        is_planar=directory.number(284, 1) == 2,
        orientation=orientation if 1 <= orientation <= 8 else 1,
        extras=_extras(directory, samples, photometric),
        icc_sha256=hashlib.sha256(icc).hexdigest() if icc else None,
        resolution=_resolution(directory),
        ink_set=(directory.number(332, 1) or 1) if photometric is Photometric.SEPARATED else 1,
    )


def _extras(directory: Directory, samples: int, photometric: Photometric) -> tuple[Extra, ...]:
    count = max(0, samples - _COLOURS.get(photometric, samples))
    declared = [_EXTRAS.get(number, Extra.UNSPECIFIED) for number in directory.numbers(338)]
    return tuple((declared + [Extra.UNSPECIFIED] * count)[:count])


def _resolution(directory: Directory) -> tuple[str, str] | None:
    across, down = directory.fraction(282), directory.fraction(283)
    # the unit is the inch where no tag says otherwise (TIFF 6.0, page 38)
    metre = {2: Fraction(10_000, 254), 3: Fraction(100)}.get(directory.number(296, 2) or 2)
    if across is None or down is None or metre is None or across <= 0 or down <= 0:
        return None
    return str(across * metre), str(down * metre)


def _check_declared(page: PageFacts, directory: Directory, size_bytes: int, limits: MasterLimits) -> None:
    """Bounds on what is declared, and that every strip or tile lies within the file: GDAL reads a missing one as zeros."""
    place = page.directory
    if page.width * page.height > limits.max_pixels:
        raise UnitRejected(
            f"page {place}: size: found {page.width} x {page.height} pixels; allowed: {limits.max_pixels} (limits.max_pixels)",
            kind=ErrorKind.TOO_LARGE,
        )
    declared = page.width * page.height * page.samples * page.bits / 8
    if declared > limits.max_expansion * max(size_bytes, 1):
        raise UnitRejected(
            f"page {place}: size: found {declared:.0f} bytes declared by a file of {size_bytes}; "
            f"allowed: {limits.max_expansion:g} times (limits.max_expansion)",
            kind=ErrorKind.TOO_LARGE,
        )
    offsets, counts = directory.numbers(273) or directory.numbers(324), directory.numbers(279) or directory.numbers(325)
    if not offsets and page.compression == "old_jpeg":
        return  # its data may lie in one interchange stream that other tags name
    if not offsets:
        raise UnitRejected(f"page {place}: pixels: found no strips or tiles; allowed: at least one", kind=ErrorKind.CORRUPT_INPUT)
    for offset, count in zip(offsets, counts, strict=False):
        if offset + count > size_bytes or (count == 0 or offset == 0):
            raise UnitRejected(
                f"page {place}: pixels: found a strip or tile of {count} bytes at {offset}; the file ends at {size_bytes}: "
                "it was cut short, or its pixels were never written",
                kind=ErrorKind.CORRUPT_INPUT,
            )
    # chroma may be subsampled, at most to a sixteenth
    least = declared / 3 if page.photometric is Photometric.YCBCR else declared
    if page.compression == "none" and counts and sum(counts) < least:
        raise UnitRejected(
            f"page {place}: pixels: found {sum(counts)} bytes; allowed: at least {least:.0f}", kind=ErrorKind.CORRUPT_INPUT
        )


def _capture(tiff: TiffFile, directory: Directory) -> dict[str, str]:
    """Who captured the page, when and with what. A broken EXIF directory takes nothing from the master: it is left out."""
    found = {name: text for tag, name in _CAPTURE.items() if (text := directory.text(tag))}
    exif_at = directory.number(_EXIF)
    if exif_at:
        try:
            exif, _ = tiff.directory(exif_at)
            found |= {name: text for tag, name in _CAPTURE_EXIF.items() if (text := exif.text(tag))}
            found |= {
                name: str(value) for tag, name in _CAPTURE_EXIF_NUMBERS.items() if (value := exif.fraction(tag)) is not None
            }
            iso = exif.number(34855)
            if iso is not None:
                found["iso_speed"] = str(iso)
        except UnitRejected:
            pass
    return {name: text[:_TEXT_MOST].replace("\0", "") for name, text in sorted(found.items())}


def icc_of(directory: Directory) -> bytes:
    """The ICC profile of a page; empty when it has none."""
    return directory.raw(_ICC)


def palette_of(directory: Directory) -> tuple[int, ...]:
    """The colour map of a palette page as the TIFF has it: all reds, all greens, all blues, 16 bits each."""
    return directory.numbers(320)
