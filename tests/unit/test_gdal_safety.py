"""GDAL, hardened: drivers, sidecars, and what its errors are turned into."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.vrt import WarpedVRT

from resources.errors import ErrorKind, InputRejected, TransientError, UnitRejected
from resources.gdal_safety import SAFE_DRIVERS, open_raster, raster_errors, safe_env
from tests.support.sources import vrt, write_raster

ROOT = Path(__file__).parents[2]


def in_new_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_only_safe_drivers_are_registered() -> None:
    """A process that loads this module first knows no driver that follows names to other files or to the network."""
    code = "from resources.gdal_safety import *; require_restricted_drivers(); print(sorted(registered_drivers()))"
    assert in_new_process(code) == str(sorted(SAFE_DRIVERS))


def test_the_restriction_stays_out_of_other_libraries() -> None:
    """The variable that restricts drivers does not stay in the environment, where pyogrio's own GDAL would obey it too."""
    code = (
        "import os; import resources.gdal_safety; print('GDAL_SKIP' in os.environ)\n"
        "import pyogrio; print('GPKG' in pyogrio.list_drivers())"
    )
    assert in_new_process(code).split() == ["False", "True"]


def test_a_process_that_opened_rasters_before_is_told() -> None:
    """Where other code registered all drivers first, the check says which can be opened and what to do."""
    code = (
        "import rasterio\nwith rasterio.Env(): pass\nfrom resources.gdal_safety import require_restricted_drivers\n"
        "try: require_restricted_drivers()\nexcept Exception as error: print(type(error).__name__, 'WMS' in str(error))"
    )
    assert in_new_process(code) == "EnvironmentUnfit True"


def test_warping_brings_the_vrt_driver_back_and_it_is_still_not_used(tmp_path: Path) -> None:
    """A WarpedVRT registers the VRT driver again, so drivers are named at every open: a VRT under a raster's name stays shut."""
    good = write_raster(tmp_path / "good.tif")
    (tmp_path / "evil.tif").write_text(vrt("/etc/passwd", raw=True))
    with safe_env(), open_raster(good, ("GTiff",)) as dataset, WarpedVRT(dataset, crs="EPSG:3857") as warped:
        assert warped.read(1).size
    with safe_env() as env:
        assert "VRT" in env.drivers()
        with pytest.raises(InputRejected, match="found a VRT") as caught:
            open_raster(tmp_path / "evil.tif", ("GTiff", "VRT"))
    assert caught.value.kind is ErrorKind.FORBIDDEN_DRIVER


def test_sidecars_still_work(tmp_path: Path) -> None:
    """Overviews, masks, metadata and world files beside a raster are found though the folder is not listed at each open."""
    path = write_raster(tmp_path / "a.tif", np.ones((1, 64, 64), "uint8"), crs=None, place=rasterio.Affine.identity())
    (tmp_path / "a.tfw").write_text("30\n0\n0\n-30\n500015\n4999985\n")
    (tmp_path / "a.tif.aux.xml").write_text(
        '<PAMDataset><SRS>EPSG:32632</SRS><Metadata><MDI key="K">V</MDI></Metadata></PAMDataset>'
    )
    write_raster(tmp_path / "a.tif.msk", np.zeros((1, 64, 64), "uint8"), crs=None)
    with rasterio.open(tmp_path / "a.tif.msk", "r+") as mask:
        mask.update_tags(INTERNAL_MASK_FLAGS_1="2")
    write_raster(tmp_path / "a.tif.ovr", np.ones((1, 32, 32), "uint8"), crs=None)
    with safe_env(), open_raster(path, ("GTiff",)) as dataset:
        assert dataset.transform.c == 500_000
        assert dataset.crs.to_epsg() == 32632
        assert dataset.tags()["K"] == "V"
        assert dataset.overviews(1) == [2]
        assert not dataset.read_masks(1).any()


def test_errors_say_what_to_do_next(tmp_path: Path) -> None:
    """A file that is gone is a matter of trying again, one that is corrupt is not, and memory is the unit's matter."""
    noise = np.random.default_rng(1).integers(0, 9, (1, 512, 512)).astype("uint8")
    cut = write_raster(tmp_path / "cut.tif", noise, tiled=True)
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    with safe_env():
        with pytest.raises(TransientError) as gone:
            open_raster(tmp_path / "gone.tif", ("GTiff",))
        with (
            open_raster(cut, ("GTiff",)) as dataset,
            pytest.raises(InputRejected) as corrupt,
            raster_errors(cut, input_digest="d", name="'cut.tif'"),
        ):
            dataset.read(1)
    assert gone.value.kind is ErrorKind.INPUT_CHANGED
    assert (corrupt.value.kind, corrupt.value.input_digest) == (ErrorKind.CORRUPT_INPUT, "d")
    assert corrupt.value.message.startswith("'cut.tif': content: found data that GDAL cannot decode")
    with pytest.raises(UnitRejected) as memory, raster_errors(cut):
        raise MemoryError
    assert memory.value.kind is ErrorKind.MEMORY_EXCEEDED


def test_mistakes_of_ours_are_not_blamed_on_the_file(tmp_path: Path) -> None:
    """A mistake of ours, or a full disk met meanwhile, passes unchanged."""
    with pytest.raises(KeyError), raster_errors(tmp_path / "a.tif"):
        raise KeyError("a mistake")
    with pytest.raises(OSError, match="No space left"), raster_errors(tmp_path / "a.tif"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "output"))


def test_a_file_that_vanishes_while_it_is_read_is_tried_again(tmp_path: Path) -> None:
    """When the file is gone by the time an error is judged, the input changed; its content is not blamed."""
    with pytest.raises(TransientError) as caught, raster_errors(tmp_path / "gone.tif"):
        raise rasterio.errors.RasterioIOError("read failed")
    assert caught.value.kind is ErrorKind.INPUT_CHANGED
