"""Tiles as files: Cloud Optimized GeoTIFFs that are equal byte by byte, say what they are, and are refused when they are not."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rasterio
from affine import Affine
from rio_cogeo import cog_validate

from assets.products.cog import read_tile_tags, validate_tile
from assets.products.model import SceneInput, TileRequest
from assets.products.render import render_tile
from resources.config_scenes import MaskConfig, ProductConfig
from resources.errors import ErrorKind, InputRejected, TransientError, UnitRejected, Verdict
from resources.gdal_safety import safe_env
from resources.verdicts import classify
from tests.support.pixels import UTM, rendered, scene_of, square, tile_request, write_raster

NORTH_UP = Affine(10, 0, 500_000, 0, -10, 5_000_000)
RGB = ("r", "g", "b")


def waves(bands: int, side: int = 300, dtype: str = "uint8", seed: int = 3) -> np.ndarray:
    """Closed form and integers only, so that it is the same on every machine."""
    rows, columns = np.mgrid[0:side, 0:side]
    base = np.stack([(rows * (3 + band) + columns * (5 + seed) + rows * columns // 97) % 251 + 1 for band in range(bands)])
    return base.astype(dtype) if dtype == "uint8" else (base * 17).astype(dtype)


@pytest.fixture
def scene(tmp_path: Path) -> SceneInput:
    path = write_raster(
        tmp_path / "source" / "scene.tif", waves(4), transform=NORTH_UP, tiled=True, blockxsize=128, blockysize=128
    )
    return scene_of(tmp_path / "source", path, ("r", "g", "b", "nir"))


BOX = square(UTM, 500_004, 4_999_993, 10.0, 256)


def request_for(scene: SceneInput, tmp_path: Path, **product: object) -> TileRequest:
    settings: dict[str, object] = {"name": "p", "bands": RGB, "dtype": "uint8", **product}
    return tile_request(ProductConfig.model_validate(settings), BOX, [scene], tmp_path / "source")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"nodata": 0},
        {"dtype": "uint16", "compression": "zstd"},
        {"dtype": "int16", "nodata": -1, "compression": "lzw"},
        {"dtype": "float32", "nodata": "nan", "compression": "lerc"},
        {"dtype": "float64", "compression": "none"},
        {"dtype": "uint32", "nodata": 0},
        {"dtype": "int8", "nodata": -128},
        {"compression": "jpeg"},
        {"compression": "webp"},
        {"bands": ("r", "g", "b", "nir")},
        {"bands": ("nir",), "resampling": "nearest"},
        {"bands": None, "expression": "(nir - r) / (nir + r); where(g > 100, g, b)", "dtype": "float32"},
    ],
    ids=str,
)
def test_tiles_are_valid_cogs_and_equal_byte_by_byte(scene: SceneInput, tmp_path: Path, settings: dict[str, object]) -> None:
    """Every dtype and compression is accepted by `rio cogeo validate` and by us, and a second render gives the same bytes."""
    if settings.get("bands", RGB) is None:
        settings = {**settings, "bands": ()}
    request = request_for(scene, tmp_path, **settings)
    out = tmp_path / "out" / ".staged-1-2-tile.tif"
    out.parent.mkdir()
    metrics = render_tile(request, out)
    validate_tile(request, out)
    assert cog_validate(out, strict=True, quiet=True) == (True, [], [])
    first = out.read_bytes()
    render_tile(request, out)
    assert out.read_bytes() == first
    assert os.listdir(out.parent) == [out.name]
    assert json.loads(json.dumps(metrics)) == metrics
    with safe_env(), rasterio.open(out) as tile:
        assert tile.count == len(metrics["bands"])
        assert "alpha" not in [colour.name for colour in tile.colorinterp]
        assert [flags[0].name for flags in tile.mask_flag_enums] == [
            "per_dataset" if tile.nodata is None else "nodata"
        ] * tile.count


def test_large_tiles_carry_overviews_inside(tmp_path: Path) -> None:
    """A tile wider than one block has overviews, and still leaves nothing beside itself."""
    path = write_raster(tmp_path / "s.tif", waves(1, 1300), transform=NORTH_UP)
    for nodata in (None, 0):
        product = ProductConfig(name="p", bands=("b1",), dtype="uint8", nodata=nodata)
        request = tile_request(product, square(UTM, 500_004, 4_999_993, 10.0, 1024), [scene_of(tmp_path, path)], tmp_path)
        out = tmp_path / "out" / "tile.tif"
        out.parent.mkdir(exist_ok=True)
        render_tile(request, out)
        validate_tile(request, out)
        assert cog_validate(out, strict=True, quiet=True) == (True, [], [])
        with safe_env(), rasterio.open(out) as tile:
            assert tile.overviews(1) == [2]
        assert os.listdir(out.parent) == ["tile.tif"]


def test_a_tile_says_what_it_is_made_from(scene: SceneInput, tmp_path: Path) -> None:
    """Key, version, window, sources by digest, what it lacks and its metrics are read back from the file alone."""
    product = ProductConfig(name="rgb", version="7", bands=RGB, dtype="uint8")
    request = tile_request(product, BOX, [scene], tmp_path / "source", missing_scenes=("bad_scene",))
    metrics = render_tile(request, tmp_path / "t.tif")
    tags = read_tile_tags(tmp_path / "t.tif")
    assert tags is not None
    assert (tags.unit_key, tags.product, tags.version, tags.window, tags.tile) == ("ab" * 32, "rgb", "7", "2024-01-01", "10-1-2")
    assert tags.sources == ({name: scene.bands[name].digest for name in RGB},)
    assert tags.lacks == ("bad_scene",)
    assert tags.metrics == metrics
    assert metrics["scenes_used"] == [0]
    assert metrics["valid_share"] == 1.0
    foreign = write_raster(tmp_path / "foreign.tif", waves(1), transform=NORTH_UP)
    assert read_tile_tags(foreign) is None


def test_the_bytes_do_not_depend_on_place_or_process(scene: SceneInput, tmp_path: Path) -> None:
    """Another process, folder, cache size, name and time of the scene, and bands nobody asked for, give the same bytes."""
    request = request_for(scene, tmp_path)
    render_tile(request, tmp_path / "a.tif")
    script = (
        "import pickle, sys; from dataclasses import replace; from pathlib import Path\n"
        "from assets.products.render import render_tile\n"
        "request = replace(pickle.loads(sys.stdin.buffer.read()), gdal_cache_mb=8)\n"
        "scene = request.scenes[0]\n"
        "scene = replace(scene, scene_id='other', digest='f' * 64, acquired=scene.acquired.replace(day=9))\n"
        "scene = replace(scene, bands={name: band for name, band in scene.bands.items() if name != 'nir'})\n"
        "request = replace(request, scenes=(scene,))\n"
        "render_tile(request, Path(sys.argv[1]))\n"
    )
    target = tmp_path / "elsewhere" / "b.tif"
    target.parent.mkdir()
    environment = {**os.environ, "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    command = [sys.executable, "-c", script, str(target)]
    subprocess.run(command, input=pickle.dumps(request), check=True, env=environment, cwd=Path(__file__).parents[2])
    assert target.read_bytes() == (tmp_path / "a.tif").read_bytes()


GOLDEN = {
    "rgb": "188e12aaa1e76493",
    "ndvi": "a397528d55cc7ffc",
    "masked": "f539ade0d8cd394f",
    "mean": "25fade5a9ab4ca25",
    "rescaled": "4e872b213f35c744",
}


def golden_requests(directory: Path) -> dict[str, TileRequest]:
    """Fixed inputs for every step that can change a pixel."""
    first = write_raster(directory / "a.tif", waves(4, dtype="uint16"), transform=NORTH_UP, nodata=0, overviews=[2, 4])
    second = write_raster(directory / "b.tif", waves(4, dtype="uint16", seed=11), transform=NORTH_UP, nodata=17)
    scenes = [scene_of(directory, path, ("r", "g", "b", "qa"), day=day) for day, path in ((2, first), (1, second))]
    mercator = square("EPSG:3857", 1_002_700, 5_644_900, 14.5, 128)
    coarse = square("EPSG:3857", 1_002_700, 5_644_900, 60.0, 64)
    base = {"name": "p", "bands": RGB, "dtype": "uint16"}
    settings: dict[str, tuple[dict[str, object], object]] = {
        "rgb": ({**base, "resampling": "cubic"}, mercator),
        "ndvi": (
            {"name": "p", "expression": "(b - r) / (b + r)", "dtype": "float32", "nodata": "nan", "compositing": "max"},
            mercator,
        ),
        "masked": ({**base, "nodata": 0, "masks": (MaskConfig(band="qa", bits=(3, 5)),), "resampling": "nearest"}, mercator),
        "mean": ({**base, "compositing": "mean", "resampling": "average"}, coarse),
        "rescaled": ({**base, "dtype": "uint8", "rescale": (100, 4000), "resampling": "lanczos"}, coarse),
    }
    return {
        name: tile_request(ProductConfig.model_validate(product), box, scenes, directory)  # type: ignore[arg-type]
        for name, (product, box) in settings.items()
    }


def test_pixels_of_fixed_inputs_do_not_change(tmp_path: Path) -> None:
    """Golden digests: who changes a pixel must raise RENDER_VERSION and write the new digests here."""
    found = {}
    for name, request in golden_requests(tmp_path).items():
        values, valid = rendered(request, tmp_path / "t.tif")
        assert 0.1 < valid.mean() <= 1.0
        content = values.tobytes() if values.dtype.kind != "f" else np.round(np.nan_to_num(values, nan=9), 5).tobytes()
        found[name] = hashlib.sha256(content + np.packbits(valid).tobytes()).hexdigest()[:16]
    assert found == GOLDEN


def test_a_corrupt_block_rejects_the_scene(scene: SceneInput, tmp_path: Path) -> None:
    """A block that does not decode is the scene's fault, by digest, whatever tile met it; tiles beside it are made."""
    broken = tmp_path / "source" / "broken.tif"
    write_raster(broken, waves(1), transform=NORTH_UP, tiled=True, blockxsize=128, blockysize=128, compress="deflate")
    with safe_env(), rasterio.open(broken) as source:
        offset = int(source.get_tag_item("BLOCK_OFFSET_0_0", "TIFF", bidx=1))
    content = bytearray(broken.read_bytes())
    content[offset : offset + 200] = b"\x00\xff" * 100
    broken.write_bytes(content)
    bad = scene_of(tmp_path / "source", broken)
    product = ProductConfig(name="p", bands=("b1",), dtype="uint8")
    with pytest.raises(InputRejected) as caught:
        render_tile(tile_request(product, BOX, [bad], tmp_path / "source"), tmp_path / "t.tif")
    assert caught.value.input_digest == bad.digest
    assert caught.value.kind is ErrorKind.CORRUPT_INPUT
    assert "broken.tif" in caught.value.message
    assert not (tmp_path / "t.tif").exists()
    beside = square(UTM, 501_600, 4_998_400, 10.0, 128)
    render_tile(tile_request(product, beside, [bad], tmp_path / "source"), tmp_path / "t.tif")


@pytest.mark.parametrize("share", [0.98, 0.5])
def test_a_truncated_file_rejects_the_scene(tmp_path: Path, share: float) -> None:
    """A file that was cut off opens, and is refused when its pixels are asked for."""
    path = write_raster(tmp_path / "cut.tif", waves(3), transform=NORTH_UP)
    good = scene_of(tmp_path, path, RGB)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    found = path.stat()
    bands = {
        name: type(band)(**{**{field: getattr(band, field) for field in band.__slots__}, "size_bytes": found.st_size,
                            "mtime_ns": found.st_mtime_ns})
        for name, band in good.bands.items()
    }  # fmt: skip
    cut = SceneInput(good.scene_id, good.acquired, good.digest, bands)
    product = ProductConfig(name="p", bands=RGB, dtype="uint8")
    with pytest.raises(InputRejected) as caught:
        render_tile(tile_request(product, square(UTM, 500_000, 5_000_000, 10.0, 304), [cut], tmp_path), tmp_path / "t.tif")
    assert caught.value.input_digest == cut.digest


def test_a_source_that_changed_underfoot_is_tried_again(scene: SceneInput, tmp_path: Path) -> None:
    """A file that is not the one that was pinned, or is gone, is RETRY, also when what is there now cannot be read."""
    request = request_for(scene, tmp_path)
    source = tmp_path / "source" / "scene.tif"
    for change in (lambda: os.utime(source, ns=(1, 1)), lambda: source.write_bytes(b"II*\0 still being copied"), source.unlink):
        change()
        with pytest.raises(TransientError) as caught:
            render_tile(request, tmp_path / "t.tif")
        assert caught.value.kind is ErrorKind.INPUT_CHANGED


def test_a_scene_without_a_band_is_refused_by_name(scene: SceneInput, tmp_path: Path) -> None:
    """A missing band names scene, product, band and what there is."""
    with pytest.raises(InputRejected, match="scene scene: product p needs band swir; the scene has b, g, nir, r") as caught:
        render_tile(request_for(scene, tmp_path, bands=("r", "swir")), tmp_path / "t.tif")
    assert caught.value.kind is ErrorKind.MISSING_BAND


def test_validation_refuses_what_was_not_asked_for(scene: SceneInput, tmp_path: Path) -> None:
    """Another key, size, band count, dtype, nodata, place or CRS, a plain TIFF and a damaged file are each refused by name."""
    out = tmp_path / "t.tif"
    request = request_for(scene, tmp_path)
    render_tile(request, out)
    validate_tile(request, out)
    others = {
        "unit key": {"unit_key": "cd" * 32},
        "bounds": {"box": square(UTM, 500_014, 4_999_993, 10.0, 256)},
        "crs": {"box": square("EPSG:32633", 500_004, 4_999_993, 10.0, 256)},
        "width": {"box": square(UTM, 500_004, 4_999_993, 10.0, 128)},
        "bands": {"product": ProductConfig(name="p", bands=("r",), dtype="uint8")},
        "dtype": {"product": ProductConfig(name="p", bands=RGB, dtype="uint16")},
        "nodata": {"product": ProductConfig(name="p", bands=RGB, dtype="uint8", nodata=0)},
    }
    for fact, change in others.items():
        with pytest.raises(UnitRejected, match=fact) as caught:
            validate_tile(replace(request, **change), out)
        assert caught.value.kind is ErrorKind.INVALID_OUTPUT
    content = out.read_bytes()
    for damage in (content[:-3000], content[: len(content) // 2], b"", b"<VRTDataset/>", content[:8] + bytes(len(content) - 8)):
        out.write_bytes(damage)
        with pytest.raises(UnitRejected) as caught:
            validate_tile(request, out)
        assert caught.value.kind is ErrorKind.INVALID_OUTPUT
    out.write_bytes(content)
    with safe_env(), rasterio.open(out) as tile:
        offset = int(tile.get_tag_item("BLOCK_OFFSET_0_0", "TIFF", bidx=1))
    out.write_bytes(content[: offset + 50] + bytes(64) + content[offset + 114 :])
    with pytest.raises(UnitRejected):
        validate_tile(request, out)


def test_a_tile_without_scenes_is_empty(tmp_path: Path) -> None:
    """No scene, or none that reaches the tile, gives a valid tile in which every pixel is absent."""
    path = write_raster(tmp_path / "far.tif", waves(1), transform=NORTH_UP)
    product = ProductConfig(name="p", bands=("b1",), dtype="uint8")
    far = square(UTM, 700_000, 4_000_000, 10.0, 64)
    for scenes in ([], [scene_of(tmp_path, path)]):
        request = tile_request(product, far, scenes, tmp_path)
        metrics = render_tile(request, tmp_path / "t.tif")
        validate_tile(request, tmp_path / "t.tif")
        assert metrics == {"valid_share": 0.0, "bands": [{"name": "b1", "valid": 0}], "scenes_used": []}


def test_a_scene_that_cannot_be_seen_is_not_read(scene: SceneInput, tmp_path: Path) -> None:
    """Once every pixel is filled, later scenes are left alone: a broken one below costs nothing and rejects nothing."""
    below = write_raster(tmp_path / "source" / "below.tif", waves(3), transform=NORTH_UP)
    hidden = scene_of(tmp_path / "source", below, RGB)
    below.unlink()
    product = ProductConfig(name="p", bands=RGB, dtype="uint8")
    metrics = render_tile(tile_request(product, BOX, [scene, hidden], tmp_path / "source"), tmp_path / "t.tif")
    assert metrics["scenes_used"] == [0]
    last = product.model_copy(update={"compositing": "last"})
    render_tile(tile_request(last, BOX, [hidden, scene], tmp_path / "source"), tmp_path / "t.tif")


@pytest.mark.parametrize("nodata", [-9999, 300, 1e30, float("nan")])
def test_nodata_that_no_pixel_can_hold_hides_nothing(tmp_path: Path, nodata: float) -> None:
    """A byte file that says nodata is -9999, or NaN, has every pixel."""
    path = write_raster(tmp_path / "s.tif", waves(1), transform=NORTH_UP)
    with safe_env(), rasterio.open(path, "r+") as source:
        source.nodata = nodata
    product = ProductConfig(name="p", bands=("b1",), dtype="uint8")
    _, valid = rendered(tile_request(product, BOX, [scene_of(tmp_path, path)], tmp_path), tmp_path / "t.tif")
    assert valid.all()


def test_a_full_disk_is_the_systems_own_error(scene: SceneInput, tmp_path: Path) -> None:
    """When no space is left the error keeps its number, so that the run stops and no unit is blamed."""
    with pytest.raises(OSError, match="No space left") as caught:
        render_tile(request_for(scene, tmp_path), Path("/dev/full"))
    assert caught.value.errno == errno.ENOSPC
    failure = classify(caught.value)
    assert (failure.verdict, failure.kind) == (Verdict.STOP, ErrorKind.DISK_FULL)
