"""Hostile and odd scenes: each gets its verdict and one clear message, none stops the others, none opens what it should not.

The real files lie in ../shared/data/rasters, beside the repository; everything else is made here.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import rasterio
from affine import Affine
from rasterio.control import GroundControlPoint

from assets.scenes.model import MaskSource, Scene, SceneListing, SceneVerdict
from resources.errors import ErrorKind
from tests.support.sources import AT_180, DATED, PLACE, SHARED, UTM, declare, look, source_config, vrt, write_raster

A, R = SceneVerdict.ACCEPTED, SceneVerdict.REJECTED
K = ErrorKind
RASTERS = SHARED / "rasters"

# file of ../shared/data/rasters -> verdict, kind. Sidecars of another file are no scenes of their own and are not here.
REAL: dict[str, tuple[SceneVerdict, ErrorKind | None]] = {
    "12bit.cropped.tif": (R, K.NO_CRS),
    "BigTIFFLong.tif": (R, K.NO_CRS),
    "BigTIFFMotorola.tif": (R, K.NO_CRS),
    "N10W110.hgt.zip": (R, K.NOT_A_RASTER),
    "cfloat64.tif": (R, K.UNSUPPORTED_DTYPE),
    "cog_dateline.tif": (A, None),
    "cog_fullearth.tif": (A, None),
    "cog_gcps_ovr.tif": (R, K.GCPS_ONLY),
    "cog_nodata_nan.tif": (A, None),
    "cog_uint8_rgba.tif": (A, None),
    "colormap-shl-overflow.tiff": (R, K.CORRUPT_INPUT),
    "compdcs.vrt": (R, K.FORBIDDEN_DRIVER),
    "corrupt.tif": (R, K.CORRUPT_INPUT),
    "corrupted_gtiff_tags.tif": (R, K.NO_CRS),
    "cp866.zip": (R, K.NOT_A_RASTER),
    "crash-4fb027452e6988530aa5dabee76eecacb3b79f8a.j2k": (R, K.CORRUPT_INPUT),
    "equal_earth_nan.tif": (A, None),
    "extmask.tif": (A, None),
    "float16.tif": (A, None),
    "float24.tif": (A, None),
    "float_nan.tif": (R, K.NO_CRS),
    "float_raster_with_extra_nodata.tif": (A, None),
    "fuzz_div0_000001.tif": (R, K.CORRUPT_INPUT),
    "fuzz_leak_f1f7b29e.grib2": (R, K.NOT_A_RASTER),
    "fuzz_loop_000028.tif": (R, K.NO_CRS),
    "fuzz_loop_000032.tif": (R, K.NO_CRS),
    "fuzz_oom_000000.tif": (R, K.NO_CRS),
    "fuzz_oom_000043.tif": (R, K.NO_CRS),
    "fuzz_oom_000048.tif": (R, K.CORRUPT_INPUT),
    "fuzz_oom_95dd3e1f.grib2": (R, K.NOT_A_RASTER),
    "gfs.t06z.pgrb2.10p0.f010.grib2": (R, K.FORBIDDEN_DRIVER),
    "goes.tif": (A, None),
    "gradient-1c-64b.tiff": (R, K.NO_CRS),
    "hopper_unknown_pixel_mode.tif": (R, K.NO_CRS),
    "html_error_page.tif": (R, K.NOT_A_RASTER),
    "index.tsv": (R, K.NOT_A_RASTER),
    "int24.tif": (R, K.UNSUPPORTED_DTYPE),
    "int8.tif": (R, K.NO_CRS),
    "invalid_header_length.jp2": (R, K.NO_CRS),
    "inverted_lat.tif": (A, None),
    "lab.tif": (R, K.NO_CRS),
    "landcover_colortable.tif": (A, None),
    "lerc.tif": (A, None),
    "libtiff_segfault.tif": (R, K.TOO_LARGE),
    "localcs_logo.tif": (R, K.UNSUPPORTED_CRS),
    "multipage.tiff": (R, K.NO_CRS),
    "nan_nodata_uint8.tif": (R, K.NODATA_OUT_OF_RANGE),
    "no_band.h5": (R, K.FORBIDDEN_DRIVER),
    "nodata_999_uint8.tif": (R, K.NODATA_OUT_OF_RANGE),
    "planar-rgb-u8.tif": (R, K.NO_CRS),
    "polar_all_nan.tif": (A, None),
    "red.tif": (A, None),
    "rotated.tif": (R, K.NO_CRS),
    "sample-format-empty-vec.bin": (R, K.CORRUPT_INPUT),
    "sample-get-lzw-stuck.tiff": (R, K.NO_CRS),
    "seq-1c-1b-71f6a21a.tiff": (R, K.NO_CRS),
    "southern_hemi_false_northing.bag": (R, K.FORBIDDEN_DRIVER),
    "spaf27_brokengdal.tif": (A, None),
    "sparse_bomb_geo.tif": (R, K.TOO_LARGE),
    "sstgeo.tif": (R, K.NO_CRS),
    "test_esri_wkt.tif": (A, None),
    "test_ifd_loop_to_self.tif": (R, K.NO_CRS),
    "testserialization.asc": (R, K.NOT_A_RASTER),
    "tiff_tiled_jpeg_oob_read.tif": (R, K.NO_CRS),
    "tiff_with_subifd_chain.tif": (R, K.NO_CRS),
    "tiff_wrong_bits_per_sample.tiff": (R, K.NO_CRS),
    "tiled-jpeg-ycbcr.tif": (R, K.NO_CRS),
    "tiled-oversize-gray-i8.tif": (R, K.NO_CRS),
    "total-pages-zero.tif": (R, K.NO_CRS),
    "truncated_cog.tif": (R, K.CORRUPT_INPUT),
    "truncated_header.tif": (R, K.CORRUPT_INPUT),
    "two-subs.h5": (R, K.FORBIDDEN_DRIVER),
    "vrt_abs_path.tif": (R, K.FORBIDDEN_DRIVER),
    "vrt_disguised_missing_source.tif": (R, K.FORBIDDEN_DRIVER),
    "vrt_huge.tif": (R, K.FORBIDDEN_DRIVER),
    "vrt_raw_reads_etc_passwd.tif": (R, K.FORBIDDEN_DRIVER),
    "vrt_self_reference.tif": (R, K.FORBIDDEN_DRIVER),
    "vrt_target_note.tif": (A, None),
    "vrt_url_source.tif": (R, K.FORBIDDEN_DRIVER),
    "world.byte.tif": (A, None),
    "zero_height.j2k": (R, K.CORRUPT_INPUT),
    "zipped_rgb.tif": (R, K.NOT_A_RASTER),
}
SIDECARS = {"extmask.tif.msk", "red.tif.ovr", "testserialization.asc.aux.xml"}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Scene]:
    if not RASTERS.is_dir():
        pytest.skip("needs ../shared/data/rasters, which lies beside the repository")
    root = tmp_path_factory.mktemp("real")
    (root / "scenes").mkdir()
    for path in RASTERS.iterdir():
        stem, dot, rest = path.name.partition(".")
        # the date goes in front, so that sidecars keep the name of their file
        (root / "scenes" / f"20200101_{stem}{dot}{rest}").write_bytes(path.read_bytes())
    listing = look(source_config(root, patterns=["{date:%Y%m%d}_{name}"]))
    assert not listing.strangers
    return {scene.uris[0].removeprefix("20200101_"): scene for scene in listing.scenes}


def test_the_table_holds_every_real_file(real: dict[str, Scene]) -> None:
    """Every file that lies there has an expected verdict, so that a new one cannot pass unseen."""
    assert set(real) == set(REAL)
    assert {path.name for path in RASTERS.iterdir()} == set(REAL) | SIDECARS


@pytest.mark.parametrize("name", REAL)
def test_a_real_file_gets_its_verdict(real: dict[str, Scene], name: str) -> None:
    """A real hostile or odd file is accepted or rejected for the reason that is its own, with file, field, found and allowed."""
    scene = real[name]
    assert (scene.verdict, scene.kind) == REAL[name], scene.reason
    if scene.verdict is R:
        assert_clear(scene, f"20200101_{name}")
    else:
        assert scene.bands
        assert scene.footprint is not None
        assert scene.footprint.is_valid


def assert_clear(scene: Scene, file: str) -> None:
    assert scene.reason.startswith(f"{file!r}: ")
    assert ": found " in scene.reason
    assert "allowed: " in scene.reason
    assert "\n" not in scene.reason
    assert scene.digest


# --- files made here: every kind of bad input the project promises an answer for

GCPS = [GroundControlPoint(row, column, 9 + column / 100, 45 - row / 100) for row in (0, 31) for column in (0, 31)]


def _patched(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))


def _truncated(path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 60_000, (1, 256, 256)).astype("uint16")
    write_raster(path, noise, tiled=True, blockxsize=64, blockysize=64)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 6 // 10])


def _ones(dtype: str) -> np.ndarray:
    return np.ones((1, 8, 8), dtype)


def _byte(count: int = 1, size: int = 32) -> np.ndarray:
    return np.arange(count * size * size, dtype="int64").reshape(count, size, size).astype("uint8")


def _large_block(path: Path) -> None:
    write_raster(path, _byte(), tiled=True, blockxsize=16, blockysize=16)
    with rasterio.open(
        path, "w", driver="GTiff", width=20480, height=20480, count=1, dtype="uint8", crs=UTM, transform=PLACE,
        tiled=True, blockxsize=20480, blockysize=20480, sparse_ok=True,
    ):  # fmt: skip
        pass
    path.write_bytes(path.read_bytes() + bytes(200_000))


MADE = {
    # name: (how it is made, verdict, kind, fragments of the message)
    "empty": (lambda p: p.write_bytes(b""), R, K.EMPTY_FILE, ["content: found an empty file (0 bytes)", "allowed: GTiff"]),
    "zeros": (lambda p: p.write_bytes(bytes(4096)), R, K.EMPTY_FILE, ["found zero bytes only"]),
    "truncated": (_truncated, R, K.CORRUPT_INPUT, ["content: found data that GDAL cannot decode", "allowed: an intact raster"]),
    "header-only": (lambda p: p.write_bytes(write_raster(p).read_bytes()[:100]), R, K.CORRUPT_INPUT, ["cannot decode"]),
    "text": (lambda p: p.write_text("lorem ipsum\n" * 50), R, K.NOT_A_RASTER, ["found a text file", "allowed: GTiff"]),
    "noise": (lambda p: p.write_bytes(bytes(range(256)) * 20), R, K.NOT_A_RASTER, ["found bytes of no known raster format"]),
    "png": (lambda p: p.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(99)), R, K.FORBIDDEN_DRIVER, ["found a PNG raster"]),
    "no-crs": (lambda p: write_raster(p, crs=None), R, K.NO_CRS, ["CRS: found none", "allowed: any CRS"]),
    "no-geotransform": (
        lambda p: write_raster(p, place=Affine.identity()),
        R,
        K.NO_GEOTRANSFORM,
        ["geotransform: found none", "allowed: an affine geotransform"],
    ),
    "gcps": (
        lambda p: write_raster(p, gcps=GCPS, crs="EPSG:4326"),
        R,
        K.GCPS_ONLY,
        ["found 4 ground control points only", "gdalwarp"],
    ),
    "local-crs": (
        lambda p: write_raster(p, crs='LOCAL_CS["site",UNIT["metre",1]]'),
        R,
        K.UNSUPPORTED_CRS,
        ["CRS: found", "site", "allowed: a projected or geographic CRS"],
    ),
    "geocentric": (lambda p: write_raster(p, crs="EPSG:4978"), R, K.UNSUPPORTED_CRS, ["CRS: found", "allowed: a projected"]),
    "nodata-range": (
        lambda p: (write_raster(p, _byte(), nodata=100), _patched(p, b"100\0", b"999\0")),
        R,
        K.NODATA_OUT_OF_RANGE,
        ["band 1, nodata: found 999", "allowed: a whole number in 0..255 (uint8)"],
    ),
    "nodata-nan-uint8": (
        lambda p: (write_raster(p, _byte(), nodata=100), _patched(p, b"100\0", b"nan\0")),
        R,
        K.NODATA_OUT_OF_RANGE,
        ["found nan", "0..255"],
    ),
    "nodata-words": (
        lambda p: (write_raster(p, _byte(), nodata=100), _patched(p, b"100\0", b"n/a\0")),
        R,
        K.NODATA_OUT_OF_RANGE,
        ["nodata: found 'n/a'", "a number that uint8 can hold"],
    ),
    "complex": (lambda p: write_raster(p, _ones("complex64")), R, K.UNSUPPORTED_DTYPE, ["dtype: found complex64", "float64"]),
    "int64": (lambda p: write_raster(p, _ones("int64")), R, K.UNSUPPORTED_DTYPE, ["dtype: found int64", "allowed: uint8"]),
    "bomb": (
        lambda p: declare(p, width=316_228, height=316_228),
        R,
        K.TOO_LARGE,
        ["size: found 316228 x 316228 pixels", "1024 bytes", "source.max_expansion"],
    ),
    "terabytes": (lambda p: declare(p, width=600_000, height=600_000), R, K.TOO_LARGE, ["source.max_pixels"]),
    "bands": (lambda p: write_raster(p, _byte(600, 4)), R, K.TOO_LARGE, ["bands: found 600", "up to 512 (source.max_bands)"]),
    "block": (_large_block, R, K.TOO_LARGE, ["block size: found 20480 x 20480 pixels", "smaller tiles"]),
    "vrt": (lambda p: p.write_text(vrt("/etc/passwd", raw=True)), R, K.FORBIDDEN_DRIVER, ["found a VRT (a list of other files)"]),
    "html": (lambda p: p.write_text("<!DOCTYPE html><p>404"), R, K.NOT_A_RASTER, ["found an HTML page"]),
    # supported ones
    "good": (write_raster, A, None, []),
    "nan-nodata": (lambda p: write_raster(p, _ones("float32"), nodata=float("nan")), A, None, []),
    "12bit": (lambda p: write_raster(p, np.full((1, 8, 8), 4095, "uint16"), nbits=12), A, None, []),
    "1bit": (lambda p: write_raster(p, _ones("uint8"), nbits=1), A, None, []),
    "rotated": (lambda p: write_raster(p, place=PLACE @ Affine.rotation(30)), A, None, []),
    "south-up": (lambda p: write_raster(p, place=Affine(30, 0, 500_000, 0, 30, 4_900_000)), A, None, []),
    "alpha": (lambda p: write_raster(p, _byte(4), photometric="RGB", alpha="YES"), A, None, []),
    "many-bands": (lambda p: write_raster(p, _byte(7)), A, None, []),
    "palette": (lambda p: write_raster(p, _byte(), colormap={0: (0, 0, 0, 255), 1: (9, 9, 9, 255)}), A, None, []),
    "antimeridian": (lambda p: write_raster(p, crs="EPSG:32660", place=AT_180), A, None, []),
    "bigtiff": (lambda p: write_raster(p, bigtiff="YES", nodata=7), A, None, []),
    "with space": (write_raster, A, None, []),
    "quote\"and'more": (write_raster, A, None, []),
    "new\nline": (write_raster, A, None, []),
    "sat🛰ellite": (write_raster, A, None, []),
    "dots..": (write_raster, A, None, []),
    "per%20cent": (write_raster, A, None, []),
    "-rf": (write_raster, A, None, []),
    "$(reboot)": (write_raster, A, None, []),
    "bad\udcffbyte": (
        lambda p: p.write_bytes(write_raster(p.with_name("plain.dat")).read_bytes()),
        R,
        K.UNREADABLE,
        ["file name: found bytes that are not UTF-8", "bad%FFbyte"],
    ),
    # what is no file
    "folder": (lambda p: p.mkdir(), R, K.UNREADABLE, ["file: found a folder", "allowed: a file"]),
    "dangling": (lambda p: p.symlink_to("nowhere.dat"), R, K.UNREADABLE, ["file: found a link to nothing"]),
    "loop": (lambda p: p.symlink_to(p.name), R, K.UNREADABLE, ["file: found"]),
    "pipe": (lambda p: os.mkfifo(p), R, K.UNREADABLE, ["file: found a named pipe"]),
    "folder-link": (lambda p: p.symlink_to("/etc"), R, K.UNREADABLE, ["file: found a link to a folder"]),
    "link": (lambda p: p.symlink_to(write_raster(p.with_name("target.dat"))), A, None, []),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SceneListing:
    root = tmp_path_factory.mktemp("made")
    (root / "scenes").mkdir()
    for name, (make, *_) in MADE.items():
        make(root / "scenes" / f"{name}_20200101.tif")
    return look(source_config(root))


@pytest.mark.parametrize("name", MADE)
def test_bad_input_gets_its_verdict_and_message(made: SceneListing, name: str) -> None:
    """Each kind of bad input has its verdict and one message with file, field, found and allowed; odd good ones are accepted."""
    _, verdict, kind, fragments = MADE[name]
    scene = scene_of(made, name)
    assert (scene.verdict, scene.kind) == (verdict, kind), scene.reason
    if verdict is R:
        assert_clear(scene, scene.uris[0])
    for fragment in fragments:
        assert fragment in scene.reason


def scene_of(listing: SceneListing, name: str) -> Scene:
    from assets.sources.names import uri_of

    (scene,) = [scene for scene in listing.scenes if scene.uris == (uri_of(f"{name}_20200101.tif"),)]
    return scene


def test_no_bad_input_is_lost(made: SceneListing) -> None:
    """There is a scene for every file that has a scene's name, and what has none is listed with its reason."""
    assert len(made.scenes) == len(MADE)
    assert [stranger.uri for stranger in made.strangers] == ["plain.dat", "target.dat"]


def test_bad_scenes_are_told_apart(made: SceneListing) -> None:
    """Each rejected scene has a digest of its own, also where two files hold equal bytes: none hides another's dead letter."""
    digests = [scene.digest for scene in made.with_verdict(R)]
    assert len(set(digests)) == len(digests)


def test_what_is_supported_is_described_right(made: SceneListing) -> None:
    """Nodata, masks, alpha, palette, depth and place of the odd good files arrive as they are."""
    assert np.isnan(scene_of(made, "nan-nodata").bands["b1"].nodata or 0.0)
    assert scene_of(made, "12bit").bands["b1"].dtype == "uint16"
    assert scene_of(made, "alpha").bands["b1"].alpha_index == 4
    assert scene_of(made, "alpha").bands["b1"].mask is MaskSource.ALPHA
    assert list(scene_of(made, "many-bands").bands) == [f"b{i}" for i in range(1, 8)]
    assert scene_of(made, "palette").bands["b1"].is_palette
    assert scene_of(made, "south-up").bands["b1"].transform[4] == 30
    assert scene_of(made, "bigtiff").bands["b1"].nodata == 7
    antimeridian = scene_of(made, "antimeridian").footprint
    assert antimeridian is not None
    assert antimeridian.geom_type == "MultiPolygon"


# --- files that name other files or other machines


@pytest.fixture
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """A server on loopback that notes every connection."""
    requests: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                requests.append(connection.recv(4096))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield server.getsockname()[1], requests
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def test_no_file_makes_us_call_another_machine(tmp_path: Path, listener: tuple[int, list[bytes]]) -> None:
    """Neither a VRT under a scene's name, nor a sidecar, nor a tag that names overviews, sends a single request."""
    port, requests = listener
    folder = tmp_path / "scenes"
    address = f"/vsicurl/http://127.0.0.1:{port}/x.tif"
    folder.mkdir()
    (folder / "main_20200101.tif").write_text(vrt(address))
    for suffix in (".ovr", ".msk"):
        write_raster(folder / f"sidecar{suffix[1:]}_20200101.tif")
        (folder / f"sidecar{suffix[1:]}_20200101.tif{suffix}").write_text(vrt(address))
    write_raster(folder / "tag_20200101.tif")
    (folder / "tag_20200101.tif.aux.xml").write_text(
        f'<PAMDataset><Metadata domain="OVERVIEWS"><MDI key="OVERVIEW_FILE">{address}</MDI></Metadata></PAMDataset>'
    )
    write_raster(folder / "good_20200101.tif")
    scenes = {scene.uris[0].split("_")[0]: scene for scene in look(source_config(tmp_path)).scenes}
    assert requests == []
    assert scenes["good"].verdict is A
    for name in ("main", "sidecarovr", "sidecarmsk", "tag"):
        assert (scenes[name].verdict, scenes[name].kind) == (R, K.FORBIDDEN_DRIVER), scenes[name].reason
    assert "sidecar .ovr: found a VRT" in scenes["sidecarovr"].reason
    assert "tag OVERVIEW_FILE: found" in scenes["tag"].reason


def test_a_rejected_file_is_told_what_products_make_of_it(tmp_path: Path) -> None:
    """A palette is rejected, naming the product, when a product would average its indices; others may still pick them."""
    write_raster(tmp_path / "scenes" / "classes_20200101.tif", _byte(), colormap={0: (0, 0, 0, 255)})
    products = '[[products]]\nname = "smooth"\nbands = ["b1"]\nresampling = "bilinear"\n'
    (scene,) = look(source_config(tmp_path, products=products), required=["b1"]).scenes
    assert (scene.verdict, scene.kind) == (R, K.UNSUPPORTED_DTYPE)
    assert "colour table: found palette indices in band b1, which product 'smooth' would average" in scene.reason


def test_a_scene_with_fewer_bands_than_asked_is_rejected(tmp_path: Path) -> None:
    """A many-band file that lacks a band no other file can bring is rejected, and says which it has."""
    write_raster(tmp_path / "scenes" / "two_20200101.tif", _byte(2))
    (scene,) = look(source_config(tmp_path), required=["b1", "b3"]).scenes
    assert (scene.verdict, scene.kind) == (R, K.MISSING_BAND)
    assert "bands: found b1; allowed: also b3, which products ask for" in scene.reason


def test_bands_in_two_crs_are_rejected(tmp_path: Path) -> None:
    """Bands of one scene in different systems are not mixed; both files and systems are named."""
    write_raster(tmp_path / "scenes" / "S_20200101_red.tif")
    write_raster(tmp_path / "scenes" / "S_20200101_nir.tif", crs="EPSG:32633")
    (scene,) = look(source_config(tmp_path, patterns=["{name}_{date:%Y%m%d}_{band}.tif"])).scenes
    assert (scene.verdict, scene.kind) == (R, K.MIXED_CRS)
    assert "found EPSG:32632 in 'S_20200101_red.tif' and EPSG:32633 in 'S_20200101_nir.tif'" in scene.reason


def test_a_scene_outside_the_area_says_where_it_lies(tmp_path: Path) -> None:
    """A scene that does not meet the area of interest is listed with both extents and reaches no tile."""
    write_raster(tmp_path / "scenes" / "far_20200101.tif")
    (scene,) = look(source_config(tmp_path, area="-80,-40,-60,-20")).scenes
    assert (scene.verdict, scene.kind) == (SceneVerdict.OUTSIDE_AREA, K.OUTSIDE_AREA)
    assert "footprint: found (9, 45.1448" in scene.reason
    assert "allowed: one that meets the area (-80, -40, -60, -20)" in scene.reason


def test_two_scenes_with_one_name_are_both_named(tmp_path: Path) -> None:
    """Neither of two scenes with one name is used, both are named, and the scene beside them is not stopped."""
    write_raster(tmp_path / "scenes" / "a" / "twin_20200101.tif")
    write_raster(tmp_path / "scenes" / "b" / "twin_20200101.tif", _byte())
    write_raster(tmp_path / "scenes" / "other_20200101.tif")
    other, twin = look(source_config(tmp_path)).scenes
    assert other.verdict is A
    assert (twin.verdict, twin.kind) == (R, K.DUPLICATE_SCENE)
    assert "found two scenes of this name, 'a/twin_20200101.tif' and 'b/twin_20200101.tif'; allowed: one" in twin.reason


def test_an_unreadable_file_stops_no_other(tmp_path: Path) -> None:
    """A file that this account may not read is rejected by name, and the scene beside it is accepted."""
    if os.geteuid() != 0:
        _check_unreadable(tmp_path)
        return
    # root reads everything: become nobody, once everything that has to be loaded from root's own folders is loaded
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        _check_unreadable(root)


def _check_unreadable(root: Path) -> None:
    from assets.sources.pinning import MemoryPins

    write_raster(root / "scenes" / "open_20200101.tif")
    config, book = source_config(root), MemoryPins()
    look(config, book=book)
    write_raster(root / "scenes" / "shut_20200101.tif").chmod(0)
    user = os.geteuid()
    os.seteuid(65534 if user == 0 else user)
    try:
        listing = look(config, book=book)
    finally:
        os.seteuid(user)
    opened, shut = listing.scenes
    assert opened.verdict is A
    assert (shut.verdict, shut.kind) == (R, K.UNREADABLE)
    assert "'shut_20200101.tif': permissions: found that this account may not read it" in shut.reason


def test_patterns_do_not_lead_out_of_the_source(tmp_path: Path) -> None:
    """The name of the pattern used here is the one of the tests, and a scene beside the source folder is not found."""
    write_raster(tmp_path / "beside_20200101.tif")
    write_raster(tmp_path / "scenes" / "inside_20200101.tif")
    assert [scene.scene_id for scene in look(source_config(tmp_path, patterns=[DATED])).scenes] == ["inside_20200101"]
