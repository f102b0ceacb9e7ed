"""Products over whole scenes: bands of unlike resolution, masks, scale and offset, unlike scenes, real Landsat files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import rasterio
from affine import Affine
from rasterio.warp import transform

from assets.grid import TileBox
from assets.products.model import SceneInput, order_scenes
from assets.products.render import render_tile
from resources.config_scenes import MaskConfig, ProductConfig
from resources.errors import UnitRejected
from resources.gdal_safety import safe_env
from tests.support.pixels import SHARED_SCENES, UTM, gdalwarp, rendered, scene_of, square, tile_request, write_raster

NORTH_UP = Affine(10, 0, 500_000, 0, -10, 5_000_000)
ALIGNED = square(UTM, 500_000, 5_000_000, 10.0, 64)


def flat(value: float, dtype: str = "uint16", side: int = 64, bands: int = 1) -> np.ndarray:
    return np.full((bands, side, side), value, dtype=dtype)


def product_of(**settings: object) -> ProductConfig:
    return ProductConfig.model_validate({"name": "p", "dtype": "uint16", "resampling": "nearest", **settings})


def values_of(
    product: ProductConfig, scenes: Sequence[SceneInput], directory: Path, box: TileBox = ALIGNED
) -> tuple[np.ndarray, np.ndarray]:
    return rendered(tile_request(product, box, scenes, directory), directory / "tile.tif")


def test_bands_of_different_resolution_meet_on_one_grid(tmp_path: Path) -> None:
    """A 15 m band beside 30 m bands, in one file per band: each equals its own gdalwarp, whatever it is read with."""
    rng = np.random.default_rng(5)
    write_raster(
        tmp_path / "x_B4.tif",
        rng.integers(1, 9000, (1, 200, 200)).astype("int16"),
        transform=Affine(30, 0, 483_285, 0, -30, 5_628_525),
    )
    write_raster(
        tmp_path / "x_B8.tif",
        rng.integers(1, 9000, (1, 400, 400)).astype("int16"),
        transform=Affine(15, 0, 483_277.5, 0, -15, 5_628_517.5),
    )
    scene = scene_of(tmp_path, {"x_B4.tif": ["B4"], "x_B8.tif": ["B8"]})
    box = square(UTM, 483_300, 5_628_500, 15.0, 256)
    for resampling, name in (("nearest", "near"), ("bilinear", "bilinear"), ("average", "average")):
        product = product_of(bands=("B8", "B4", "B8"), dtype="int16", resampling=resampling, nodata=-32768)
        values, _ = values_of(product, [scene], tmp_path, box)
        for position, file in ((0, "x_B8.tif"), (1, "x_B4.tif"), (2, "x_B8.tif")):
            reference = gdalwarp([tmp_path / file], tmp_path / "w.tif", box, "-r", name, "-dstnodata", "-32768")
            assert np.abs(values[position].astype(int) - reference[0]).max() <= (0 if resampling == "nearest" else 1)


def test_ndvi_of_a_scene_has_its_closed_form(tmp_path: Path) -> None:
    """NDVI from unsigned bands, with a division by zero and nodata, in float32 and scaled to int16."""
    red, nir = flat(0), flat(0)
    red[0, :, :32], nir[0, :, :32] = 1000, 3000
    red[0, 0], nir[0, 0] = 3000, 1000
    red[0, 1] = 65535
    write_raster(tmp_path / "s_red.tif", red, transform=NORTH_UP, nodata=65535)
    write_raster(tmp_path / "s_nir.tif", nir, transform=NORTH_UP, nodata=65535)
    scene = scene_of(tmp_path, {"s_red.tif": ["red"], "s_nir.tif": ["nir"]})
    ndvi = "(nir - red) / (nir + red)"
    values, valid = values_of(product_of(expression=ndvi, dtype="float32", nodata="nan"), [scene], tmp_path)
    assert (values[0, 2:, :32] == 0.5).all()
    assert (values[0, 0] == -0.5).all()
    assert not valid[0, 1].any()
    assert not valid[0, 2:, 32:].any()
    values, valid = values_of(product_of(expression=f"10000 * {ndvi}", dtype="int16", nodata=-32768), [scene], tmp_path)
    assert (values[0, 2:, :32] == 5000).all()
    assert (values[0, 2:, 32:] == -32768).all()


def test_masks_are_read_nearest_at_full_resolution(tmp_path: Path) -> None:
    """Bits of a QA band are never averaged: with overviews and a smooth resampling, the mask is that of the exact pixel."""
    rng = np.random.default_rng(6)
    quality = (rng.integers(0, 2, (1, 512, 512)) * 8 + rng.integers(0, 2, (1, 512, 512))).astype("uint16")
    write_raster(tmp_path / "v.tif", flat(700, side=512), transform=NORTH_UP, overviews=[2, 4], tiled=True)
    write_raster(tmp_path / "qa.tif", quality, transform=NORTH_UP, overviews=[2, 4], tiled=True)
    scene = scene_of(tmp_path, {"v.tif": ["v"], "qa.tif": ["qa"]})
    product = product_of(bands=("v",), masks=(MaskConfig(band="qa", bits=(3,)),), resampling="average")
    box = square(UTM, 500_000, 5_000_000, 40.0, 64)
    _, valid = values_of(product, [scene], tmp_path, box)
    assert np.array_equal(valid[0], (quality[0, 2::4, 2::4][:64, :64] & 8) == 0)


def test_pixels_beyond_the_qa_band_are_left_out(tmp_path: Path) -> None:
    """No quality is no good quality: outside the QA band and where it is nodata, pixels are absent."""
    write_raster(tmp_path / "v.tif", flat(7), transform=NORTH_UP)
    quality = np.zeros((1, 32, 64), dtype="int16")
    quality[0, :, :8] = -32768
    write_raster(tmp_path / "qa.tif", quality, transform=NORTH_UP, nodata=-32768)
    scene = scene_of(tmp_path, {"v.tif": ["v"], "qa.tif": ["qa"]})
    _, valid = values_of(product_of(bands=("v",), masks=(MaskConfig(band="qa", bits=(4,)),)), [scene], tmp_path)
    assert not valid[0, 32:].any()
    assert not valid[0, :, :8].any()
    assert valid[0, :32, 8:].all()


def test_masks_of_floats_are_refused(tmp_path: Path) -> None:
    """A float band has no bits: the unit is refused and the message says so."""
    write_raster(tmp_path / "v.tif", flat(7, "float32"), transform=NORTH_UP)
    scene = scene_of(tmp_path, tmp_path / "v.tif", ["v"])
    product = product_of(bands=("v",), masks=(MaskConfig(band="v", values=(7,)),))
    with pytest.raises(UnitRejected, match="mask band 'v': found dtype float32"):
        render_tile(tile_request(product, ALIGNED, [scene], tmp_path), tmp_path / "t.tif")


def test_scale_and_offset_are_applied_once_each_scene_its_own(tmp_path: Path) -> None:
    """Two processing baselines side by side: (DN - 1000) / 10000 beside DN / 10000; small numbers go below zero, not round."""
    new = flat(1500)
    new[0, 0] = 400
    new[0, 1] = 0
    write_raster(tmp_path / "new.tif", new, transform=NORTH_UP, nodata=0, scales=(1e-4,), offsets=(-0.1,))
    write_raster(
        tmp_path / "old.tif", flat(500), transform=NORTH_UP @ Affine.translation(32, 0), nodata=0, scales=(1e-4,), offsets=(0.0,)
    )
    scenes = [scene_of(tmp_path, tmp_path / f"{name}.tif") for name in ("new", "old")]
    values, valid = values_of(product_of(bands=("b1",), dtype="float32", nodata="nan", apply_scale=True), scenes, tmp_path)
    assert values[0, 5] == pytest.approx(0.05)
    assert values[0, 0] == pytest.approx(-0.06)
    assert not valid[0, 1, :32].any()
    assert values[0, 1, 32:] == pytest.approx(0.05)
    raw, _ = values_of(product_of(bands=("b1",), nodata=0), scenes, tmp_path)
    assert (raw[0, 5] == 1500).all()


def test_scenes_with_unlike_nodata_crs_and_dtype_are_composed(tmp_path: Path) -> None:
    """Each scene's absence is its own: one scene's nodata is another's value, and a scene without nodata hides nothing else."""
    first = flat(255, "uint8")
    first[0, :, :16] = 0
    write_raster(tmp_path / "first.tif", first, transform=NORTH_UP, nodata=0)
    second = flat(0, "int16")
    second[0, :, 8:12] = -5
    write_raster(tmp_path / "second.tif", second, transform=NORTH_UP, nodata=-5)
    third = flat(np.nan, "float32")
    third[0, :32] = 300.6
    write_raster(tmp_path / "third.tif", third, transform=NORTH_UP)
    scenes = [scene_of(tmp_path, tmp_path / f"{name}.tif") for name in ("first", "second", "third")]
    values, valid = values_of(product_of(bands=("b1",), dtype="int16"), scenes, tmp_path)
    assert (values[0, :, 16:] == 255).all()
    assert (values[0, :, :8] == 0).all()
    assert (values[0, :32, 8:12] == 301).all()
    assert valid[0, :, :8].all()
    assert not valid[0, 32:, 8:12].any()


def test_composites_over_a_tile_equal_numpys_over_its_scenes(tmp_path: Path) -> None:
    """Mean, median, min and max of sixteen shifted scenes of bright uint16 pixels equal numpy's over the stack."""
    rng = np.random.default_rng(8)
    stack = np.full((16, 64, 64), np.nan)
    scenes = []
    for number in range(16):
        array = rng.integers(60_000, 65_535, (1, 64, 64)).astype("uint16")
        array[rng.random(array.shape) < 0.2] = 0
        write_raster(tmp_path / f"s{number:02d}.tif", array, transform=NORTH_UP @ Affine.translation(number, 0), nodata=0)
        scenes.append(scene_of(tmp_path, tmp_path / f"s{number:02d}.tif", day=number + 1))
        stack[number, :, number:] = np.where(array[0] == 0, np.nan, array[0])[:, : 64 - number]
    covered = ~np.isnan(stack).all(axis=0)
    assert covered.mean() > 0.9
    stack[:, ~covered] = 0
    for method, numpys in (("mean", np.nanmean), ("median", np.nanmedian), ("min", np.nanmin), ("max", np.nanmax)):
        product = product_of(bands=("b1",), compositing=method, nodata=0)
        values, valid = values_of(product, order_scenes(product, scenes), tmp_path)
        assert np.array_equal(valid[0], covered)
        assert np.array_equal(values[0], np.rint(numpys(stack, axis=0)))


def test_highest_takes_every_band_from_the_greenest_scene(tmp_path: Path) -> None:
    """A maximum NDVI-like composite never mixes bands of two scenes."""
    for number, (level, rank) in enumerate(((10, 5), (20, 9), (30, 1))):
        array = np.stack([flat(level)[0], flat(level + 1)[0], flat(rank)[0]])
        write_raster(tmp_path / f"s{number}.tif", array, transform=NORTH_UP)
    scenes = [scene_of(tmp_path, tmp_path / f"s{number}.tif", ("r", "g", "rank")) for number in range(3)]
    for method, expected in (("highest", [20, 21]), ("lowest", [30, 31])):
        values, _ = values_of(product_of(bands=("r", "g"), compositing=method, by_band="rank"), scenes, tmp_path)
        assert values[:, 5, 5].tolist() == expected


def test_a_pixel_never_mixes_bands_of_two_scenes(tmp_path: Path) -> None:
    """Where the first scene lacks a band and one mask serves all, the next scene gives the whole pixel."""
    for number, level in enumerate((10, 20)):
        for band in ("r", "g"):
            array = flat(level)
            if (number, band) == (0, "g"):
                array[0, :, :20] = 0
            write_raster(tmp_path / f"s{number}_{band}.tif", array, transform=NORTH_UP, nodata=0)
    scenes = [scene_of(tmp_path, {f"s{number}_{band}.tif": [band] for band in ("r", "g")}) for number in range(2)]
    values, valid = values_of(product_of(bands=("r", "g")), scenes, tmp_path)
    assert valid.all()
    assert (values[:, :, :20] == 20).all()
    assert (values[:, :, 20:] == 10).all()


LANDSAT_8 = "landsat_195025/LC08_L1TP_195025_20130707_20170503_01_T1_B{}.TIF"
LANDSAT_7 = "landsat_195025/LE07_L1TP_195025_20010730_20170204_01_T1_B{}.TIF"


def landsat(pattern: str, bands: Mapping[str, str], **more: object) -> SceneInput:
    if not SHARED_SCENES.is_dir():
        pytest.skip("needs ../shared/data/scenes, real Landsat files kept beside the repository")
    root = SHARED_SCENES.resolve()
    return scene_of(root, {pattern.format(file): [name] for name, file in bands.items()}, **more)  # type: ignore[arg-type]


def test_landsat_becomes_true_colour_and_ndvi(tmp_path: Path) -> None:
    """One file per band, Web Mercator: true colour equals gdalwarp of each band, NDVI is what its bands say, water included."""
    scene = landsat(LANDSAT_8, {"blue": "2", "green": "3", "red": "4", "nir": "5", "qa": "QA"}, scene_id="LC08")
    root = SHARED_SCENES.resolve()
    with safe_env(), rasterio.open(root / LANDSAT_8.format(4)) as source:
        (x,), (y,) = transform(source.crs, "EPSG:3857", [source.bounds.left], [source.bounds.top])
    box = square("EPSG:3857", x - 200, y + 200, 19.1, 128)
    colour = product_of(bands=("red", "green", "blue"), dtype="int16", nodata=-32768, resampling="bilinear")
    values, valid = rendered(tile_request(colour, box, [scene], root), tmp_path / "t.tif")
    assert 0.5 < valid.mean() < 0.95
    for position, number in enumerate((4, 3, 2)):
        reference = gdalwarp([root / LANDSAT_8.format(number)], tmp_path / "w.tif", box, "-r", "bilinear")
        assert np.abs(values[position].astype(int) - reference[0]).max() <= 1
    ndvi = product_of(expression="(nir - red) / (nir + red)", dtype="float32", nodata="nan", resampling="nearest")
    found, valid = rendered(tile_request(ndvi, box, [scene], root), tmp_path / "t.tif")
    nir, red = (gdalwarp([root / LANDSAT_8.format(n)], tmp_path / "w.tif", box, "-r", "near")[0].astype(float) for n in (5, 4))
    expected = ((nir - red) / (nir + red))[valid[0]]
    assert found[0][valid[0]] == pytest.approx(expected, rel=1e-6)


def test_landsat_qa_bits_decide(tmp_path: Path) -> None:
    """Clear pixels of the real QA bands (2720 of Landsat 8, 672 of 4 to 7) stay with the cloud bit, and go with one of theirs."""
    for pattern, bits in ((LANDSAT_8, 2720), (LANDSAT_7, 672)):
        scene = landsat(pattern, {"red": "4", "qa": "QA"})
        root = SHARED_SCENES.resolve()
        with safe_env(), rasterio.open(root / pattern.format("QA")) as source:
            assert set(np.unique(source.read(1))) == {bits}
            bounds, crs = source.bounds, source.crs.to_string()
        box = TileBox(crs, tuple(bounds), (41, 41))
        for bit in range(13):
            product = product_of(bands=("red",), dtype="int16", masks=(MaskConfig(band="qa", bits=(bit,)),))
            _, valid = rendered(tile_request(product, box, [scene], root), tmp_path / "t.tif")
            assert valid.all() == (not bits >> bit & 1)
            assert valid.any() == valid.all()
