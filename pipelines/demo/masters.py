"""The masters of the demo of digitization: drawn here, so that nothing has to be fetched, in the kinds a lab has."""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

CONFIGURATION = """# The demo of digitization: two days, a folder of masters for each batch.
pipeline = "digitization"
autostart = true
state = "state"

[source]
uri = "masters"
done_marker = "batch.done"

[window]
start = 2024-06-01
end = 2024-06-03

[derivative]
compression = "lossless"

[rights]
basis = "license"
terms = "CC0 1.0"
acts = ["disseminate"]

[retry]
base_s = 0.1
later_base_s = 1.0
later_cap_s = 2.0

[sensors]
interval_s = 4

[store]
uri = "outputs"
"""
_SIDE = (360, 260)


@dataclass(frozen=True, slots=True)
class DemoMasters:
    """The project of the demo, and the files that something is wrong with or will be."""

    config: Path
    folder: Path
    damaged: Path
    cut: Path
    rewritten: Path
    first_window: str = "2024-06-01"


def build_masters(folder: Path) -> DemoMasters:
    """Write the project and two batches. Writing twice gives the same bytes and times."""
    masters = folder / "masters"
    day = datetime(2024, 6, 1, 9, tzinfo=UTC)
    letters = masters / "2024-06-01_letters"
    listed = [_save(letters / "data" / f"letter_{number}.tif", _drawing(number)) for number in range(1, 5)]
    listed.append(_save(letters / "data" / "letter_2_again.tif", _drawing(2)))
    damaged = _save(letters / "data" / "letter_5.tif", _drawing(5))
    lines = "".join(f"{_sha256(path)}  data/{path.name}\n" for path in [*listed, damaged])
    (letters / "manifest-sha256.txt").write_text(lines, encoding="ascii")
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 0x01
    damaged.write_bytes(content)
    _done(letters, day)
    maps = masters / "2024-06-02_maps"
    _save(maps / "stamp.tif", _drawing(6).convert("1"), compression="group4")
    _save(maps / "chart.tif", _drawing(7).quantize(64))
    _save(maps / "negative.tif", _drawing(8).convert("L"), compression="tiff_lzw")
    _save(maps / "atlas.tif", _drawing(9), append=[_drawing(10), _drawing(11).convert("L")])
    cut = _save(maps / "torn.tif", _drawing(12))
    cut.write_bytes(cut.read_bytes()[:-20_000])
    _done(maps, day.replace(day=2))
    config = folder / "tilewright.toml"
    config.write_text(CONFIGURATION, encoding="ascii")
    os.utime(config, (day.timestamp(), day.timestamp()))
    return DemoMasters(config, masters, damaged, cut, listed[0])


def _save(path: Path, picture: Image.Image, *, compression: str | None = None, append: list[Image.Image] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(
        path, compression=compression, dpi=(300, 300), software="demo scanner", save_all=bool(append), append_images=append or []
    )
    return path


def _drawing(seed: int) -> Image.Image:
    """A page with slopes, rings and lines of something like writing: each seed another."""
    from PIL import Image, ImageDraw

    width, height = _SIDE
    picture = Image.linear_gradient("L").resize(_SIDE).convert("RGB")
    draw = ImageDraw.Draw(picture)
    for ring in range(6):
        radius = 12 + 17 * ring + seed
        box = (width // 2 - radius, height // 2 - radius, width // 2 + radius, height // 2 + radius)
        draw.ellipse(box, outline=((40 * ring + 20 * seed) % 256, (90 + 30 * seed) % 256, 200 - 20 * ring), width=3)
    for line in range(12):
        y = 20 + 19 * line
        points = [(x, y + round(4 * math.sin(x / 7 + seed * line))) for x in range(15, width - 15, 3)]
        draw.line(points, fill=(30, 20, 10 * seed % 256), width=2)
    return picture


def _done(batch: Path, moment: datetime) -> None:
    """All files of a batch of that time, and its marker."""
    (batch / "batch.done").write_bytes(b"")
    for path in batch.rglob("*"):
        if path.is_file():
            os.utime(path, (moment.timestamp(), moment.timestamp()))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
