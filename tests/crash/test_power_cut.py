"""A power cut: what the ledger says is complete is there, whole, after the disk is read back as it was at the cut.

The store lies on an ext4 image on a loop device. The cut is a copy of the image taken while it is mounted: what was only in the
page cache is not in the copy. The copy is mounted, which replays the journal, and read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from resources.config import load_config
from resources.ledger import open_ledger
from resources.store import STAGING_PREFIX
from resources.trees import digest_of_content, size_of
from resources.units import UnitState
from tests.support.batches import ASSET
from tests.support.child import start, write_config


@contextmanager
def _mounted(image: Path, folder: Path) -> Iterator[Path]:
    folder.mkdir()
    # the journal is not written every five seconds, as it is by default: nothing reaches the disk at leisure before the cut
    subprocess.run(["mount", "-o", "loop,commit=600", str(image), str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def disk_image(tmp_path: Path) -> Path:
    """An empty ext4 filesystem of 64 MB in a file."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None or not Path("/dev/loop-control").exists():
        pytest.skip("a power cut needs root, mkfs.ext4 and loop devices")
    image = tmp_path / "disk.img"
    with image.open("wb") as stream:
        stream.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0", str(image)], check=True)
    return image


@pytest.mark.parametrize("form", ["file", "directory"])
def test_completed_units_survive_a_power_cut(tmp_path: Path, disk_image: Path, form: str) -> None:
    """Every unit recorded complete before the cut has its output, by digest, after it; no final name is partial."""
    project = tmp_path / "project"
    config_path = write_config(project)
    with _mounted(disk_image, tmp_path / "disk") as disk:
        text = config_path.read_text().replace("[store]", f'[store]\nuri = "{disk / "outputs"}"')
        config_path.write_text(text)
        # to the end: as long as units are staged, their fsync carries the names of earlier ones to the disk
        run = start(config_path, "run", batch={"partitions": 2, "units_each": 40, "size": 9000, "form": form})
        run.communicate(timeout=120)
        assert run.returncode == 0
        cut = tmp_path / "cut.img"
        shutil.copyfile(disk_image, cut)
    ledger = open_ledger(load_config(config_path))
    complete = list(ledger.units(asset=ASSET, state=UnitState.COMPLETE))
    assert len(complete) == 80
    with _mounted(cut, tmp_path / "after") as disk:
        paths = {disk / "outputs" / row.output_uri: row.output_digest for row in complete}
        assert [path for path in paths if not path.exists()] == []
        assert [path for path, digest in paths.items() if digest_of_content(path) != digest] == []
        names = {row.output_uri for row in ledger.units(asset=ASSET)}
        found = [path for path in (disk / "outputs" / "bytes" / "w1").iterdir() if not path.name.startswith(STAGING_PREFIX)]
        assert all(f"bytes/w1/{path.name}" in names and size_of(path) >= 9000 for path in found)
