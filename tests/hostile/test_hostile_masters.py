"""Hostile and odd masters: each gets its verdict and one clear message from a bounded worker, and none stops the others.

The real files lie in ../shared/data/masters, beside the repository.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

import pytest

from assets.digitization.derivation import CopyRequest, derive_copy, validate_copy
from assets.digitization.identification import MasterLimits
from assets.sources.folder import FolderSource
from assets.sources.names import uri_of
from resources.config import ExecutorConfig
from resources.errors import ErrorKind, Verdict
from resources.executor import LocalExecutor
from resources.staging import Staged, StageTask
from resources.verdicts import Failure
from tests.support.masters import identified
from tests.support.sources import SHARED
from tests.support.workers import answer_of

MASTERS = SHARED / "masters"
K = ErrorKind

# file of ../shared/data/masters -> pages of its copy, or the kind of its rejection
REAL: dict[str, int | ErrorKind] = {
    "10ct_32bit_128.tiff": K.UNSUPPORTED_DTYPE,  # 32-bit floats
    "custom_dir_EXIF_GPS.tiff": 1,
    "dscf0013.tif": 2,  # its second page does not say that it is a thumbnail
    "fax2d.tif": 1,
    "flower-minisblack-12.tif": 1,  # 12 bits kept
    "flower-separated-planar-16.tif": K.UNSUPPORTED_COLOUR,  # 16-bit CMYK
    "g3test.tif": 1,
    "g4_orientation_5.tif": 1,
    "g4_orientation_6.tif": 1,
    "hopper.Lab.tif": K.UNSUPPORTED_COLOUR,
    "hopper.iccprofile.tif": 1,
    "ifd_tag_type.tiff": 1,
    "miniswhite-1c-1b.tiff": 1,
    "multipage.tiff": 3,
    "multipage_out_of_order.tiff": 3,
    "multipage_single_frame_loop.tiff": K.CORRUPT_INPUT,
    "old-style-jpeg-compression-no-samplesperpixel.tif": 1,
    "pc260001.tif": 1,
    "rdf.tif": 1,
    "seq-1c-8b-multipage-adeefdcc.tiff": 3,
    "text.tif": K.CORRUPT_INPUT,  # ThunderScan data that breaks off
    "tiff_16bit_RGB.tiff": 1,
    "tiff_strip_cmyk_16l_jpeg.tif": K.UNSUPPORTED_COLOUR,  # 16-bit CMYK
}

pytestmark = pytest.mark.skipif(not MASTERS.is_dir(), reason="the real masters are not there: ../shared/data/masters")


def test_every_real_master_is_here() -> None:
    """A file that is added gets a verdict too."""
    assert {path.name for path in MASTERS.iterdir()} - {"index.tsv"} == set(REAL)


def test_every_real_master_gets_its_verdict_in_a_bounded_worker(tmp_path: Path) -> None:
    """All of them in one pool: no worker dies, no file stops another, and what is not copied is quarantined with its kind."""
    executor = LocalExecutor(
        ExecutorConfig(workers=1, unit_memory_mb=1024, unit_time_s=60), preload=("assets.digitization.derivation",)
    )
    found: dict[str, int | ErrorKind] = {}
    try:
        for name in REAL:
            master = MASTERS / name
            facts = identified(master, MasterLimits())
            sha256 = hashlib.sha256(master.read_bytes()).hexdigest()
            request = CopyRequest(sha256, sha256, FolderSource(MASTERS), (uri_of(name),), len(facts.pages) > 1)
            # folders of pages are staged whole by the engine; here each master is asked for on its own
            work = partial(_derive_beside, request)
            validate = partial(_validate_beside, request)
            answer = answer_of(executor, StageTask(sha256, 1, name, name, tmp_path / f"{name}.staged", work, validate))
            if isinstance(answer, Staged):
                found[name] = len(answer.made.metrics["pages"])
            else:
                assert isinstance(answer, Failure)
                assert answer.verdict is Verdict.QUARANTINE, (name, answer)
                assert "found" in answer.message or "leads back" in answer.message
                found[name] = answer.kind
    finally:
        executor.close()
    assert found == REAL


def _derive_beside(request: CopyRequest, path: Path) -> dict[str, object]:
    made = path.with_name(f"{path.name}.copy")
    metrics = derive_copy(request, made)
    path.write_text("derived", encoding="ascii")
    return dict(metrics)


def _validate_beside(request: CopyRequest, path: Path) -> None:
    validate_copy(request, path.with_name(f"{path.name}.copy"))
