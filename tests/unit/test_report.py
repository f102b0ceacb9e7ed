"""The window's report, its map and its pictures."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from assets.grid import Tile
from assets.page import visible
from assets.report import (
    AbsentScene,
    ReportRequest,
    absent_scenes,
    report_ingredients,
    report_uris,
    validate_report,
    validate_report_map,
    write_report,
    write_report_map,
)
from assets.scenes.model import Scene, SceneVerdict
from assets.state_map import STYLES, state_counts, state_drawing, state_map
from assets.thumbnails import data_uri, mosaic_picture, spread, stretch, tile_thumbnail
from assets.window_tiles import window_tiles
from resources.config_scenes import ProductConfig
from resources.errors import ErrorKind, TransientError, UnitRejected
from resources.keys import unit_key
from resources.units import UnitState
from tests.support.windows import PRODUCT, WINDOW, Row, metric_grid, tile_row, write_tile

LINKS = (("Catalogue", f"tile_catalogue/{WINDOW.key}.parquet"),)


def _request(
    store: Path, rows: list[Row], *, part: int = 0, scenes: tuple[AbsentScene, ...] = (), **changes: Any
) -> ReportRequest:
    grid = metric_grid()
    tiles = window_tiles(rows, window=WINDOW, grid=grid)
    uri = report_uris(WINDOW.key)[part]
    values: dict[str, Any] = {"products": (PRODUCT,), "places": grid.tiles, "scenes": scenes, "links": LINKS, **changes}
    key = unit_key(**report_ingredients(uri, tiles, grid_settings=grid.settings(), **values))
    return ReportRequest(unit_key=key, uri=uri, tiles=tiles, store_dir=store, **values)


def _rows(store: Path) -> list[Row]:
    """Six tiles of rising values: four there, one quarantined, one failed."""
    grid = metric_grid()
    rows = []
    for number, tile in enumerate(grid.tiles):
        if number == 1:
            rows.append(
                tile_row(tile, state=UnitState.QUARANTINED, error_kind="corrupt_input", reason="block 3 cannot be decoded")
            )
        elif number == 4:
            rows.append(tile_row(tile, state=UnitState.FAILED, error_kind="timeout", reason="no answer in 30 s"))
        else:
            rows.append(write_tile(store, grid, tile_row(tile), np.full((1, 16, 16), 10 * number, "int16")))
    return rows


def _page(request: ReportRequest) -> str:
    path = request.store_dir / request.uri
    path.parent.mkdir(parents=True, exist_ok=True)
    write_report(request, path)
    validate_report(request, path)
    return path.read_text(encoding="utf-8")


class _References(HTMLParser):
    """Collects what a page refers to, and the tags that may do something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.handlers: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "srcset", "data", "poster", "background"):
                self.loaded.append(value or "")
            if name == "href":
                self.links.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)


def test_page_says_what_is_there_and_what_is_absent(tmp_path: Path) -> None:
    """Counts, the absent tiles with kind and reason, absent scenes, and what to do are on the page."""
    scenes = (AbsentScene("scene-x", "WAITING", "", "bands missing: nir"),)
    page = _page(_request(tmp_path, _rows(tmp_path), scenes=scenes))
    for text in (
        "2 of 6 planned tiles are absent",
        "block 3 cannot be decoded",
        "no answer in 30 s",
        "corrupt_input",
        "scene-x",
        "bands missing: nir",
        "tilewright quarantine replay",
        "scene-a",
    ):
        assert text in page


def test_page_needs_nothing_beside_it(tmp_path: Path) -> None:
    """Everything loaded is inline, there is no script, and links are relative and lead to files of the store."""
    request = _request(tmp_path, _rows(tmp_path))
    found = _References(_page(request))
    assert found.loaded
    assert all(reference.startswith("data:image/png;base64,") for reference in found.loaded)
    assert not found.tags & {"script", "link", "iframe", "object", "embed", "base", "form"}
    assert found.handlers == []
    assert f"../tile_catalogue/{WINDOW.key}.parquet" in found.links
    tiles = [link for link in found.links if link.endswith(".tif")]
    assert len(tiles) == 4
    assert all((tmp_path / request.uri).parent.joinpath(link).resolve().is_file() for link in tiles)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """Markup in names and reasons is shown, not run; characters that reorder or hide text are written out."""
    hostile = "<script>alert(1)</script>\u202efig.tif\n\" onload='x'"
    row = tile_row(metric_grid().tiles[0], state=UnitState.QUARANTINED, error_kind="corrupt_input", reason=hostile)
    page = _page(_request(tmp_path, [row], scenes=(AbsentScene(hostile, "REJECTED", "corrupt_input", hostile),)))
    found = _References(page)
    assert "script" not in found.tags
    assert found.handlers == []
    assert "\u202e" not in page
    assert "\\u202efig.tif\\u000a" in page


def test_equal_tiles_give_equal_bytes_and_no_time_is_on_the_page(tmp_path: Path) -> None:
    """Two writes are equal byte for byte, page and map; the only times are the window's edges."""
    rows = _rows(tmp_path)
    assert _page(_request(tmp_path, rows)) == _page(_request(tmp_path, rows[::-1]))
    times = set(re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d", _page(_request(tmp_path, rows))))
    assert times == {"2024-05-01 00:00", "2024-05-02 00:00"}
    request = _request(tmp_path, rows, part=1)
    for name in ("one.png", "two.png"):
        write_report_map(request, tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_window_without_tiles_has_a_report(tmp_path: Path) -> None:
    """A window in which nothing is planned, and one in which everything is quarantined, have a page and a map."""
    page = _page(_request(tmp_path, []))
    assert "No tile is planned" in page
    rows = [tile_row(tile, state=UnitState.QUARANTINED) for tile in metric_grid().tiles]
    assert "6 of 6 planned tiles are absent" in _page(_request(tmp_path, rows))
    for found in ([], rows):
        request = _request(tmp_path, found, part=1)
        write_report_map(request, tmp_path / "map.png")
        validate_report_map(request, tmp_path / "map.png")


def test_page_and_map_have_keys_of_their_own_that_follow_the_reasons(tmp_path: Path) -> None:
    """Page and map are two units; another reason, another absent scene or another link is another page."""
    rows = _rows(tmp_path)
    keys = {
        _request(tmp_path, rows).unit_key,
        _request(tmp_path, rows, part=1).unit_key,
        _request(tmp_path, rows, scenes=(AbsentScene("s", "REJECTED", "", ""),)).unit_key,
        _request(tmp_path, rows, links=()).unit_key,
        _request(
            tmp_path, [*rows[:4], tile_row(metric_grid().tiles[4], state=UnitState.FAILED, reason="other"), rows[5]]
        ).unit_key,
    }
    assert len(keys) == 5


@pytest.mark.parametrize("part", [0, 1])
def test_truncated_and_foreign_outputs_are_refused(tmp_path: Path, part: int) -> None:
    """A page or a map that lost its end, or bears another key, is not valid output."""
    write, validate = ((write_report, validate_report), (write_report_map, validate_report_map))[part]
    request = _request(tmp_path, _rows(tmp_path), part=part)
    path = tmp_path / "staged"
    write(request, path)
    validate(request, path)
    other = _request(tmp_path, [], part=part)
    whole = path.read_bytes()
    for kept, asked in ((len(whole), other), (len(whole) - 200, request), (20, request), (0, request)):
        path.write_bytes(whole[:kept])
        with pytest.raises(UnitRejected) as caught:
            validate(asked, path)
        assert caught.value.kind is ErrorKind.INVALID_OUTPUT


def test_report_of_a_tile_that_is_gone_is_tried_later(tmp_path: Path) -> None:
    """A tile that vanished behind the ledger's back is a reason to try again, not to show a window without it."""
    rows = _rows(tmp_path)
    (tmp_path / rows[0].output_uri).unlink()
    with pytest.raises(TransientError) as caught:
        _page(_request(tmp_path, rows))
    assert caught.value.kind is ErrorKind.INPUT_CHANGED


def test_long_lists_are_cut_and_say_so(tmp_path: Path) -> None:
    """Of many absent tiles 500 are listed, the worst first, and the rest is counted."""
    grid = metric_grid(columns=30, rows=20)
    rows = [tile_row(tile, state=UnitState.PENDING) for tile in grid.tiles[:-1]]
    rows.append(tile_row(grid.tiles[-1], state=UnitState.QUARANTINED, reason="the worst"))
    tiles = window_tiles(rows, window=WINDOW, grid=grid)
    request = _request(tmp_path, [])
    page = _page(ReportRequest(request.unit_key, request.uri, tiles, (PRODUCT,), grid.tiles, (), (), tmp_path))
    assert "100 more are not listed here" in page
    assert page.index("the worst") < page.index("0-0-0</td>")


def test_absent_scenes_are_those_of_the_window_that_are_not_accepted() -> None:
    """Accepted scenes and those of other windows are not listed."""
    scenes = [
        Scene("b", SceneVerdict.REJECTED, "d1", window=WINDOW.key, kind=ErrorKind.EMPTY_FILE, reason="0 bytes"),
        Scene("a", SceneVerdict.WAITING, "", window=WINDOW.key, reason="bands missing"),
        Scene("c", SceneVerdict.ACCEPTED, "d2", window=WINDOW.key),
        Scene("d", SceneVerdict.REJECTED, "d3", window="2024-05-02"),
    ]
    assert absent_scenes(scenes, WINDOW.key) == (
        AbsentScene("a", "WAITING", "", "bands missing"),
        AbsentScene("b", "REJECTED", "empty_file", "0 bytes"),
    )


def test_map_shows_each_place_in_its_worst_state() -> None:
    """Of two products the worse decides the colour; places without a unit are pale."""
    grid = metric_grid()
    first, second, third, *_ = grid.tiles
    rows = [
        tile_row(first, product="a"),
        tile_row(first, product="b", state=UnitState.QUARANTINED),
        tile_row(second, product="a"),
        tile_row(third, product="a", state=UnitState.FAILED),
    ]
    tiles = window_tiles(rows, window=WINDOW, grid=grid)
    drawing = state_drawing(tiles, grid.tiles)
    assert drawing is not None
    colours = {cell.title.split("\n")[0].split(":")[0]: cell.colour for cell in drawing.cells}
    assert colours[first.name] == STYLES[UnitState.QUARANTINED].colour
    assert colours[second.name] == STYLES[UnitState.COMPLETE].colour
    assert colours[third.name] == STYLES[UnitState.FAILED].colour
    assert len(colours) == 6
    counts = state_counts(tiles)
    assert (counts[UnitState.COMPLETE], counts[UnitState.QUARANTINED], counts[UnitState.FAILED]) == (2, 1, 1)
    picture = np.asarray(Image.open(io.BytesIO(state_map(tiles, grid.tiles))).convert("RGB"))
    cell = 56
    assert "#{:02x}{:02x}{:02x}".format(*picture[24 + 32 + cell // 2, 24 + cell // 2]) == STYLES[UnitState.QUARANTINED].colour


def test_map_of_a_very_large_grid_is_thinned_and_keeps_the_worst() -> None:
    """A grid of 4,000 by 3 places fits a picture, and its one quarantined tile is still seen."""
    places = tuple(Tile(0, x, y) for x in range(4_000) for y in range(3))
    grid = metric_grid()
    tiles = window_tiles([tile_row(Tile(0, 2_001, 1), state=UnitState.QUARANTINED)], window=WINDOW, grid=grid)
    assert state_drawing(tiles, places) is None
    picture = np.asarray(Image.open(io.BytesIO(state_map(tiles, places))).convert("RGB"))
    assert picture.shape[1] < 1_200
    worst = tuple(int(STYLES[UnitState.QUARANTINED].colour[i : i + 2], 16) for i in (1, 3, 5))
    assert (picture[50:70] == worst).all(axis=-1).any()


def test_thumbnail_is_small_and_clear_where_nothing_is(tmp_path: Path) -> None:
    """A tile's thumbnail keeps its shape within 256 px; masked pixels are clear; values rise in lightness."""
    grid = metric_grid()
    pixels = np.repeat(np.arange(16, dtype="int16")[None, None, :], 16, axis=1)
    pixels[:, :8] = -1
    row = write_tile(tmp_path, grid, tile_row(grid.tiles[0]), pixels)
    picture = Image.open(io.BytesIO(tile_thumbnail(tmp_path / row.output_uri)))
    assert picture.size == (16, 16)
    rgba = np.asarray(picture)
    assert (rgba[:8, :, 3] == 0).all()
    assert (rgba[8:, :, 3] == 255).all()
    lightness = rgba[12, :, :3].astype(float) @ (0.2126, 0.7152, 0.0722)
    assert (np.diff(lightness) >= 0).all()
    assert lightness[-1] - lightness[0] > 100
    assert tile_thumbnail(tmp_path / row.output_uri, size_px=4) != tile_thumbnail(tmp_path / row.output_uri)
    assert data_uri(b"x") == "data:image/png;base64,eA=="


def test_mosaic_picture_puts_tiles_at_their_places(tmp_path: Path) -> None:
    """The picture of a product has each tile where the grid has it and is clear where a tile is absent."""
    rows = _rows(tmp_path)
    tiles = window_tiles(rows, window=WINDOW, grid=metric_grid()).complete
    rgba = np.asarray(Image.open(io.BytesIO(mosaic_picture(tmp_path, tiles))))
    assert rgba.shape == (32, 48, 4)
    assert (rgba[16:, :16, 3] == 0).all(), "tile 1 is quarantined: second row, first column"
    assert (rgba[:16, 32:, 3] == 0).all(), "tile 4 failed: first row, third column"
    assert (rgba[..., 3] == 255).sum() == 4 * 256


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
def test_stretch_survives_odd_pixels(dtype: str) -> None:
    """One value everywhere, nothing valid, and NaN give a picture, not a warning."""
    constant = np.ma.MaskedArray(np.full((1, 4, 4), 7, dtype), False)
    assert (stretch(constant)[..., 3] == 255).all()
    nothing = np.ma.MaskedArray(np.zeros((3, 4, 4), dtype), True)
    assert (stretch(nothing) == 0).all()
    if dtype == "float32":
        broken = np.ma.MaskedArray(np.array([[[np.nan, np.inf, 1.0, 2.0]]], dtype), False)
        assert stretch(broken)[0, :, 3].tolist() == [0, 0, 255, 255]


def test_samples_are_spread_and_prefer_valid_pixels() -> None:
    """Of many tiles the samples come from all parts of the window, the fuller tile of each part."""
    grid = metric_grid(columns=4, rows=3)
    rows = [tile_row(tile, metrics={"valid_share": 1.0 if number % 2 else 0.1}) for number, tile in enumerate(grid.tiles)]
    tiles = window_tiles(rows, window=WINDOW, grid=grid).complete
    chosen = spread(tiles, 4)
    assert [tiles.index(tile) // 3 for tile in chosen] == [0, 1, 2, 3]
    assert all(tile.valid_share == 1.0 for tile in chosen)
    assert spread(tiles, 100) == list(tiles)


def test_visible_writes_out_what_hides() -> None:
    """Plain text, also of other scripts, stays as it is; control and direction characters are escaped."""
    assert visible("São Paulo 東京 a b") == "São Paulo 東京 a b"
    assert visible("a\tb\u200fc\u2028") == "a\\u0009b\\u200fc\\u2028"


def test_product_with_three_bands_is_shown_in_its_colours(tmp_path: Path) -> None:
    """Three uint8 bands share one stretch: a grey picture stays grey."""
    grid = metric_grid()
    grey = np.repeat(np.linspace(50, 200, 16).astype("uint8")[None, None, :], 16, axis=1).repeat(3, axis=0)
    product = ProductConfig(name="rgb", bands=("r", "g", "b"), dtype="uint8")
    row = write_tile(tmp_path, grid, tile_row(grid.tiles[0], product="rgb"), grey, nodata=None)
    rgba = np.asarray(Image.open(io.BytesIO(tile_thumbnail(tmp_path / row.output_uri))))
    assert (rgba[..., 0] == rgba[..., 1]).all()
    assert (rgba[..., 0] == rgba[..., 2]).all()
    assert "rgb" in _page(_request(tmp_path, [row], products=(product,)))
