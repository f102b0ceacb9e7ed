"""What a master is, told by its bytes: format, pages, colour, resolution, capture metadata; and what cannot be read at all."""

from __future__ import annotations

import json
import struct
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import tifffile

from assets.digitization.identification import MasterLimits
from assets.digitization.model import Extra, MasterFacts, Photometric, SampleKind
from resources.errors import ErrorKind
from tests.support.masters import identified, picture, srgb_profile, write_master, write_pages

LIMITS = MasterLimits()


def test_a_photograph_is_described_by_its_tags(tmp_path: Path) -> None:
    """Size, samples, bits, colour, compression, ICC digest, resolution and who captured it are all found."""
    icc = srgb_profile()
    path = write_master(
        tmp_path / "no_suffix",
        picture(40, 50, bits=16),
        iccprofile=icc,
        resolution=(400, 300),
        extratags=[(271, 2, 0, "ACME", True)],
    )
    facts = identified(path, LIMITS)
    (page,) = facts.pages
    assert (facts.format, page.width, page.height, page.samples, page.bits) == ("TIFF", 50, 40, 3, 16)
    assert (page.photometric, page.compression, page.sample_kind) == (Photometric.RGB, "none", SampleKind.UNSIGNED)
    assert page.icc_sha256 is not None
    assert page.per_metre == (Fraction(400 * 10_000, 254), Fraction(300 * 10_000, 254))
    assert facts.capture == {"make": "ACME", "software": "test scanner"}


def test_facts_survive_json(tmp_path: Path) -> None:
    """Facts kept in the ledger come back as they were."""
    path = write_master(tmp_path / "a.tif", picture(bands=4), extrasamples=["unassalpha"])
    facts = identified(path, LIMITS)
    assert facts.pages[0].extras == (Extra.UNASSOCIATED,)
    assert MasterFacts.from_json(json.loads(json.dumps(facts.to_json()))) == facts


def test_every_page_of_a_container_is_found_and_reduced_renditions_are_not_pages(tmp_path: Path) -> None:
    """A thumbnail that says that it is one is counted apart."""
    path = write_pages(tmp_path / "book.tif", [picture(20, 30), picture(25, 35, bands=1)])
    tifffile.imwrite(path, picture(5, 6), append=True, subfiletype=1, metadata=None, photometric="rgb")
    facts = identified(path, LIMITS)
    assert [(page.width, page.height) for page in facts.pages] == [(30, 20), (35, 25)]
    assert facts.reduced == 1


def test_a_big_tiff_is_told_from_a_classic_one(tmp_path: Path) -> None:
    """The format names BigTIFF."""
    facts = identified(write_master(tmp_path / "a.tif", picture(), bigtiff=True), LIMITS)
    assert facts.format == "BigTIFF"
    assert facts.fault == ""


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", ErrorKind.EMPTY_FILE),
        (b"\xff\xd8\xff\xe0 a JPEG", ErrorKind.NOT_A_RASTER),
        (b"<VRTDataset/>", ErrorKind.NOT_A_RASTER),
        (b"%PDF-1.7", ErrorKind.NOT_A_RASTER),
        (b"II*\0\x08\0\0\0", ErrorKind.CORRUPT_INPUT),
        (b"II*\0\0\0\0\0\0\0\0\0\0\0\0\0", ErrorKind.CORRUPT_INPUT),
        (b"II*\0\x08\0\0\0\xff\xff" + bytes(64), ErrorKind.CORRUPT_INPUT),
    ],
)
def test_what_is_no_master_is_told_with_its_kind(tmp_path: Path, content: bytes, kind: ErrorKind) -> None:
    """A name ending in .tif makes nothing a TIFF."""
    path = tmp_path / "a.tif"
    path.write_bytes(content)
    assert identified(path, LIMITS).fault_kind == kind


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_master_cut_short_is_corrupt(tmp_path: Path, share: float) -> None:
    """Missing strips are noticed before decoding: GDAL would read them as zeros."""
    path = write_master(tmp_path / "a.tif", picture(200, 300), rowsperstrip=10)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    facts = identified(path, LIMITS)
    assert facts.fault_kind == ErrorKind.CORRUPT_INPUT
    assert not facts.pages


def test_a_chain_of_pages_that_comes_back_to_itself_is_corrupt(tmp_path: Path) -> None:
    """What a looping chain hides cannot be known."""
    path = write_pages(tmp_path / "loop.tif", [picture(5, 6), picture(5, 6)])
    with tifffile.TiffFile(path) as tiff:
        first, second = (page.offset for page in tiff.pages)
        entries = len(tiff.pages[1].tags)  # type: ignore[union-attr]
    with path.open("r+b") as stream:
        stream.seek(second + 2 + 12 * entries)
        stream.write(struct.pack("<I", first))
    facts = identified(path, LIMITS)
    assert facts.fault_kind == ErrorKind.CORRUPT_INPUT
    assert "back" in facts.fault


def test_bounds_on_pixels_pages_and_expansion_hold(tmp_path: Path) -> None:
    """A header that declares too much is refused with the limit's name."""
    path = write_pages(tmp_path / "a.tif", [picture(20, 30)] * 3)
    assert "max_pages" in identified(path, MasterLimits(max_pages=2)).fault
    assert "max_pixels" in identified(path, MasterLimits(max_pixels=599)).fault
    bomb = write_master(tmp_path / "bomb.tif", np.zeros((4000, 4000), np.uint8), compression=None, rowsperstrip=4000)
    with tifffile.TiffFile(bomb) as tiff:
        tags = tiff.pages[0].tags  # type: ignore[union-attr]
        places = {name: tags[name].valueoffset for name in ("ImageWidth", "ImageLength", "Compression")}
    with bomb.open("r+b") as stream:
        for name in ("ImageWidth", "ImageLength"):
            stream.seek(places[name])
            stream.write(struct.pack("<I", 60_000))
        stream.seek(places["Compression"])
        stream.write(struct.pack("<H", 8))
    assert "max_expansion" in identified(bomb, MasterLimits(max_expansion=100)).fault
