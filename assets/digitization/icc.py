"""ICC profiles: what one is for, whether a JP2 may carry it as it is, and CMYK to RGB through one.

Reads the header and the tag table (ICC.1:2022, 7.2 and 7.3) and leaves colour itself to LittleCMS.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

from resources.errors import ErrorKind, UnitRejected

_HEADER_BYTES = 128
_TAGS_MOST = 512


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """`space` is what it describes (GRAY, RGB, CMYK, ...); `is_restricted`: any JP2 reader can use it (ISO 15444-1, I.5.3.3)."""

    space: str
    device: str
    is_restricted: bool


def profile_facts(icc: bytes) -> ProfileFacts:
    """What a profile says of itself. Raises `UnitRejected` (CORRUPT_INPUT, no retry) for bytes that are no profile."""
    if len(icc) < _HEADER_BYTES + 4 or icc[36:40] != b"acsp" or int.from_bytes(icc[:4], "big") > len(icc):
        raise UnitRejected(
            f"ICC profile: found {len(icc)} bytes that are no profile; allowed: a whole profile, or none",
            kind=ErrorKind.CORRUPT_INPUT,
        )
    count = min(int.from_bytes(icc[128:132], "big"), _TAGS_MOST)
    tags = {icc[132 + 12 * place : 136 + 12 * place] for place in range(count)}
    space = icc[16:20].decode("ascii", "replace").strip()
    wanted = {"GRAY": {b"kTRC"}, "RGB": {b"rXYZ", b"gXYZ", b"bXYZ", b"rTRC", b"gTRC", b"bTRC"}}.get(space)
    is_matrix = wanted is not None and wanted <= tags and b"A2B0" not in tags
    device = icc[12:16].decode("ascii", "replace").strip()
    return ProfileFacts(space, device, is_restricted=is_matrix and device in ("scnr", "mntr") and icc[20:24] == b"XYZ ")


Convert = Callable[[NDArray[np.uint8]], NDArray[np.uint8]]


def cmyk_to_srgb(icc: bytes) -> Convert:
    """A function from CMYK to sRGB pixels, `(4, y, x)` to `(3, y, x)`: relative colorimetric, with black point compensation.

    Raises `UnitRejected` (UNSUPPORTED_COLOUR, no retry) when LittleCMS cannot use the profile so.
    """
    try:
        transform = ImageCms.buildTransform(
            ImageCms.ImageCmsProfile(io.BytesIO(icc)),
            ImageCms.createProfile("sRGB"),
            "CMYK",
            "RGB",
            renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
            flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
        )
    except (ImageCms.PyCMSError, OSError, ValueError) as error:
        raise UnitRejected(
            f"ICC profile: CMYK cannot be converted through it ({error}); allowed: a CMYK profile that LittleCMS reads",
            kind=ErrorKind.UNSUPPORTED_COLOUR,
        ) from error

    def convert(inks: NDArray[np.uint8]) -> NDArray[np.uint8]:
        _, height, width = inks.shape
        pixels = np.ascontiguousarray(np.moveaxis(inks, 0, 2))
        image = Image.frombuffer("CMYK", (width, height), pixels.tobytes(), "raw", "CMYK", 0, 1)
        out = ImageCms.applyTransform(image, transform)
        assert out is not None
        return np.moveaxis(np.asarray(out, dtype=np.uint8), 2, 0)

    return convert
