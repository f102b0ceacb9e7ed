"""Access copies: equal pixels, kept profile and resolution, stated conversions, clear refusals, equal bytes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import glymur
import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

from assets.digitization.derivation import CopyRequest, CopySettings, derive_copy, recover_copy, validate_copy
from assets.digitization.jp2_boxes import boxes_of, read_box, read_facts
from assets.sources.folder import FolderSource
from resources.errors import ErrorKind, TransientError, UnitRejected
from resources.units import Metrics
from tests.support.masters import cmyk_profile, picture, srgb_profile, write_master, write_pages

KEY = "k" * 64


def request_for(master: Path, *, settings: CopySettings | None = None, several: bool = False, **options: Any) -> CopyRequest:
    """What to derive from a master as it lies there."""
    sha256 = hashlib.sha256(master.read_bytes()).hexdigest()
    return CopyRequest(KEY, sha256, FolderSource(master.parent), (master.name,), several, settings or CopySettings(), **options)


def derived(master: Path, **options: Any) -> tuple[Path, Metrics]:
    """The validated copy of a master beside it, and its metrics."""
    request, path = request_for(master, **options), master.with_suffix(".jp2")
    metrics = derive_copy(request, path)
    validate_copy(request, path)
    return path, metrics


def decoded(path: Path) -> NDArray[Any]:
    """Pixels of a copy by FFmpeg's own JPEG 2000 decoder, which shares no code with OpenJPEG."""
    codec = av.CodecContext.create("jpeg2000", "r")
    frames = [*codec.decode(av.Packet(path.read_bytes())), *codec.decode(None)]
    return frames[0].to_ndarray()


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("bands", [1, 3, 4])
@pytest.mark.parametrize("layout", ["strips", "tiles", "planes"])
def test_a_lossless_copy_decodes_to_its_master_by_an_independent_decoder(
    tmp_path: Path, bits: int, bands: int, layout: str
) -> None:
    """Grey, RGB and RGBA, 8 and 16 bits, however they are laid out."""
    pixels = picture(70, 90, bands=bands, bits=bits)
    options: dict[str, Any] = {"extrasamples": ["unassalpha"]} if bands == 4 else {}
    written = pixels
    if layout == "tiles":
        options["tile"] = (32, 32)
    elif layout == "planes" and bands > 1:
        options |= {"planarconfig": "separate", "photometric": "rgb"}
        written = np.moveaxis(pixels, 2, 0)
    path, metrics = derived(write_master(tmp_path / "m.tif", written, **options))
    assert np.array_equal(decoded(path), pixels)
    assert metrics["lossless"]
    assert metrics["pages"][0]["bits"] == bits


@pytest.mark.parametrize("bits", [10, 12, 14])
def test_odd_depths_are_kept_bit_for_bit(tmp_path: Path, bits: int) -> None:
    """A 12-bit scan stays a 12-bit copy."""
    pixels = picture(40, 60, bands=1, bits=bits)
    master = tmp_path / "m.tif"
    _write_packed(master, pixels, bits)
    path, _ = derived(master)
    # FFmpeg moves odd depths to the top of 16 bits
    assert np.array_equal(decoded(path) >> (16 - bits), pixels)


def _write_packed(path: Path, pixels: NDArray[Any], bits: int) -> None:
    """An uncompressed TIFF with samples of any depth, rows padded to whole bytes."""
    places = (pixels[:, :, None] >> np.arange(bits - 1, -1, -1)) & 1
    rows = np.packbits(places.reshape(pixels.shape[0], -1).astype(np.uint8), axis=1)
    write_master(path, rows, rowsperstrip=pixels.shape[0])
    with tifffile.TiffFile(path, mode="r+") as tiff:
        tags = tiff.pages[0].tags  # type: ignore[union-attr]
        tags["ImageWidth"].overwrite(pixels.shape[1])
        tags["BitsPerSample"].overwrite(bits)


def test_a_palette_is_expanded(tmp_path: Path) -> None:
    """Each index becomes its colour, and the metrics say so."""
    index = picture(30, 40, bands=1)
    table = (np.arange(768).reshape(3, 256) * 7 % 256).astype(np.uint16)
    path, metrics = derived(write_master(tmp_path / "m.tif", index, photometric="palette", colormap=table * 257))
    assert np.array_equal(decoded(path), np.moveaxis(table[:, index], 0, 2))
    assert "palette of 256 colours expanded to RGB" in metrics["statements"]


def test_a_palette_of_sixteen_bits_loses_nothing(tmp_path: Path) -> None:
    """Colours that need 16 bits get them."""
    index = picture(30, 40, bands=1)
    table = (np.arange(768).reshape(3, 256) * 83 % 65536).astype(np.uint16)
    path, metrics = derived(write_master(tmp_path / "m.tif", index, photometric="palette", colormap=table))
    assert np.array_equal(decoded(path), np.moveaxis(table[:, index], 0, 2))
    assert metrics["pages"][0]["bits"] == 16


@pytest.mark.parametrize("photometric", ["miniswhite", "minisblack"])
def test_a_bitonal_master_becomes_grey_with_white_paper(tmp_path: Path, photometric: str) -> None:
    """0 and 255, whichever of them the master calls white."""
    ink = picture(33, 47, bands=1) > 100
    path, metrics = derived(write_master(tmp_path / "m.tif", ink, photometric=photometric))
    white = ~ink if photometric == "miniswhite" else ink
    assert np.array_equal(decoded(path), np.where(white, 255, 0))
    assert any("bitonal" in said for said in metrics["statements"])


def test_grey_that_calls_white_zero_is_inverted(tmp_path: Path) -> None:
    """Readers of copies know no MinIsWhite."""
    grey = picture(bands=1, bits=16)
    path, metrics = derived(write_master(tmp_path / "m.tif", grey, photometric="miniswhite"))
    assert np.array_equal(decoded(path), 65535 - grey)
    assert "white is 0 in the master: inverted" in metrics["statements"]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied(tmp_path: Path, orientation: int) -> None:
    """A picture stored any of the eight ways comes out upright, its resolution turned with it."""
    upright = picture(1100, 70)
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: np.rot90(upright, 2).transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    across, down = (600, 300) if orientation < 5 else (300, 600)
    master = write_master(
        tmp_path / "m.tif", stored, resolution=(across, down), rowsperstrip=7, extratags=[(274, 3, 1, orientation, True)]
    )
    path, _ = derived(master)
    assert np.array_equal(decoded(path), upright)
    resolution = next(box for box in glymur.Jp2k(path).box[2].box if box.box_id == "res ")
    assert resolution.box[0].horizontal_resolution == pytest.approx(600 / 0.0254, rel=1e-6)
    assert resolution.box[0].vertical_resolution == pytest.approx(300 / 0.0254, rel=1e-6)


def test_cmyk_is_converted_through_its_profile_and_says_so(tmp_path: Path) -> None:
    """No ink is white, full black is black, and the copy carries no CMYK profile."""
    inks = np.zeros((20, 30, 4), np.uint8)
    inks[10:, :, 3] = 255
    master = write_master(tmp_path / "m.tif", inks, photometric="separated", iccprofile=cmyk_profile())
    path, metrics = derived(master)
    found = decoded(path)
    assert found.shape == (20, 30, 3)
    assert (found[:10] == 255).all()
    assert (found[10:] == 0).all()
    assert any("CMYK converted to sRGB" in said for said in metrics["statements"])
    assert glymur.Jp2k(path).box[2].box[1].colorspace == glymur.core.SRGB


def test_cmyk_without_a_profile_needs_the_configured_one(tmp_path: Path) -> None:
    """Without any profile its colours are unknown: refused. With one of the project's: converted and stated."""
    master = write_master(tmp_path / "m.tif", picture(bands=4), photometric="separated")
    with pytest.raises(UnitRejected) as refused:
        derived(master)
    assert refused.value.kind is ErrorKind.UNSUPPORTED_COLOUR
    profile = tmp_path / "press.icc"
    profile.write_bytes(cmyk_profile())
    _, metrics = derived(master, cmyk_profile=profile)
    assert "CMYK converted to sRGB through the configured CMYK profile" in metrics["statements"]


@pytest.mark.parametrize(
    ("options", "pixels", "kind"),
    [
        ({}, picture(bands=1).astype(np.float32), ErrorKind.UNSUPPORTED_DTYPE),
        ({}, picture(bands=1).astype(np.int16), ErrorKind.UNSUPPORTED_DTYPE),
        ({}, picture(bands=1).astype(np.uint32), ErrorKind.UNSUPPORTED_DTYPE),
        ({"photometric": "cielab"}, picture(), ErrorKind.UNSUPPORTED_COLOUR),
        ({"photometric": "minisblack", "extrasamples": [0, 0]}, picture(), ErrorKind.UNSUPPORTED_COLOUR),
        ({"photometric": "separated"}, picture(bands=4, bits=16), ErrorKind.UNSUPPORTED_COLOUR),
        ({"photometric": "minisblack", "iccprofile": srgb_profile()}, picture(bands=1), ErrorKind.UNSUPPORTED_COLOUR),
        ({"iccprofile": b"no profile at all"}, picture(), ErrorKind.CORRUPT_INPUT),
    ],
)
def test_what_cannot_be_carried_is_refused(
    tmp_path: Path, options: dict[str, Any], pixels: NDArray[Any], kind: ErrorKind
) -> None:
    """Floats, signed and 32-bit numbers, Lab, spare channels, a profile of another space: never degraded in silence."""
    with pytest.raises(UnitRejected) as refused:
        derived(write_master(tmp_path / "m.tif", pixels, **options))
    assert refused.value.kind is kind


def test_profile_and_resolution_are_kept(tmp_path: Path) -> None:
    """The very bytes of the profile, and 300 pixels an inch exactly, as another library reads them."""
    icc = srgb_profile()
    path, metrics = derived(write_master(tmp_path / "m.tif", picture(), iccprofile=icc))
    colour = next(box for box in boxes_of(path) if box.kind == "colr")
    assert read_box(path, colour) == b"\x02\0\0" + icc
    resolution = next(box for box in glymur.Jp2k(path).box[2].box if box.box_id == "res ")
    assert Fraction(resolution.box[0].horizontal_resolution).limit_denominator(1000) == Fraction(300 * 10_000, 254)
    assert metrics["pages"][0]["icc_sha256"] == hashlib.sha256(icc).hexdigest()


@pytest.mark.parametrize(("kind", "opacity"), [("unassalpha", 1), ("assocalpha", 2), ("unspecified", 65535)])
def test_alpha_means_what_it_meant(tmp_path: Path, kind: str, opacity: int) -> None:
    """Straight, premultiplied, or a channel that says nothing of itself."""
    path, _ = derived(write_master(tmp_path / "m.tif", picture(bands=4), extrasamples=[kind]))
    channels = next(box for box in glymur.Jp2k(path).box[2].box if box.box_id == "cdef")
    assert list(channels.channel_type) == [0, 0, 0, opacity]


def test_a_copy_is_tiled_with_resolution_levels(tmp_path: Path) -> None:
    """As image servers ask: tiles of 1024, halves down to a thumbnail, resolution first, packets and tiles found by markers."""
    path, metrics = derived(write_master(tmp_path / "m.tif", picture(1500, 2500)))
    segments = {segment.marker_id: segment for segment in glymur.Jp2k(path).get_codestream(header_only=False).segment}
    assert (segments["SIZ"].xtsiz, segments["SIZ"].ytsiz) == (1024, 1024)
    assert segments["COD"].num_res == metrics["pages"][0]["levels"] == 5
    assert segments["COD"].prog_order == glymur.core.RPCL
    assert {"TLM", "PLT"} <= set(segments)


@pytest.mark.parametrize("settings", [CopySettings(), CopySettings(ratio=8.0)])
def test_two_derivations_are_equal_byte_for_byte_also_in_another_process(tmp_path: Path, settings: CopySettings) -> None:
    """No clock, name, hash seed or locale goes into a copy."""
    master = write_master(tmp_path / "m.tif", picture(300, 200), iccprofile=srgb_profile())
    path, _ = derived(master, settings=settings)
    moved = tmp_path / "other name.tif"
    moved.write_bytes(master.read_bytes())
    code = (
        "import hashlib, pathlib, sys\n"
        "from assets.digitization.derivation import *\n"
        "from assets.sources.folder import FolderSource\n"
        "m, to, r = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), eval(sys.argv[3])\n"
        "sha256 = hashlib.sha256(m.read_bytes()).hexdigest()\n"
        "derive_copy(CopyRequest('k' * 64, sha256, FolderSource(m.parent), (m.name,), False, CopySettings(ratio=r)), to)"
    )
    environment = {"PYTHONHASHSEED": "7", "LC_ALL": "C", "TZ": "Asia/Tokyo", "PATH": ""}
    other = tmp_path / "other.jp2"
    subprocess.run([sys.executable, "-c", code, moved, other, repr(settings.ratio)], check=True, env=environment)
    assert other.read_bytes() == path.read_bytes()


def test_pages_come_in_one_folder(tmp_path: Path) -> None:
    """One file a page, in order, each with its own size and kind."""
    pages = [picture(20, 30, seed=1), picture(25, 35, bands=1, seed=2), picture(20, 30, bits=16, seed=3)]
    path, metrics = derived(write_pages(tmp_path / "book.tif", pages), several=True)
    assert [file.name for file in sorted(path.iterdir())] == ["0001.jp2", "0002.jp2", "0003.jp2"]
    for file, page in zip(sorted(path.iterdir()), pages, strict=True):
        assert np.array_equal(decoded(file), page)
    assert [page["page"] for page in metrics["pages"]] == [1, 2, 3]


def test_a_lossy_copy_keeps_to_its_ratio(tmp_path: Path) -> None:
    """A ratio of 10 gives a file of about a tenth, and the metrics tell the loss in decibels."""
    noisy = np.random.default_rng(5).integers(0, 60, (400, 400, 3)).astype(np.uint8) + picture(400, 400) // 2
    path, metrics = derived(write_master(tmp_path / "m.tif", noisy), settings=CopySettings(ratio=10.0))
    assert path.stat().st_size == pytest.approx(noisy.nbytes / 10, rel=0.1)
    assert 20 < metrics["pages"][0]["psnr_db"] < 60
    assert not metrics["lossless"]


@pytest.mark.parametrize("wanted", [35.0, 45.0])
def test_a_lossy_copy_reaches_its_decibels(tmp_path: Path, wanted: float) -> None:
    """As the independent decoder measures it, and no far beyond."""
    pixels = picture(300, 300, bands=1)
    path, metrics = derived(write_master(tmp_path / "m.tif", pixels), settings=CopySettings(psnr_db=wanted))
    found = 10 * np.log10(255**2 / np.mean((decoded(path).astype(float) - pixels) ** 2))
    assert found == pytest.approx(metrics["pages"][0]["psnr_db"], abs=0.3)
    assert wanted <= metrics["pages"][0]["psnr_db"]


def test_metrics_are_read_back_from_a_copy(tmp_path: Path) -> None:
    """A copy that was promoted but never recorded says what was done to it."""
    master = write_master(tmp_path / "m.tif", picture())
    path, metrics = derived(master)
    assert recover_copy(request_for(master), path) == metrics
    facts = read_facts(path)
    assert facts is not None
    assert facts["unit_key"] == KEY


def test_a_master_that_changed_after_capture_is_not_derived(tmp_path: Path) -> None:
    """The copy would claim another's digest; the same bytes under another name will do."""
    master = write_master(tmp_path / "m.tif", picture())
    twin = tmp_path / "twin.tif"
    twin.write_bytes(master.read_bytes())
    request = request_for(master)
    with master.open("ab") as stream:
        stream.write(b"a note")
    with pytest.raises(UnitRejected) as refused:
        derive_copy(request, tmp_path / "a.jp2")
    assert refused.value.kind is ErrorKind.MASTER_CHANGED
    both = replace(request, masters=(master.name, twin.name))
    derive_copy(both, tmp_path / "b.jp2")
    master.unlink()
    with pytest.raises(TransientError):
        derive_copy(request, tmp_path / "c.jp2")


@pytest.mark.parametrize("damage", ["bytes", "key", "cut", "pixels"])
def test_a_damaged_copy_does_not_validate(tmp_path: Path, damage: str) -> None:
    """A flipped byte, another's key, a cut end, other pixels: none is promoted."""
    master = write_master(tmp_path / "m.tif", picture(200, 200))
    request = request_for(master)
    path, _ = derived(master)
    content = bytearray(path.read_bytes())
    if damage == "bytes":
        content[len(content) // 2] ^= 0xFF
    elif damage == "key":
        content = content.replace(KEY.encode(), b"j" * 64)
    elif damage == "cut":
        del content[-200:]
    else:
        digest = read_facts(path)["page"]["pixels_sha256"]  # type: ignore[index]
        content = content.replace(digest.encode(), b"0" * 64)
    path.write_bytes(content)
    with pytest.raises(UnitRejected) as refused:
        validate_copy(request, path)
    assert refused.value.kind is ErrorKind.INVALID_OUTPUT


def test_damaged_jpeg_data_within_a_master_is_refused(tmp_path: Path) -> None:
    """libtiff only warns of it and hands out grey: that is no faithful copy."""
    from PIL import Image

    master = tmp_path / "m.tif"
    Image.fromarray(picture(200, 200)).save(master, compression="jpeg")
    content = bytearray(master.read_bytes())
    middle = content.find(b"\xff\xda") + 400
    content[middle : middle + 60] = b"\xff\xd9" * 30
    master.write_bytes(content)
    with pytest.raises(UnitRejected) as refused:
        derived(master)
    assert refused.value.kind is ErrorKind.CORRUPT_INPUT


@pytest.mark.parametrize("is_whole", [True, False])
def test_no_scratch_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool) -> None:
    """Neither of a copy that was made in pieces on disk nor of one that failed; and its bytes are the same as in memory."""
    master = write_master(tmp_path / "m.tif", picture(900, 300), compression="zlib" if is_whole else None, rowsperstrip=50)
    path, _ = derived(master)
    in_memory = path.read_bytes()
    path.unlink()
    monkeypatch.setattr("assets.digitization.codestream.IN_MEMORY_BYTES", 0)
    if is_whole:
        derived(master)
        assert path.read_bytes() == in_memory
    else:
        monkeypatch.setattr("assets.digitization.codestream.rasterio.shutil.copy", _no_room)
        with pytest.raises(OSError, match="No space"):
            derived(master)
    assert [item.name for item in tmp_path.iterdir() if "scratch" in item.name] == []


def _no_room(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


_PEAK = """
import hashlib, pathlib, resource, sys
from assets.digitization.derivation import *
from assets.sources.folder import FolderSource
master = pathlib.Path(sys.argv[1])
request = CopyRequest("k" * 64, sys.argv[2], FolderSource(master.parent), (master.name,), False)
derive_copy(request, master.with_suffix(".jp2"))
validate_copy(request, master.with_suffix(".jp2"))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.slow
def test_memory_does_not_follow_the_size_of_a_master(tmp_path: Path) -> None:
    """A master of 600 megabytes takes no more memory than one of 100."""
    peaks = []
    for side in (5_800, 14_150):
        master = tmp_path / f"{side}.tif"
        # sparse: the strips lie in the file, and the disk holds none of them
        tifffile.memmap(master, shape=(side, side, 3), dtype=np.uint8, photometric="rgb").flush()
        with open(master, "rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        done = subprocess.run([sys.executable, "-c", _PEAK, master, sha256], check=True, capture_output=True, text=True)
        peaks.append(int(done.stdout))
    assert peaks[1] < peaks[0] + 64, f"peak resident megabytes: {peaks}"
