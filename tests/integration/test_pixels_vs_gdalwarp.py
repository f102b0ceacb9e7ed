"""Pixels against a direct gdalwarp (`-et 0`) of the same inputs, by the very GDAL that rasterio carries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rasterio
from affine import Affine
from pyproj import Transformer

from assets.grid import TileBox
from assets.products.fit import fit_of
from resources.config_scenes import ProductConfig
from resources.gdal_safety import safe_env
from tests.support.pixels import UTM, gdalwarp, rendered, scene_of, square, tile_request, write_raster

GDAL_NAMES = {"nearest": "near", "cubic_spline": "cubicspline"}
METHODS = ("nearest", "bilinear", "cubic", "cubic_spline", "lanczos", "average", "mode")
NORTH_UP = Affine(10, 0, 500_000, 0, -10, 5_000_000)
RGB = ("r", "g", "b")
MERCATOR = Transformer.from_crs(UTM, "EPSG:3857", always_xy=True).transform(502_000, 4_998_000)


def picture(side: int = 1000) -> np.ndarray:
    """Three bands of waves and noise, uint8, no pixel 0."""
    rows, columns = np.mgrid[0:side, 0:side]
    noise = np.random.default_rng(7).normal(0, 8, (side, side))
    waves = (127 + 100 * np.sin(columns / 17) * np.cos(rows / 23) + noise).clip(1, 254)
    return np.stack([waves, waves[::-1], waves[:, ::-1]]).astype("uint8")


def step_of(product: ProductConfig) -> float:
    return 1.0 if np.dtype(product.dtype).kind != "f" else 1e-4 * 255


def agree(directory: Path, name: str, box: TileBox, product: ProductConfig, *, scaled_as_ours: bool = False) -> float:
    """Render, warp directly, assert agreement; the share of valid pixels."""
    bands = product.bands
    scene = scene_of(directory, directory / f"{name}.tif", bands)
    values, valid = rendered(tile_request(product, box, [scene], directory), directory / "tile.tif")
    options = ["-r", GDAL_NAMES.get(product.resampling, product.resampling)]
    if scaled_as_ours:
        band = scene.bands[bands[0]]
        pixel = box.transform.a
        fit = fit_of(
            crs=band.crs,
            transform=band.transform,
            width=band.width,
            height=band.height,
            grid_crs=box.crs,
            pixel_width=pixel,
            pixel_height=pixel,
        )
        options += ["-wo", f"XSCALE={fit.scales[0]!r}", "-wo", f"YSCALE={fit.scales[1]!r}"]
    reference = gdalwarp([directory / f"{name}.tif"], directory / "warped.tif", box, *options)
    differences = np.abs(values.astype(float) - reference[: len(bands)].astype(float))[valid]
    allowed = 0.0 if product.resampling == "nearest" else step_of(product)
    assert differences.max(initial=0.0) <= allowed, f"{name} {product.resampling}: {differences.max()} in {box}"
    if product.nodata is None:
        assert (reference[: len(bands)][~valid] == 0).all()
    else:
        assert (reference[: len(bands)][~valid] == product.nodata).all()
    return float(valid.mean())


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One picture in many forms."""
    directory = tmp_path_factory.mktemp("sources")
    bytes_ = picture()
    write_raster(directory / "plain.tif", bytes_, transform=NORTH_UP, tiled=True)
    write_raster(directory / "overviews.tif", bytes_, transform=NORTH_UP, tiled=True, overviews=[2, 4])
    write_raster(directory / "uint16.tif", bytes_.astype("uint16") * 200, transform=NORTH_UP, nodata=0)
    write_raster(directory / "int16.tif", bytes_.astype("int16") * 100 - 12_000, transform=NORTH_UP, nodata=-32768)
    write_raster(directory / "float32.tif", bytes_.astype("float32"), transform=NORTH_UP)
    write_raster(directory / "int32.tif", bytes_.astype("int32") * 8_000_000, transform=NORTH_UP)
    write_raster(directory / "south_up.tif", bytes_[:, ::-1], transform=Affine(10, 0, 500_000, 0, 10, 4_990_000))
    turned = Affine.translation(498_000, 5_000_500) @ Affine.rotation(30) @ Affine.scale(10, -10)
    write_raster(directory / "rotated.tif", bytes_, transform=turned)
    degrees = Affine(1.25e-4, 0, 9.0, 0, -9e-5, 45.17)
    write_raster(directory / "geographic.tif", bytes_, transform=degrees, crs="EPSG:4326")
    return directory


DTYPES = {"uint16": "uint16", "int16": "int16", "float32": "float32", "int32": "int32"}


@pytest.mark.parametrize("resampling", METHODS)
@pytest.mark.parametrize(
    "name", ["plain", "overviews", "uint16", "int16", "float32", "int32", "south_up", "rotated", "geographic"]
)
def test_a_tile_equals_gdalwarp_on_a_web_mercator_grid(sources: Path, name: str, resampling: str) -> None:
    """Warped finer, as fine and coarser than the source, pixels equal gdalwarp's: nearest exactly, others within one step."""
    product = ProductConfig(
        name="p",
        bands=RGB,
        dtype=DTYPES.get(name, "uint8"),
        resampling=resampling,
        nodata={"uint16": 0, "int16": -32768}.get(name),
    )
    for resolution in (6.1, 14.2, 57.0):
        box = square("EPSG:3857", *MERCATOR, resolution, 128)
        # gdalwarp takes the kernel's size from the whole pixels of its chunk, ours from the scene: only the rounding differs
        assert agree(sources, name, box, product, scaled_as_ours=resolution > 14.2 and name != "overviews") > 0.5


@pytest.mark.parametrize("resampling", METHODS)
@pytest.mark.parametrize("resolution", [7.3, 10.0, 20.0, 41.0])
def test_a_tile_equals_gdalwarp_in_the_source_crs(sources: Path, resampling: str, resolution: float) -> None:
    """Where only scale and offset differ, pixels equal gdalwarp's with its own choice of kernel and overview."""
    product = ProductConfig(name="p", bands=RGB, dtype="uint8", resampling=resampling)
    box = square(UTM, 502_003, 4_998_004, resolution, 128)
    for name in ("plain", "overviews", "south_up"):
        assert agree(sources, name, box, product) == 1.0


@pytest.mark.parametrize("resampling", ["nearest", "bilinear", "cubic", "average"])
def test_absent_pixels_are_kept_out_as_gdalwarp_keeps_them(tmp_path: Path, resampling: str) -> None:
    """Nodata, a nodata pixel in one band alone, an internal mask, alpha and NaN: same pixels absent, same values beside them."""
    bytes_ = picture(400)
    hole = np.zeros((400, 400), dtype=bool)
    hole[100:180, 120:260] = True
    hole[::37, ::11] = True
    with_hole = bytes_.copy()
    with_hole[:, hole] = 255
    with_hole[0, 300:320, 50:300] = 255
    write_raster(tmp_path / "nodata.tif", with_hole, transform=NORTH_UP, nodata=255)
    write_raster(tmp_path / "mask.tif", bytes_, transform=NORTH_UP, mask=np.where(hole, 0, 255).astype("uint8"))
    floats = bytes_.astype("float32")
    floats[:, hole] = np.nan
    write_raster(tmp_path / "nan.tif", floats, transform=NORTH_UP, nodata=float("nan"))
    for resolution in (6.1, 14.2, 30.0):
        box = square("EPSG:3857", MERCATOR[0] - 600, MERCATOR[1] + 600, resolution, 128)
        cases = {
            "nodata": ProductConfig(name="p", bands=RGB, dtype="uint8", resampling=resampling, nodata=255),
            "mask": ProductConfig(name="p", bands=RGB, dtype="uint8", resampling=resampling),
            "nan": ProductConfig(name="p", bands=RGB, dtype="float32", resampling=resampling, nodata="nan"),
        }
        for name, product in cases.items():
            if name == "nan":
                scene = scene_of(tmp_path, tmp_path / "nan.tif", RGB)
                values, valid = rendered(tile_request(product, box, [scene], tmp_path), tmp_path / "tile.tif")
                reference = gdalwarp(
                    [tmp_path / "nan.tif"], tmp_path / "warped.tif", box, "-r", GDAL_NAMES.get(resampling, resampling)
                )
                assert np.array_equal(np.isnan(reference), ~valid)
                if resolution < 20:
                    assert np.abs(values - reference)[valid].max() < 0.03
            else:
                assert 0.2 < agree(tmp_path, name, box, product, scaled_as_ours=resolution > 14.2) < 1.0


@pytest.mark.parametrize("resampling", ["nearest", "bilinear", "cubic"])
def test_half_transparent_pixels_keep_their_own_value(tmp_path: Path, resampling: str) -> None:
    """A pixel with any opacity counts with its colour unmixed; a fully transparent one is absent, as gdalwarp has it."""
    bytes_ = picture(400)
    alpha = np.full((1, 400, 400), 255, dtype="uint8")
    alpha[0, 100:200, 100:200] = 0
    alpha[0, 220:300, 100:300] = 128
    write_raster(tmp_path / "alpha.tif", np.concatenate([bytes_, alpha]), transform=NORTH_UP, photometric="RGB", alpha="yes")
    product = ProductConfig(name="p", bands=RGB, dtype="uint8", resampling=resampling)
    scene = scene_of(tmp_path, tmp_path / "alpha.tif", RGB)
    box = square("EPSG:3857", MERCATOR[0] - 1500, MERCATOR[1] + 1500, 14.2, 200)
    values, valid = rendered(tile_request(product, box, [scene], tmp_path), tmp_path / "tile.tif")
    reference = gdalwarp([tmp_path / "alpha.tif"], tmp_path / "warped.tif", box, "-r", GDAL_NAMES.get(resampling, resampling))
    assert np.array_equal(valid[0], reference[3] > 0)
    assert (reference[3] == 128).any()
    assert np.abs(values.astype(int) - reference[:3])[valid].max() <= (0 if resampling == "nearest" else 1)


@pytest.mark.parametrize("resampling", METHODS)
@pytest.mark.parametrize("resolution", [9.7, 31.7, 57.0])
def test_neighbouring_tiles_have_no_seam(sources: Path, resampling: str, resolution: float) -> None:
    """Four tiles rendered apart equal one tile over all four, also where source pixels are gathered from across the edge."""
    product = ProductConfig(name="p", bands=RGB, dtype="uint8", resampling=resampling)
    for name in ("plain", "rotated", "overviews"):
        scene = scene_of(sources, sources / f"{name}.tif", RGB)
        whole = square("EPSG:3857", *MERCATOR, resolution, 128)
        expected, present = rendered(tile_request(product, whole, [scene], sources), sources / "whole.tif")
        left, _, _, top = whole.bounds
        for row in (0, 1):
            for column in (0, 1):
                box = square("EPSG:3857", left + column * 64 * resolution, top - row * 64 * resolution, resolution, 64)
                values, valid = rendered(tile_request(product, box, [scene], sources), sources / "part.tif")
                window = (slice(None), slice(row * 64, row * 64 + 64), slice(column * 64, column * 64 + 64))
                assert np.array_equal(values, expected[window])
                assert np.array_equal(valid, present[window])


@pytest.mark.parametrize("resampling", METHODS)
def test_pixels_do_not_depend_on_the_blocks_a_tile_is_made_in(
    sources: Path, resampling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tile made in many small blocks, as one of a large scene is, equals the tile made at once."""
    product = ProductConfig(name="p", bands=RGB, dtype="uint8", resampling=resampling)
    scene = scene_of(sources, sources / "plain.tif", RGB)
    for resolution in (9.7, 57.0):
        request = tile_request(product, square("EPSG:3857", *MERCATOR, resolution, 128), [scene], sources)
        monkeypatch.setattr("assets.products.reading._BAND_PIXELS_MAX", 8_000_000)
        at_once = rendered(request, sources / "once.tif")
        for budget in (60_000, 9_000):
            monkeypatch.setattr("assets.products.reading._BAND_PIXELS_MAX", budget)
            in_blocks = rendered(request, sources / "blocks.tif")
            assert np.array_equal(at_once[0], in_blocks[0])
            assert np.array_equal(at_once[1], in_blocks[1])


@pytest.mark.parametrize("crs", ["EPSG:3857", "EPSG:4326"])
def test_scenes_over_the_antimeridian_fill_both_sides(tmp_path: Path, crs: str) -> None:
    """A UTM scene, one that counts 0 to 360 and one that goes on beyond 180 reach the tiles on both sides, equal to gdalwarp."""
    rows, columns = np.mgrid[0:400, 0:400]
    array = ((columns // 8 + rows // 8) % 200 + 1).astype("uint8")[None]
    east, north = Transformer.from_crs("EPSG:4326", "EPSG:32660", always_xy=True).transform(179.99, 10.0)
    write_raster(tmp_path / "utm.tif", array, transform=Affine(100, 0, east - 20_000, 0, -100, north + 20_000), crs="EPSG:32660")
    world = np.tile((np.arange(720) % 250 + 1).astype("uint8"), (1, 360, 1))
    write_raster(tmp_path / "to_360.tif", world, transform=Affine(0.5, 0, 0, 0, -0.5, 90), crs="EPSG:4326")
    write_raster(tmp_path / "to_181.tif", array, transform=Affine(0.005, 0, 179, 0, -0.005, 11), crs="EPSG:4326")
    write_raster(tmp_path / "mercator.tif", array, transform=Affine(500, 0, 19_937_508, 0, -500, 1_218_000), crs="EPSG:3857")
    product = ProductConfig(name="p", bands=("b1",), dtype="uint8", resampling="nearest")
    half, top, resolution = (20037508.342789244, 1_127_000.0, 120.0) if crs == "EPSG:3857" else (180.0, 10.1, 0.001)
    for name in ("utm", "to_360", "to_181", "mercator"):
        scene = scene_of(tmp_path, tmp_path / f"{name}.tif")
        for left in (half - 256 * resolution, -half):
            box = square(crs, left, top, resolution)
            values, valid = rendered(tile_request(product, box, [scene], tmp_path), tmp_path / "tile.tif")
            assert valid.mean() > 0.5, (name, left)
            if name != "mercator":  # gdalwarp loses what lies beyond the edge of a Mercator world
                reference = gdalwarp([tmp_path / f"{name}.tif"], tmp_path / "warped.tif", box, "-r", "near")
                assert np.array_equal(values, reference)


def test_overlapping_scenes_equal_gdalwarp_of_all_in_reverse(tmp_path: Path) -> None:
    """First valid in order equals gdalwarp given the scenes last first, with holes filled from below."""
    array = picture(400)
    sheets = []
    for number in range(3):
        sheet = np.roll(array, 40 * number, axis=2).copy()
        sheet[:, 30 * number :: 90, :] = 0
        sheets.append(
            write_raster(
                tmp_path / f"s{number}.tif", sheet, transform=NORTH_UP @ Affine.translation(90 * number, 30 * number), nodata=0
            )
        )
    product = ProductConfig(name="p", bands=RGB, dtype="uint8", resampling="nearest", nodata=0)
    scenes = [scene_of(tmp_path, path, RGB) for path in sheets]
    box = square("EPSG:3857", MERCATOR[0] - 2500, MERCATOR[1] + 2500, 14.2, 256)
    values, _ = rendered(tile_request(product, box, scenes, tmp_path), tmp_path / "tile.tif")
    assert np.array_equal(values, gdalwarp(sheets[::-1], tmp_path / "warped.tif", box, "-r", "near"))
    last = product.model_copy(update={"compositing": "last"})
    values, _ = rendered(tile_request(last, box, scenes, tmp_path), tmp_path / "tile.tif")
    assert np.array_equal(values, gdalwarp(sheets, tmp_path / "warped.tif", box, "-r", "near"))


@pytest.mark.parametrize("source", ["north", "south", "utm", "world"])
def test_pixels_without_a_place_in_the_source_crs_are_absent(tmp_path: Path, source: str) -> None:
    """A grid beyond the poles, or a world onto a local grid: what cannot be described is absent, the rest is right."""
    array = ((np.arange(160_000).reshape(1, 400, 400) // 7) % 250 + 1).astype("uint8")
    stereo = Affine(10_000, 0, -2_000_000, 0, -10_000, 2_000_000)
    place, crs, box = {
        "north": (stereo, "EPSG:3413", square("EPSG:4326", -180, 100, 1.9, 192)),
        "south": (stereo, "EPSG:3031", square("EPSG:4326", -180, -60, 0.18, 512)),
        "utm": (Affine(1000, 0, 300_000, 0, -1000, 5_200_000), UTM, square("EPSG:4326", -180, 90, 2.8, 128)),
        "world": (Affine(0.9, 0, -180, 0, -0.45, 90), "EPSG:4326", square("EPSG:32633", 300_000, 5_200_000, 1000.0, 128)),
    }[source]
    write_raster(tmp_path / f"{source}.tif", array, transform=place, crs=crs)
    product = ProductConfig(name="p", bands=("b1",), dtype="uint8", resampling="nearest")
    assert agree(tmp_path, source, box, product) > 0


def test_a_tile_of_the_whole_world_takes_a_small_scene(tmp_path: Path) -> None:
    """At zoom 0 most of the tile lies outside what UTM can describe; the scene's few pixels are there, as with gdalwarp."""
    array = np.full((1, 400, 400), 9, dtype="uint8")
    write_raster(tmp_path / "utm.tif", array, transform=Affine(1000, 0, 300_000, 0, -1000, 5_200_000))
    half = 20037508.342789244
    product = ProductConfig(name="p", bands=("b1",), dtype="uint8", resampling="nearest")
    assert agree(tmp_path, "utm", square("EPSG:3857", -half, half, 2 * half / 256), product) > 0


def test_jpeg_2000_sources_are_read_with_their_resolution_levels(tmp_path: Path) -> None:
    """A Sentinel-2 like JP2 equals gdalwarp at full resolution and at those its own levels serve."""
    array = (picture(1200)[:1].astype("uint16") * 40).copy()
    options = {"QUALITY": "100", "REVERSIBLE": "YES", "width": 1200, "height": 1200, "count": 1, "dtype": "uint16"}
    with safe_env(), rasterio.open(
        tmp_path / "s.tif", "w", driver="JP2OpenJPEG", crs=UTM, transform=NORTH_UP, **options
    ) as out:  # fmt: skip
        out.write(array)
    product = ProductConfig(name="p", bands=("b1",), dtype="uint16", resampling="bilinear")
    for resolution in (10.0, 20.0, 41.0):
        assert agree(tmp_path, "s", square(UTM, 500_003, 4_999_996, resolution, 128), product) == 1.0
