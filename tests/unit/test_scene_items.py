"""STAC items beside the files: bands, time, places, and what an item may not do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from assets.scenes.model import Scene, SceneListing, SceneVerdict
from assets.scenes.stac_items import local_path, read_item
from resources.errors import ErrorKind
from tests.support.sources import look, only, source_config, write_item, write_raster

WHEN = "2020-01-01T10:20:30Z"


def look_by_item(root: Path, *, required: tuple[str, ...] = ()) -> SceneListing:
    return look(source_config(root, acquired="item"), required=required)


def one(root: Path, assets: dict[str, object], *, required: tuple[str, ...] = (), when: str | None = WHEN) -> Scene:
    write_item(root / "scenes" / "S" / "item.json", item_id="S", when=when, assets=assets)
    return only(look_by_item(root, required=required))


def test_an_item_names_scene_bands_and_time(tmp_path: Path) -> None:
    """Assets of an item become bands by their keys, whatever the files are called, and its datetime is the scene's."""
    for name in ("x1.tif", "x2.tif"):
        write_raster(tmp_path / "scenes" / "S" / name)
    scene = one(tmp_path, {"red": {"href": "./x1.tif"}, "nir": {"href": "x2.tif"}, "thumbnail": {"href": "t.png"}})
    assert scene.is_accepted
    assert {name: band.uri for name, band in scene.bands.items()} == {"red": "S/x1.tif", "nir": "S/x2.tif"}
    assert scene.acquired is not None
    assert scene.acquired.isoformat() == "2020-01-01T10:20:30+00:00"
    assert "S/item.json" in scene.uris


def test_described_bands_have_names_too(tmp_path: Path) -> None:
    """A band asked for may be one that an asset of many bands describes, by eo:bands or bands; a file of its own comes first."""
    write_raster(tmp_path / "scenes" / "S" / "all.tif", np.zeros((3, 8, 8), "uint8"))
    write_raster(tmp_path / "scenes" / "S" / "nir.tif")
    assets = {
        "visual": {"href": "all.tif", "eo:bands": [{"name": "B04"}, {"name": "B03"}, {"name": "B08"}]},
        "near": {"href": "nir.tif", "eo:bands": [{"name": "B08"}]},
    }
    scene = one(tmp_path, assets, required=("B03", "B08"))
    assert scene.is_accepted, scene.reason
    assert {name: (band.uri, band.index) for name, band in scene.bands.items()} == {
        "B03": ("S/all.tif", 2),
        "B08": ("S/nir.tif", 1),
    }


def test_scale_and_offset_of_an_item_decide_the_digest(tmp_path: Path) -> None:
    """An item's scale and offset go before the file's own, and change the band's digest when they change, since pixels follow."""
    write_raster(tmp_path / "scenes" / "S" / "red.tif")
    plain = one(tmp_path, {"red": {"href": "red.tif"}})
    scaled = one(tmp_path, {"red": {"href": "red.tif", "raster:bands": [{"scale": 0.0001, "offset": -0.1}]}})
    newer = one(tmp_path, {"red": {"href": "red.tif", "bands": [{"raster:scale": 0.0001, "raster:offset": -0.2}]}})
    assert (plain.bands["red"].scale, plain.bands["red"].offset) == (1.0, 0.0)
    assert (scaled.bands["red"].scale, scaled.bands["red"].offset) == (0.0001, -0.1)
    assert newer.bands["red"].offset == -0.2
    assert len({scene.bands["red"].digest for scene in (plain, scaled, newer)}) == 3
    assert len({scene.digest for scene in (plain, scaled, newer)}) == 3


def test_an_item_whose_file_is_not_there_waits(tmp_path: Path) -> None:
    """A file that an item promises and that has not come makes the scene wait, by the band's name."""
    write_raster(tmp_path / "scenes" / "S" / "red.tif")
    scene = one(tmp_path, {"red": {"href": "red.tif"}, "nir": {"href": "nir.tif"}}, required=("red", "nir"))
    assert (scene.verdict, scene.kind) == (SceneVerdict.WAITING, ErrorKind.MISSING_BAND)
    assert "found red; allowed: also nir; waiting" in scene.reason


def test_an_item_without_a_band_that_is_asked_for_is_rejected(tmp_path: Path) -> None:
    """A band the item does not name cannot come later, so the scene is rejected and not left waiting."""
    write_raster(tmp_path / "scenes" / "S" / "red.tif")
    scene = one(tmp_path, {"red": {"href": "red.tif"}}, required=("red", "nir"))
    assert (scene.verdict, scene.kind) == (SceneVerdict.REJECTED, ErrorKind.MISSING_BAND)
    assert "which its STAC item does not name" in scene.reason


@pytest.mark.parametrize(
    "href",
    [
        "https://example.org/red.tif",
        "s3://bucket/red.tif",
        "/vsicurl/http://example.org/red.tif",
        "//example.org/red.tif",
        "../../red.tif",
        "..%2F..%2Fred.tif",
        "/etc/passwd",
        "file:///etc/passwd",
        "file://example.org/red.tif",
        "..",
    ],
)
def test_an_href_may_not_leave_the_source(tmp_path: Path, href: str) -> None:
    """An href to another machine or out of the source folder is refused by name and never followed."""
    write_raster(tmp_path / "red.tif")
    scene = one(tmp_path, {"red": {"href": href}}, required=("red",))
    assert (scene.verdict, scene.kind) == (SceneVerdict.REJECTED, ErrorKind.CONTRACT_VIOLATED)
    assert f"'S/item.json': href of red: found {href!r}; allowed: a path inside the source folder" in scene.reason


@pytest.mark.parametrize(
    "form", ["../other/a b.tif", "../other/a%20b.tif", "{root}/other/a b.tif", "file://{root}/other/a%20b.tif"]
)
def test_an_href_may_point_anywhere_inside(tmp_path: Path, form: str) -> None:
    """Relative, absolute and file hrefs work inside the source folder, with spaces written either way."""
    write_raster(tmp_path / "scenes" / "other" / "a b.tif")
    scene = one(tmp_path, {"red": {"href": form.format(root=tmp_path / "scenes")}})
    assert scene.is_accepted, scene.reason
    assert scene.bands["red"].uri == "other/a b.tif"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": 7}, "id: found 7; allowed: text"),
        ({"assets": []}, "properties and assets: found something else"),
        ({"properties": {"datetime": "yesterday"}}, "properties.datetime: found 'yesterday'; allowed: a time by RFC 3339"),
        ({"assets": {"red": {}}}, "assets.'red'.href: found None; allowed: a path relative to the item"),
    ],
)
def test_a_broken_item_is_told_its_field(tmp_path: Path, change: dict[str, object], said: str) -> None:
    """An item that is not what the format says is rejected with its file, field, what was found and what is allowed."""
    path = write_item(tmp_path / "scenes" / "item.json", item_id="S", when=WHEN, assets={"red": {"href": "red.tif"}})
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    scene = only(look_by_item(tmp_path))
    assert (scene.verdict, scene.kind) == (SceneVerdict.REJECTED, ErrorKind.CONTRACT_VIOLATED)
    assert scene.reason == f"'item.json': {said}" or scene.reason.startswith(f"'item.json': {said}")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"type": "FeatureCollection"}', b'{"type": "Feature"}', b"[" * 100_000, b"\xff\xfe"]
)
def test_other_documents_are_no_items(content: bytes) -> None:
    """JSON that is no STAC item, and what is no JSON at all, is left alone."""
    assert read_item(content, fallback_id="x") is None


def test_a_time_span_begins_at_its_start(tmp_path: Path) -> None:
    """An item without a datetime is dated by its start_datetime; with neither it is undated."""
    write_raster(tmp_path / "scenes" / "S" / "red.tif")
    assert one(tmp_path, {"red": {"href": "red.tif"}}, when=None).verdict is SceneVerdict.UNDATED
    path = tmp_path / "scenes" / "S" / "item.json"
    document = json.loads(path.read_text())
    document["properties"]["start_datetime"] = "2020-05-31T23:00:00-02:00"
    path.write_text(json.dumps(document))
    assert only(look_by_item(tmp_path)).window == "2020-06"


def test_a_file_an_item_names_is_no_scene_of_its_own(tmp_path: Path) -> None:
    """Files of an item's assets are not grouped by name as well, also those of bands that nobody asks for."""
    write_raster(tmp_path / "scenes" / "S" / "S_20200101.tif")
    write_raster(tmp_path / "scenes" / "S" / "T_20200101.tif")
    scene = one(tmp_path, {"red": {"href": "S_20200101.tif"}, "nir": {"href": "T_20200101.tif"}}, required=("red",))
    assert scene.scene_id == "S"


def test_two_items_of_one_id_are_a_duplicate(tmp_path: Path) -> None:
    """Two items with one id are two scenes of one name, and both are named."""
    for folder in ("a", "b"):
        write_raster(tmp_path / "scenes" / folder / "red.tif")
        write_item(tmp_path / "scenes" / folder / "item.json", item_id="S", when=WHEN, assets={"red": {"href": "red.tif"}})
    scene = only(look_by_item(tmp_path))
    assert scene.kind is ErrorKind.DUPLICATE_SCENE
    assert "'a/item.json' and 'b/item.json'" in scene.reason


def test_local_paths_are_normal() -> None:
    """An href is resolved against its item's folder, without dots left in it."""
    assert local_path("./a/../b.tif", folder="x/y", source_dir="/s") == ("x/y/b.tif",)
    assert local_path("../b.tif", folder="x/y", source_dir="/s") == ("x/b.tif",)
    assert local_path("../../../b.tif", folder="x/y", source_dir="/s") == ()
    assert local_path("/s2/b.tif", folder="", source_dir="/s") == ()
