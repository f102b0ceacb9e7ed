"""Finding scenes: grouping, settling, pins, time, and what happens when the source is not there."""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from assets.scenes.model import SceneVerdict, band_path, file_changed
from assets.sources.pinning import MemoryPins
from resources.errors import ConfigurationError, EnvironmentUnfit, ErrorKind
from resources.ledger import Ledger
from tests.support.sources import NOW, SHARED, declare, look, only, source_config, touch, write_raster

BY_BAND = "{name}_{date:%Y%m%d}_{band}.tif"
LANDSAT = [
    "{sensor}_{level}_{path_row}_{date:%Y%m%d}_{made}_{collection}_{tier}_{band}.TIF",
    "LT5{path_row:6}{date:%Y%j}{station}_{band}.tif",
]


def scenes_dir(root: Path) -> Path:
    folder = root / "scenes"
    folder.mkdir(exist_ok=True)
    return folder


def test_landsat_folders_are_scenes(tmp_path: Path) -> None:
    """Real Landsat scenes, one file per band in two naming schemes, are grouped, dated and placed."""
    folder = SHARED / "scenes"
    if not folder.is_dir():
        pytest.skip("needs ../shared/data/scenes, which lies beside the repository")
    config = source_config(tmp_path, patterns=LANDSAT, uri=str(folder), start="1999-01-01")
    listing = look(config, required=["B2", "B3", "B4"])
    assert [(scene.scene_id, scene.window, scene.crs) for scene in listing.accepted] == [
        ("LC08_L1TP_195025_20130707_20170503_01_T1", "2013-07", "EPSG:32632"),
        ("LE07_L1TP_195025_20010730_20170204_01_T1", "2001-07", "EPSG:32632"),
        ("LT05_L1TP_167055_20000309_20161214_01_T1", "2000-03", "EPSG:32637"),
        ("LT51670552010352MLK00", "2010-12", "EPSG:32637"),
    ]
    assert len(listing.scenes) == 4
    first = listing.scenes[0]
    assert (first.bands["B2"].dtype, first.bands["B2"].nodata, first.bands["B2"].width) == ("int16", -32768.0, 41)
    assert len(first.uris) == 12
    assert any(stranger.uri.endswith("_MTL.txt") for stranger in listing.strangers)


def test_a_file_that_stands_still_is_read_once(tmp_path: Path) -> None:
    """A second look hashes and opens nothing and finds the same; only a changed file is hashed and opened again."""
    folder, book = scenes_dir(tmp_path), MemoryPins()
    for name in ("a", "b"):
        write_raster(folder / f"{name}_20200101.tif", np.full((1, 8, 8), ord(name), "uint8"))
    config = source_config(tmp_path)
    first, second = look(config, book=book), look(config, book=book)
    assert (first.files_hashed, first.files_opened) == (2, 2)
    assert (second.files_hashed, second.files_opened) == (0, 0)
    assert second.scenes == first.scenes
    write_raster(folder / "a_20200101.tif", np.full((1, 8, 8), 9, "uint8"))
    third = look(config, book=book)
    assert (third.files_hashed, third.files_opened) == (1, 1)
    assert third.scenes[0].digest != first.scenes[0].digest
    assert third.scenes[1] == first.scenes[1]


def test_the_ledger_keeps_pins_and_facts(tmp_path: Path, ledger: Ledger) -> None:
    """With a ledger in place of memory, on either database, a second look hashes and opens nothing and finds the same."""
    folder = scenes_dir(tmp_path)
    write_raster(folder / "a b\n%_20200101.tif", nodata=7)
    (folder / "bad_20200101.tif").write_bytes(b"")
    config = source_config(tmp_path)
    first, second = look(config, book=ledger), look(config, book=ledger)
    assert (first.files_hashed, first.files_opened) == (2, 2)
    assert (second.files_hashed, second.files_opened) == (0, 0)
    assert second.scenes == first.scenes
    assert [scene.verdict for scene in first.scenes] == [SceneVerdict.ACCEPTED, SceneVerdict.REJECTED]


def test_equal_content_is_opened_once(tmp_path: Path) -> None:
    """Facts are kept by content, so a copied or moved file is hashed but not opened again."""
    book = MemoryPins()
    path = write_raster(scenes_dir(tmp_path) / "a_20200101.tif")
    look(source_config(tmp_path), book=book)
    path.rename(path.with_name("moved_20200101.tif"))
    listing = look(source_config(tmp_path), book=book)
    assert (listing.files_hashed, listing.files_opened) == (1, 0)
    assert only(listing).is_accepted


@pytest.mark.parametrize("suffix", [".aux.xml", ".ovr", ".msk", "tfw", "wld", "TFW"])
def test_a_sidecar_decides_the_digest_and_is_no_scene(tmp_path: Path, suffix: str) -> None:
    """A file beside a raster that decides its pixels or place changes the band's and the scene's digest when it changes."""
    path = write_raster(scenes_dir(tmp_path) / "a_20200101.tif")
    config = source_config(tmp_path, patterns=["{name}_{date:%Y%m%d}.{rest}"])
    book = MemoryPins()
    bare = only(look(config, book=book))
    side = path.with_name(path.name + suffix) if suffix.startswith(".") else path.with_suffix(f".{suffix}")
    if suffix in (".ovr", ".msk"):
        write_raster(side, np.zeros((1, 16, 16), "uint8"), crs=None)
    elif suffix == ".aux.xml":
        side.write_text("<PAMDataset/>")
    else:
        side.write_text("30\n0\n0\n-30\n500015\n4999985\n")
    beside = only(look(config, book=book))
    assert beside.digest != bare.digest
    assert beside.bands["b1"].digest != bare.bands["b1"].digest
    assert side.name in beside.uris


def test_the_digest_of_a_file_alone_is_its_sha256(tmp_path: Path) -> None:
    """Without sidecars the digest is the file's own, as sha256sum says it; band_path finds the file, file_changed trusts it."""
    import hashlib

    path = write_raster(scenes_dir(tmp_path) / "it's %20 ü_20200101.tif")
    band = only(look(source_config(tmp_path))).bands["b1"]
    assert band.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert band_path(band, tmp_path / "scenes") == path
    assert not file_changed(band, tmp_path / "scenes")
    touch(path, NOW)
    assert file_changed(band, tmp_path / "scenes")
    path.unlink()
    assert file_changed(band, tmp_path / "scenes")


# --- bands in files of their own


def test_a_scene_waits_for_its_bands(tmp_path: Path) -> None:
    """A scene whose bands are not all there waits, says for which, is not opened, and is accepted once the last has come."""
    folder, book = scenes_dir(tmp_path), MemoryPins()
    config = source_config(tmp_path, patterns=[BY_BAND])
    write_raster(folder / "S_20200101_red.tif")
    waiting = look(config, book=book, required=["red", "nir"])
    scene = only(waiting)
    assert (scene.verdict, scene.kind) == (SceneVerdict.WAITING, ErrorKind.MISSING_BAND)
    assert "bands: found red; allowed: also nir; waiting for them" in scene.reason
    assert (waiting.files_hashed, waiting.files_opened) == (0, 0)
    write_raster(folder / "S_20200101_nir.tif")
    scene = only(look(config, book=book, required=["red", "nir"]))
    assert scene.is_accepted
    assert list(scene.bands) == ["nir", "red"]


def test_bands_that_nobody_asks_for_are_left_shut(tmp_path: Path) -> None:
    """A band no product asks for is listed, neither hashed nor opened, and cannot reject its scene or change its digest."""
    folder = scenes_dir(tmp_path)
    config = source_config(tmp_path, patterns=[BY_BAND])
    write_raster(folder / "S_20200101_red.tif")
    before = only(look(config, required=["red"]))
    (folder / "S_20200101_thermal.tif").write_text("rubbish")
    listing = look(config, required=["red"])
    scene = only(listing)
    assert scene.is_accepted
    assert scene.digest == before.digest
    assert listing.files_hashed == 1
    assert scene.uris == ("S_20200101_red.tif", "S_20200101_thermal.tif")
    assert only(look(config)).verdict is SceneVerdict.REJECTED


def test_one_bad_band_rejects_its_scene_by_the_files_name(tmp_path: Path) -> None:
    """A scene with a corrupt band is rejected, and the message names the file, not only the scene."""
    folder = scenes_dir(tmp_path)
    write_raster(folder / "S_20200101_red.tif")
    (folder / "S_20200101_nir.tif").write_bytes(b"")
    scene = only(look(source_config(tmp_path, patterns=[BY_BAND]), required=["red", "nir"]))
    assert (scene.verdict, scene.kind) == (SceneVerdict.REJECTED, ErrorKind.EMPTY_FILE)
    assert scene.reason.startswith("'S_20200101_nir.tif': content: found an empty file")


def test_a_file_of_one_band_may_not_hold_several(tmp_path: Path) -> None:
    """A file whose name stands for one band and that holds three is rejected, since any choice among them would be a guess."""
    write_raster(scenes_dir(tmp_path) / "S_20200101_red.tif", np.zeros((3, 8, 8), "uint8"))
    scene = only(look(source_config(tmp_path, patterns=[BY_BAND])))
    assert (scene.verdict, scene.kind) == (SceneVerdict.REJECTED, ErrorKind.CONTRACT_VIOLATED)
    assert "bands: found 3 in a file whose name stands for one; allowed: 1" in scene.reason


def test_bands_of_one_file_are_named_by_the_configuration(tmp_path: Path) -> None:
    """Bands of a many-band file take their names from source.bands in order; what has no name is b3, b4 and so on."""
    write_raster(scenes_dir(tmp_path) / "S_20200101.tif", np.zeros((4, 8, 8), "uint8"))
    scene = only(look(source_config(tmp_path, bands=["red", "nir"])))
    assert {name: band.index for name, band in scene.bands.items()} == {"red": 1, "nir": 2, "b3": 3, "b4": 4}


def test_one_band_in_two_files_is_a_duplicate(tmp_path: Path) -> None:
    """Two files that claim one band of one scene make it a duplicate; both are named and neither is used."""
    folder = scenes_dir(tmp_path)
    for place in ("x", "y"):
        write_raster(folder / place / "S_20200101_red.tif")
    scene = only(look(source_config(tmp_path, patterns=[BY_BAND])))
    assert (scene.verdict, scene.kind) == (SceneVerdict.REJECTED, ErrorKind.DUPLICATE_SCENE)
    assert "'x/S_20200101_red.tif' and 'y/S_20200101_red.tif'" in scene.reason
    (folder / "y" / "S_20200101_red.tif").unlink()
    assert only(look(source_config(tmp_path, patterns=[BY_BAND]))).is_accepted


def test_a_whole_file_and_band_files_of_one_name_are_a_duplicate(tmp_path: Path) -> None:
    """A many-band file and single-band files under one scene name are two scenes."""
    folder = scenes_dir(tmp_path)
    write_raster(folder / "S_20200101_red.tif")
    write_raster(folder / "S_20200101.tif")
    scene = only(look(source_config(tmp_path, patterns=[BY_BAND, "{name}_{date:%Y%m%d}.tif"])))
    assert scene.kind is ErrorKind.DUPLICATE_SCENE


# --- settling


def test_a_file_still_being_written_is_not_taken(tmp_path: Path) -> None:
    """A file younger than settle_s is unsettled and untouched; once it has stood still for so long it is taken."""
    path = write_raster(scenes_dir(tmp_path) / "a_20200101.tif")
    config = source_config(tmp_path, settle_s=30)
    touch(path, NOW - timedelta(seconds=10))
    young = look(config)
    assert only(young).verdict is SceneVerdict.UNSETTLED
    assert "age: found 10.0 s since it was last written; allowed: 30 s (source.settle_s)" in only(young).reason
    assert (young.files_hashed, young.files_opened) == (0, 0)
    assert only(look(config, now=NOW + timedelta(seconds=20))).is_accepted


def test_a_known_file_needs_no_settling(tmp_path: Path) -> None:
    """A file that was pinned and stands as it was is settled, also when the clock went backwards."""
    path, book = write_raster(scenes_dir(tmp_path) / "a_20200101.tif"), MemoryPins()
    config = source_config(tmp_path, settle_s=30)
    touch(path, NOW - timedelta(seconds=60))
    assert only(look(config, book=book)).is_accepted
    assert only(look(config, book=book, now=NOW - timedelta(seconds=55))).is_accepted
    touch(path, NOW - timedelta(seconds=59))
    assert only(look(config, book=book, now=NOW - timedelta(seconds=55))).verdict is SceneVerdict.UNSETTLED


def test_a_modification_time_in_the_future_settles_by_the_change_of_status(tmp_path: Path) -> None:
    """A copied file whose mtime lies in the future settles by when it was really written, instead of never."""
    path = write_raster(scenes_dir(tmp_path) / "a_20200101.tif")
    touch(path, NOW + timedelta(days=365))
    assert only(look(source_config(tmp_path, settle_s=30))).is_accepted


def test_a_done_marker_says_that_a_scene_is_whole(tmp_path: Path) -> None:
    """A scene waits for its done marker and is taken with it however young; what was written after it must settle."""
    path = write_raster(scenes_dir(tmp_path) / "a_20200101.tif")
    touch(path, NOW)
    config = source_config(tmp_path, settle_s=30, done_marker="{scene}.done")
    scene = only(look(config))
    assert scene.verdict is SceneVerdict.WAITING
    assert "done marker: found none; allowed: 'a_20200101.done' beside its files" in scene.reason
    marker = path.with_name("a_20200101.done")
    marker.touch()
    touch(marker, NOW)
    listing = look(config)
    assert only(listing).is_accepted
    assert listing.strangers == ()
    touch(marker, NOW - timedelta(seconds=5))
    assert only(look(config)).verdict is SceneVerdict.UNSETTLED


# --- time


@pytest.mark.parametrize(
    ("name", "verdict", "said"),
    [
        ("a_19991231.tif", SceneVerdict.BEFORE_FIRST_WINDOW, "found 1999-12-31T00:00:00+00:00; allowed: from 2000-01-01"),
        ("a_20250101.tif", SceneVerdict.AFTER_LAST_WINDOW, "allowed: before 2025-01-01T00:00:00+00:00 (window.end)"),
        ("a_20991231.tif", SceneVerdict.IN_FUTURE, "in the future; allowed: up to now (2030-01-01"),
        ("a_20230230.tif", SceneVerdict.UNDATED, "found '20230230', which is no date"),
    ],
)
def test_a_scene_no_window_holds_is_listed_and_not_opened(tmp_path: Path, name: str, verdict: SceneVerdict, said: str) -> None:
    """Scenes before the first window, after the last, in the future or undated never vanish, and cost nothing."""
    write_raster(scenes_dir(tmp_path) / name)
    listing = look(source_config(tmp_path, end="2025-01-01"))
    scene = only(listing)
    assert (scene.verdict, scene.window) == (verdict, None)
    assert said in scene.reason
    assert (listing.files_hashed, listing.files_opened) == (0, 0)


def test_an_undated_name_is_told_what_to_do(tmp_path: Path) -> None:
    """A pattern without a date leaves scenes undated and says which setting helps."""
    write_raster(scenes_dir(tmp_path) / "a.tif")
    scene = only(look(source_config(tmp_path, patterns=["{scene}.tif"])))
    assert (scene.verdict, scene.kind) == (SceneVerdict.UNDATED, ErrorKind.NO_ACQUISITION_TIME)
    assert "source.acquired = tag or item" in scene.reason


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("2020:01:31 23:59:59", "2020-01"),
        ("2020-02-01T00:30:00+01:00", "2020-01"),
        ("2020-01-31T23:59:59", "2020-01"),
        ("2020-02-01", "2020-02"),
        ("20200201", "2020-02"),
        ("last tuesday", None),
    ],
)
def test_the_time_may_stand_in_a_tag(tmp_path: Path, text: str, window: str | None) -> None:
    """A time in a TIFF tag is read in the usual forms; without a zone it is UTC, and a window's edge belongs to the next."""
    write_raster(scenes_dir(tmp_path) / "a.tif", tags={"TIFFTAG_DATETIME": text})
    scene = only(look(source_config(tmp_path, patterns=["{scene}.tif"], acquired="tag")))
    assert scene.window == window
    assert scene.verdict is (SceneVerdict.ACCEPTED if window else SceneVerdict.UNDATED)
    if window is None:
        assert "found 'last tuesday' in tag TIFFTAG_DATETIME; allowed: a time like 2020:01:31 10:20:30" in scene.reason


def test_bands_that_disagree_about_the_time_leave_their_scene_undated(tmp_path: Path) -> None:
    """Two bands of one scene with two times are not guessed at."""
    folder = scenes_dir(tmp_path)
    write_raster(folder / "S_red.tif", tags={"TIFFTAG_DATETIME": "2020:01:01 00:00:00"})
    write_raster(folder / "S_nir.tif", tags={"TIFFTAG_DATETIME": "2021:01:01 00:00:00"})
    scene = only(look(source_config(tmp_path, patterns=["{scene}_{band}.tif"], acquired="tag")))
    assert scene.verdict is SceneVerdict.UNDATED
    assert "found more than one time in tag TIFFTAG_DATETIME" in scene.reason


# --- the source itself


def test_a_missing_source_stops(tmp_path: Path) -> None:
    """A source folder that is not there is a matter for a person, not an empty source."""
    with pytest.raises(EnvironmentUnfit) as caught:
        look(source_config(tmp_path))
    assert caught.value.kind is ErrorKind.SOURCE_MISSING
    assert "source.uri: found" in caught.value.message
    assert "allowed: a folder that exists" in caught.value.message


def test_an_empty_source_that_was_full_stops(tmp_path: Path) -> None:
    """An unmounted disk is an empty folder: with files known, an empty source stops instead of withdrawing every scene."""
    path, book = write_raster(scenes_dir(tmp_path) / "a_20200101.tif"), MemoryPins()
    config = source_config(tmp_path)
    look(config, book=book)
    path.unlink()
    with pytest.raises(EnvironmentUnfit, match=r"is empty, but 1 files of it are known; is it not mounted\?") as caught:
        look(config, book=book)
    assert caught.value.kind is ErrorKind.SOURCE_MISSING
    (tmp_path / "scenes" / "README").touch()
    assert look(config, book=book).scenes == ()


def test_a_folder_of_known_scenes_that_cannot_be_listed_stops() -> None:
    """A subfolder that held scenes and is shut now is no withdrawal: the run stops, and says what to do."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        config = source_config(root)
        write_raster(root / "scenes" / "a_20200101.tif")
        write_raster(root / "scenes" / "disk" / "b_20200101.tif")
        book = MemoryPins()
        assert len(look(config, book=book).accepted) == 2
        (root / "scenes" / "disk").chmod(0)
        user = os.geteuid()
        try:
            os.seteuid(user or 65_534)  # permissions do not bind root
            with pytest.raises(
                EnvironmentUnfit, match=r"source\.uri: folder 'disk' .*cannot be listed.*1 files.*allowed"
            ) as stopped:
                look(config, book=book)
        finally:
            os.seteuid(user)
            (root / "scenes" / "disk").chmod(0o755)
        assert stopped.value.kind is ErrorKind.SOURCE_MISSING


def test_a_bad_pattern_stops(tmp_path: Path) -> None:
    """A pattern that cannot be used is a matter of configuration, found before anything is listed."""
    with pytest.raises(ConfigurationError, match=r"source\.patterns: pattern '\{scene': "):
        look(source_config(tmp_path, patterns=["{scene"]))


def test_folders_are_searched_as_told(tmp_path: Path) -> None:
    """Scenes in folders below are found, unless recursive is off; hidden files and links to folders are left alone and listed."""
    folder = scenes_dir(tmp_path)
    write_raster(folder / "2020" / "north" / "a_20200101.tif")
    write_raster(folder / ".hidden_20200101.tif")
    (folder / "again").symlink_to(folder / "2020")
    listing = look(source_config(tmp_path))
    assert [scene.uris for scene in listing.scenes] == [("2020/north/a_20200101.tif",)]
    assert {stranger.uri: stranger.reason for stranger in listing.strangers} == {
        ".hidden_20200101.tif": "hidden (its name begins with a dot)",
        "again": "a link to a folder, which is not followed",
    }
    assert look(source_config(tmp_path, recursive=False)).scenes == ()


def test_a_file_that_changes_while_it_is_read_is_looked_at_again(tmp_path: Path) -> None:
    """A file that differs from the listing when it is hashed is unsettled, is not pinned, and is taken at the next look."""
    path = write_raster(scenes_dir(tmp_path) / "a_20200101.tif")

    class ChangesBeforeHashing(MemoryPins):
        def pins(self, uris):  # type: ignore[no-untyped-def]  # asked for after the listing, before the hashing
            os.utime(path, (1, 1))
            return super().pins(uris)

    book = ChangesBeforeHashing()
    scene = only(look(source_config(tmp_path), book=book))
    assert (scene.verdict, scene.kind) == (SceneVerdict.UNSETTLED, ErrorKind.INPUT_CHANGED)
    assert book.files == {}
    assert only(look(source_config(tmp_path), book=book)).is_accepted


def test_facts_are_not_kept_of_a_file_that_changed_between_digest_and_look(tmp_path: Path) -> None:
    """A file replaced after it was hashed is unsettled: what was seen in it is not kept under the digest of what it was."""
    path = write_raster(scenes_dir(tmp_path) / "a_20200101.tif")

    class ChangesAfterHashing(MemoryPins):
        def inspection(self, digests):  # type: ignore[no-untyped-def]  # asked for after the hashing, before the look
            declare(path, width=8, height=8)
            return super().inspection(digests)

    book = ChangesAfterHashing()
    scene = only(look(source_config(tmp_path), book=book))
    assert (scene.verdict, scene.kind) == (SceneVerdict.UNSETTLED, ErrorKind.INPUT_CHANGED)
    assert book.facts == {}


def test_limits_of_the_configuration_are_asked_anew(tmp_path: Path) -> None:
    """A file rejected for its size is looked at again when the limit is raised, though its content stands still."""
    path, book = write_raster(scenes_dir(tmp_path) / "a_20200101.tif"), MemoryPins()
    small = only(look(source_config(tmp_path, max_pixels=100), book=book))
    assert (small.verdict, small.kind) == (SceneVerdict.REJECTED, ErrorKind.TOO_LARGE)
    assert "size: found 32 x 32 pixels declared; allowed: up to 100 (source.max_pixels)" in small.reason
    assert only(look(source_config(tmp_path), book=book)).is_accepted
    assert path.exists()


def test_a_time_without_a_zone_is_utc(tmp_path: Path) -> None:
    """The clock may come without a zone; it is taken as UTC."""
    write_raster(scenes_dir(tmp_path) / "a_20200101.tif")
    scene = only(look(source_config(tmp_path), now=datetime(2030, 1, 1)))
    assert scene.acquired == datetime(2020, 1, 1, tzinfo=UTC)
