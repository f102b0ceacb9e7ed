"""What Dagster shows of a partition: pictures that fit, tables that read, duration and bytes."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
from PIL import Image

from assets.project import Project, open_project
from assets.stock import list_scenes
from assets.thumbnails import small_thumbnail
from assets.tile_view import describe_tiles, scenes_metadata
from assets.tiles import TilesBatch
from resources.engine import RunReport
from tests.support.hills import FIRST, write_project
from tests.support.sources import write_raster

INLINE_CHARS = 1000
"""Dagster's pages show Markdown below this length where it stands."""


def done(tmp_path: Path) -> tuple[Project, RunReport]:
    """One partition of the hills, computed."""
    project = open_project(write_project(tmp_path))
    partition = f"{FIRST}|{next(iter(project.grid.partitions))}"
    batch = TilesBatch(project, [partition], run_id="r1")
    return project, project.engine(inline=True).run(batch, run_id="r1")


def described(project: Project, report: RunReport) -> dict[str, Any]:
    """Metadata of its only partition."""
    return dict(describe_tiles(project)(report, report.partitions[0]))


def test_a_partition_shows_pictures_counts_duration_and_bytes(tmp_path: Path) -> None:
    """Each product has a picture that pages show inline; outputs are in the order of product and tile; time and size are told."""
    project, report = done(tmp_path)
    found = described(project, report)
    assert list(found)[:3] == ["preview greenness", "preview true_colour", "planned"]
    for product in ("greenness", "true_colour"):
        text = found[f"preview {product}"].value
        assert len(text) < INLINE_CHARS
        picture = Image.open(io.BytesIO(base64.b64decode(text.partition("base64,")[2].rstrip(")"))))
        assert (picture.format, picture.size) == ("WEBP", (64, 64))
        assert found[f"folder {product}"].value == str(project.config.store_dir / "tiles" / product / FIRST)
    assert found["planned"] == found["complete"] == found["run_processed"] == 8
    assert found["bytes"] == sum(unit.output_size or 0 for unit in project.ledger.units(asset="tiles"))
    histories = [project.ledger.history(unit.key) for unit in project.ledger.units(asset="tiles")]
    assert found["seconds"] == round(sum(entry.duration_s or 0.0 for history in histories for entry in history), 3) > 0
    rows = [line.split(" | ")[:3] for line in found["outputs"].value.splitlines()[2:]]
    assert rows == [
        [f"| {product}", tile, "100%"]
        for product in ("greenness", "true_colour")
        for tile in ("0-0-0", "0-0-1", "0-1-0", "0-1-1")
    ]
    assert isinstance(found["outputs"], dg.MarkdownMetadataValue)


def test_only_the_first_partitions_of_a_run_get_pictures(tmp_path: Path) -> None:
    """Pictures stay in Dagster's database for ever, so a run of many partitions makes a few only."""
    project, report = done(tmp_path)
    describe = describe_tiles(project)
    shown = [sum(name.startswith("preview") for name in describe(report, report.partitions[0])) for _ in range(34)]
    assert shown == [2] * 32 + [0] * 2


def test_a_small_thumbnail_fits_whatever_the_pixels(tmp_path: Path) -> None:
    """Noise, which compresses worst, becomes smaller until it fits; what can never fit is left out."""
    noise = np.random.default_rng(1).integers(1, 255, (3, 512, 512), dtype="uint8")
    path = write_raster(tmp_path / "noise.tif", noise)
    picture = small_thumbnail(path, bytes_max=690)
    assert 0 < len(picture) <= 690
    assert max(Image.open(io.BytesIO(picture)).size) < 128
    assert small_thumbnail(path, bytes_max=10) == b""


def test_a_manifest_names_first_the_scenes_that_are_left_out(tmp_path: Path) -> None:
    """A rejected scene comes before the accepted ones, with its reason; a window without scenes says so."""
    project = open_project(write_project(tmp_path))
    (tmp_path / "scenes" / "zebra_20240601.tif").write_bytes(b"no raster")
    scenes = [scene for scene in list_scenes(project, now=project.ledger.clock()).scenes if scene.window == FIRST]
    found = scenes_metadata(project, FIRST, scenes)
    assert (found["scenes"], found["verdicts"]) == (3, "2 ACCEPTED, 1 REJECTED")
    lines = found["first_scenes"].value.splitlines()
    assert len(lines) == 3
    assert "zebra" in lines[0]
    assert "REJECTED: `" in lines[0]
    assert scenes_metadata(project, FIRST, [])["verdicts"] == "none"
