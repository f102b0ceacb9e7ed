"""Small rules of products: order of scenes, bands needed, masks, rounding, composites, and how a source fits a grid."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest

from assets.products.compositing import composite, in_reading_order
from assets.products.fit import Fit, fit_of, overview_for
from assets.products.masks import masked_out
from assets.products.model import bands_required, check_products, order_scenes, output_names
from assets.products.render import finished
from resources.config import load_config
from resources.config_scenes import MaskConfig, ProductConfig
from resources.errors import ConfigurationError, UnitRejected

NAN = float("nan")


@dataclass(frozen=True)
class Dated:
    scene_id: str
    acquired: datetime | None
    digest: str = "d"


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("order", ["newest", "oldest", "name"])
def test_the_order_of_scenes_is_total(order: str) -> None:
    """Every listing order gives the same sequence; equal times go by scene id, then digest; times are compared as moments."""
    scenes = [
        Dated("b", NOON),
        Dated("a", NOON, "e"),
        Dated("a", NOON, "c"),
        Dated("c", NOON.astimezone(timezone(timedelta(hours=9))) + timedelta(hours=1)),
        Dated("d", (NOON - timedelta(hours=1)).replace(tzinfo=None)),
        Dated("e", None),
    ]
    product = ProductConfig(name="p", bands=("b1",), order=order)
    expected = {"newest": "caabde", "oldest": "edaabc", "name": "aabcde"}[order]
    for listed in itertools.permutations(scenes):
        ordered = order_scenes(product, listed)
        assert "".join(scene.scene_id for scene in ordered) == expected
        assert [scene.digest for scene in ordered if scene.scene_id == "a"] == ["c", "e"]


def test_bands_required_are_values_ranking_and_masks() -> None:
    """Each band is named once, values first."""
    product = ProductConfig(
        name="p",
        expression="(nir - red) / (nir + red); nir",
        compositing="highest",
        by_band="swir",
        masks=(MaskConfig(band="qa", bits=(1,)), MaskConfig(band="red", values=(0,))),
        dtype="float32",
    )
    assert bands_required(product) == ("nir", "red", "swir", "qa")
    assert output_names(product) == ("(nir - red) / (nir + red)", "nir")


def test_unknown_bands_and_impossible_compressions_stop_at_configuration(tmp_path: Path) -> None:
    """The message names file, product, formula, unknown band and the bands there are."""

    def check(product: str, source: str = 'bands = ["r", "g"]') -> None:
        path = tmp_path / "tilewright.toml"
        path.write_text(
            f"[source]\n{source}\n[window]\nstart = 2024-01-01\n[grid]\ntms = 'WebMercatorQuad'\nzoom = 8\narea = '8,45,9,46'\n"
            f"[[products]]\nname = 'p'\ndtype = 'uint8'\n{product}\n"
        )
        check_products(load_config(path))

    check("bands = ['r', 'g']")
    check("bands = ['anything']", source="")
    check("bands = ['anything']", source='patterns = ["{scene}_{band}.tif"]\nbands = ["r"]')
    with pytest.raises(ConfigurationError, match=r"toml: product p: expression 'nir - r': unknown band 'nir'; allowed: r, g"):
        check("expression = 'nir - r'")
    with pytest.raises(ConfigurationError, match=r"tilewright.toml: product p: expression 'r -' is not a formula .*allowed"):
        check("expression = 'r - '")
    with pytest.raises(ConfigurationError, match="webp needs 3 or 4 output bands, found 1"):
        check("bands = ['r']\ncompression = 'webp'")
    with pytest.raises(ConfigurationError, match="jpeg needs 1 or 3 output bands, found 2"):
        check("bands = ['r', 'g']\ncompression = 'jpeg'")


def test_mask_bits_are_tested_one_by_one() -> None:
    """Any of the bits leaves a pixel out, other bits do not matter; values are compared whole; absent pixels are left out."""
    quality = np.array([[0, 1 << 3, (1 << 3) | 1, 1 << 4, 1, 2720, NAN]])
    assert masked_out(MaskConfig(band="qa", bits=(3, 4)), quality, "uint16").tolist() == [
        [False, True, True, True, False, False, True]
    ]
    assert masked_out(MaskConfig(band="qa", values=(1, 2720)), quality, "uint16").tolist() == [
        [False, False, False, False, True, True, True]
    ]
    both = MaskConfig(band="qa", bits=(4,), values=(0,))
    assert masked_out(both, quality, "uint16").tolist() == [[True, False, False, True, False, False, True]]


def test_the_sign_bit_of_a_signed_band_is_a_bit() -> None:
    """Landsat's 16 bit flags stored as int16 are negative where bit 15 is set, and no bit above is invented."""
    quality = np.array([[-32768.0, -1.0, 5.0]])
    assert masked_out(MaskConfig(band="qa", bits=(15,)), quality, "int16").tolist() == [[True, True, False]]
    assert masked_out(MaskConfig(band="qa", bits=(0,)), quality, "int16").tolist() == [[False, True, True]]
    with pytest.raises(UnitRejected, match=r"bits \[16\] of dtype int16; allowed: 0..15"):
        masked_out(MaskConfig(band="qa", bits=(16,)), quality, "int16")
    with pytest.raises(UnitRejected, match="whole numbers"):
        masked_out(MaskConfig(band="qa", bits=(1,)), quality, "float32")


def product_of(**settings: object) -> ProductConfig:
    return ProductConfig.model_validate({"name": "p", "bands": ("b1",), **settings})


def stored(values: list[float], **settings: object) -> tuple[list[float], list[bool]]:
    held, valid = finished(product_of(**settings), np.array([[values]], dtype=np.float32))
    return held[0, 0].tolist(), valid[0, 0].tolist()


def test_rounding_is_half_to_even_and_clips_to_the_dtype() -> None:
    """No value wraps round."""
    assert stored([0.5, 1.5, 2.5, -3, 255.4, 300, 1e30], dtype="uint8")[0] == [0, 2, 2, 0, 255, 255, 255]
    assert stored([-32769, 32768, -0.5], dtype="int16")[0] == [-32768, 32767, 0]
    assert finished(product_of(dtype="uint32"), np.array([[[4294967295.0, 1e12]]]))[0].tolist() == [[[4294967295, 4294967295]]]
    assert finished(product_of(dtype="int32"), np.array([[[2147483647.0, 1e12, -1e12]]]))[0].tolist() == [
        [[2147483647, 2147483647, -2147483648]]
    ]


def test_a_valid_value_never_becomes_nodata() -> None:
    """A value that would equal nodata is moved to its neighbour, as gdalwarp does; absent pixels hold nodata."""
    assert stored([0, 0.4, NAN, 5], dtype="uint8", nodata=0) == ([1, 1, 0, 5], [True, True, False, True])
    assert stored([255, 300, NAN], dtype="uint8", nodata=255) == ([254, 254, 255], [True, True, False])
    assert stored([-9999, NAN], dtype="int16", nodata=-9999) == ([-10000, -9999], [True, False])
    floats, valid = stored([-9999, NAN, 1], dtype="float32", nodata=-9999)
    assert floats[1] == -9999
    assert floats[0] == pytest.approx(-9999)
    assert floats[0] != -9999
    assert valid == [True, False, True]
    assert stored([0.0], dtype="float32", nodata=0)[0][0] == pytest.approx(0, abs=1e-40)
    assert stored([0.0], dtype="float32", nodata=0)[0][0] != 0


def test_without_nodata_one_mask_serves_all_bands() -> None:
    """A pixel absent in one band is absent in all, and holds 0; with nodata each band stands for itself."""
    values = np.array([[[1.0, NAN]], [[2.0, 3.0]]])
    held, valid = finished(product_of(bands=("a", "b"), dtype="uint8"), values)
    assert held.tolist() == [[[1, 0]], [[2, 0]]]
    assert valid.tolist() == [[[True, False]], [[True, False]]]
    held, valid = finished(product_of(bands=("a", "b"), dtype="uint8", nodata=9), values)
    assert held.tolist() == [[[1, 9]], [[2, 3]]]


def test_rescale_maps_the_range_onto_the_whole_dtype() -> None:
    """Low becomes the least number, high the greatest, what lies outside is clipped."""
    assert stored([0, 1000, 2000, 3000, 5000], dtype="uint8", rescale=(1000, 3000))[0] == [0, 0, 128, 255, 255]
    assert stored([0, 1], dtype="int16", rescale=(0, 1))[0] == [-32768, 32767]


def test_what_a_float32_cannot_hold_is_absent() -> None:
    """No infinity is stored."""
    held, valid = finished(product_of(dtype="float32", nodata="nan"), np.array([[[1e300, 1.0]]]))
    assert np.isnan(held[0, 0, 0])
    assert valid.tolist() == [[[False, True]]]


def combined(method: str, scenes: list[list[float]], ranks: list[list[float]] | None = None) -> list[float]:
    """One band, one row; scenes in order."""
    stack = composite(method)
    for position in in_reading_order(method, len(scenes)):
        rank = None if ranks is None else np.array([ranks[position]], dtype=np.float32)
        if stack.add(np.array([[scenes[position]]], dtype=np.float32), rank):
            break
    return [float(value) for value in stack.result()[0, 0]]


SCENES = [[NAN, 5, 9, NAN], [7, NAN, 2, NAN], [4, 1, 6, NAN]]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("first", [7, 5, 9, NAN]),
        ("last", [4, 1, 6, NAN]),
        ("mean", [5.5, 3, 17 / 3, NAN]),
        ("median", [5.5, 3, 6, NAN]),
        ("min", [4, 1, 2, NAN]),
        ("max", [7, 5, 9, NAN]),
    ],
)
def test_composites_skip_absent_pixels(method: str, expected: list[float]) -> None:
    """Each method over scenes of which some are absent; where all are, so is the result."""
    assert combined(method, SCENES) == pytest.approx(expected, nan_ok=True)


def test_ranked_composites_take_all_bands_of_the_winner() -> None:
    """Highest and lowest go by the ranking band; the earlier scene wins a tie; a pixel without rank does not take part."""
    ranks = [[9, 1, 3, NAN], [2, 8, 3, NAN], [1, NAN, 1, 5]]
    assert combined("highest", SCENES, ranks) == pytest.approx([7, 5, 9, NAN], nan_ok=True)
    assert combined("lowest", SCENES, ranks) == pytest.approx([4, 5, 6, NAN], nan_ok=True)


@pytest.mark.parametrize("method", ["mean", "median", "max"])
def test_composites_do_not_overflow(method: str) -> None:
    """Hundreds of bright scenes have the mean of one."""
    assert combined(method, [[65535.0]] * 300) == [65535.0]
    stack = composite(method)
    for _ in range(300):
        stack.add(np.full((1, 1, 1), 4294967295.0))
    assert stack.result()[0, 0, 0] == 4294967295.0


def test_sixteen_scenes_have_numpys_median() -> None:
    """The median over many scenes with holes equals numpy's, band by band."""
    rng = np.random.default_rng(4)
    stack = rng.integers(0, 65535, (16, 3, 20, 20)).astype(np.float32)
    stack[rng.random(stack.shape) < 0.3] = np.nan
    median = composite("median")
    for scene in stack:
        median.add(scene)
    assert np.array_equal(median.result(), np.nanmedian(stack.astype(np.float64), axis=0), equal_nan=True)


def fit(**changes: object) -> Fit:
    settings: dict[str, object] = {
        "crs": "EPSG:32632", "transform": (10.0, 0.0, 5e5, 0.0, -10.0, 5e6), "width": 100, "height": 100,
        "grid_crs": "EPSG:32632", "pixel_width": 20.0, "pixel_height": 20.0, **changes,
    }  # fmt: skip
    return fit_of(**settings)  # type: ignore[arg-type]


def test_a_source_fits_a_grid_by_pixels_per_pixel() -> None:
    """Same CRS is exact; Web Mercator follows the latitude; a turned source spans its bounding box, as GDAL's window does."""
    assert fit() == Fit(2.0, 2.0, 4.0)
    mercator = fit(grid_crs="EPSG:3857", pixel_width=10.0, pixel_height=10.0)
    assert mercator.columns == pytest.approx(np.cos(np.radians(45.15)), rel=5e-3)
    cosine = 10 * np.cos(np.radians(45))
    assert fit(transform=(cosine, cosine, 5e5, cosine, -cosine, 5e6)).columns == pytest.approx(2 * 2**0.5, rel=1e-4)


def test_kernels_widen_only_where_the_grid_is_coarser() -> None:
    """Nearly whole ratios count as whole, finer grids leave the kernel alone."""
    assert Fit(0.3, 1.04, 1).scales == (1.0, 1.0)
    assert Fit(1.97, 2.5, 5).scales == (0.5, 0.4)


@pytest.mark.parametrize(
    ("ratio", "level"), [(0.5, None), (1.0, None), (1.5, None), (1.89, None), (1.95, 0), (2.0, 0), (3.8, 0), (4.0, 1), (90.0, 2)]
)
def test_overviews_serve_when_they_are_not_coarser_than_the_grid(ratio: float, level: int | None) -> None:
    """The rule of `gdalwarp -ovr AUTO`."""
    assert overview_for(Fit(ratio, ratio + 0.2, ratio**2), [2, 4, 8]) == level
    assert overview_for(Fit(ratio, ratio, ratio**2), []) is None
