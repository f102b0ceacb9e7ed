"""Masters made for tests: TIFFs of every kind a scanner or a camera leaves, written by tifffile, which shares no code with us."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import ImageCms

from assets.digitization.identification import DEFAULT_LIMITS, MasterLimits, identify
from assets.digitization.model import MasterFacts


def picture(height: int = 60, width: int = 90, *, bands: int = 3, bits: int = 8, seed: int = 1) -> NDArray[Any]:
    """A picture `(y, x)` or `(y, x, band)`: slopes with a little noise, so that it neither compresses to nothing nor is noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    most = (1 << bits) - 1
    layers = [(x * (k + 2) + y * 3 + rng.integers(0, 3, (height, width))) * most // 600 % (most + 1) for k in range(bands)]
    values = np.stack(layers, axis=2).astype(np.uint8 if bits <= 8 else np.uint16)
    return values[:, :, 0] if bands == 1 else values


def write_master(path: Path, pixels: NDArray[Any], **options: Any) -> Path:
    """Write one page; `options` are tifffile's. 300 pixels an inch unless said otherwise."""
    options.setdefault("resolution", (300, 300))
    options.setdefault("resolutionunit", "INCH")
    options.setdefault("photometric", "rgb" if pixels.ndim == 3 and pixels.shape[2] >= 3 else "minisblack")
    options.setdefault("metadata", None)
    options.setdefault("software", "test scanner")
    tifffile.imwrite(path, pixels, **options)
    return path


def write_pages(path: Path, pages: Sequence[NDArray[Any]]) -> Path:
    """Write a container with several pages."""
    with tifffile.TiffWriter(path) as tiff:
        for page in pages:
            tiff.write(
                page,
                photometric="rgb" if page.ndim == 3 else "minisblack",
                metadata=None,
                resolution=(300, 300),
                contiguous=False,
            )
    return path


def srgb_profile() -> bytes:
    """An RGB profile for displays, by LittleCMS."""
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def cmyk_profile() -> bytes:
    """A small CMYK printer profile (ICC.1:2001-04, lut8): 2 grid points an ink, lightness falling with ink, hues by ink."""
    grid = 2
    table = bytearray()
    for cyan in (0.0, 1.0):
        for magenta in (0.0, 1.0):
            for yellow in (0.0, 1.0):
                for black in (0.0, 1.0):
                    light = max(0.0, 1 - 0.3 * cyan - 0.35 * magenta - 0.1 * yellow) * (1 - black)
                    a = (0.5 + (0.25 * magenta - 0.2 * cyan) * (1 - black)) * 255
                    b = (0.5 + (0.35 * yellow - 0.2 * cyan) * (1 - black)) * 255
                    table += bytes([round(light * 255), round(a), round(b)])
    identity = b"".join(struct.pack(">i", 65536 if row == column else 0) for row in range(3) for column in range(3))
    ramp = bytes(range(256))
    lut = b"mft1" + bytes(4) + bytes([4, 3, grid, 0]) + identity + ramp * 4 + bytes(table) + ramp * 3
    description = b"desc" + bytes(4) + struct.pack(">I", 5) + b"test\0" + bytes(8 + 3 + 67)
    white = b"XYZ " + bytes(4) + struct.pack(">3i", 63190, 65536, 54061)
    text = b"text" + bytes(4) + b"none\0"
    parts = {b"desc": description, b"cprt": text, b"wtpt": white, b"A2B0": lut}
    offset = 128 + 4 + 12 * len(parts)
    entries, body = b"", b""
    for name, content in parts.items():
        padded = content + bytes(-len(content) % 4)
        entries += name + struct.pack(">II", offset + len(body), len(content))
        body += padded
    size = offset + len(body)
    head = struct.pack(">I4sI4s4s4s", size, b"lcms", 0x02400000, b"prtr", b"CMYK", b"Lab ") + struct.pack(
        ">6H", 2024, 1, 1, 0, 0, 0
    )
    head += b"acsp" + bytes(28) + struct.pack(">3i", 63190, 65536, 54061)
    return head.ljust(128, b"\0") + struct.pack(">I", len(parts)) + entries + body


def identified(path: Path, limits: MasterLimits = DEFAULT_LIMITS) -> MasterFacts:
    """What a file is taken for."""
    with path.open("rb") as stream:
        return identify(stream, limits)
