"""The page of a window without a map: what it says of its units, what decides its bytes, and what it lets a browser do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assets.grid import Tile
from assets.window_page import PageTable, page_work, window_page
from resources.errors import ErrorKind, UnitRejected
from resources.units import UnitState
from resources.windows import BatchWindow
from tests.support.windows import tile_row

WINDOW = BatchWindow("2026-01-01", datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
URI = "batch_report/2026-01-01.html"
DONE = tile_row(Tile.parse("0-0-0"))
HOSTILE = "bad\u202e<script>alert(1)</script>"
LOST = replace(tile_row(Tile.parse("0-0-1")), state=UnitState.QUARANTINED, error_kind="corrupt_input", reason=HOSTILE)
TABLE = PageTable("Kinds", ("kind", "files"), (("TIFF", "3"), ("PDF", "1")), numbers=("files",))


def written(path: Path, *rows: object, **changes: object) -> str:
    """The page of these rows, written and checked."""
    facts = {"noun": "copies", "tables": [TABLE], "links": [("manifest", "master_manifest/2026-01-01.parquet")]} | changes
    work = page_work("batch_report", window_page(URI, WINDOW, rows, **facts))  # type: ignore[arg-type]
    work.work(path)
    work.validate(path)
    return path.read_text("utf-8")


def test_a_page_counts_names_and_links(tmp_path: Path) -> None:
    """Counts by state, the absent with their reasons, the pipeline's tables, and links that hold from where the page lies."""
    page = written(tmp_path / "page.html", DONE, LOST)
    assert "1 of 2 planned copies are absent" in page
    assert "corrupt_input" in page
    assert 'href="../master_manifest/2026-01-01.parquet"' in page
    assert page.count("<th") == 5 + 2
    assert "All 1 planned copies are there" in written(tmp_path / "whole.html", DONE)
    assert "No copies are planned" in written(tmp_path / "empty.html")


def test_what_comes_from_outside_is_shown_and_not_run(tmp_path: Path) -> None:
    """A reason with markup and a control character that reorders text is written out as text."""
    page = written(tmp_path / "page.html", LOST)
    assert "<script>" not in page
    assert "\u202e" not in page
    assert "\\u202e&lt;script&gt;" in page
    assert "default-src 'none'" in page


def test_equal_units_give_equal_bytes_and_a_change_another_key(tmp_path: Path) -> None:
    """The order of rows, a run that is on, and what has been superseded change nothing; a reason, a table or a link does."""
    running = replace(LOST, state=UnitState.RUNNING, error_kind=None, reason=None)
    over = replace(LOST, state=UnitState.SUPERSEDED)
    assert written(tmp_path / "a", DONE, LOST) == written(tmp_path / "b", LOST, DONE, over)
    assert written(tmp_path / "a", running) == written(tmp_path / "b", replace(running, state=UnitState.PENDING))

    def key(*rows: object, tables: tuple[PageTable, ...] = (), links: tuple[tuple[str, str], ...] = ()) -> str:
        return page_work("x", window_page(URI, WINDOW, rows, noun="copies", tables=tables, links=links)).unit.key  # type: ignore[arg-type]

    base = key(DONE, LOST)
    assert base not in {
        key(DONE),
        key(DONE, replace(LOST, reason="another")),
        key(DONE, LOST, tables=(TABLE,)),
        key(DONE, LOST, links=(("a", "b"),)),
    }


def test_a_long_table_is_cut_and_counted(tmp_path: Path) -> None:
    """A page of a hundred thousand rows is no page: some hundred are shown, the rest is counted."""
    rows = tuple((f"file {number}", "1") for number in range(2_000))
    page = written(tmp_path / "page.html", DONE, tables=[replace(TABLE, rows=rows)])
    assert "1500 more are not listed here" in page
    assert page.count("<td") == 2 * 500


def test_a_page_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    """A staged page that lacks its end, or is another's, is not promoted."""
    work = page_work("batch_report", window_page(URI, WINDOW, [DONE], noun="copies"))
    other = page_work("batch_report", window_page(URI, WINDOW, [LOST], noun="copies"))
    path = tmp_path / "page.html"
    work.work(path)
    with pytest.raises(UnitRejected) as caught:
        other.validate(path)
    assert caught.value.kind is ErrorKind.INVALID_OUTPUT
    path.write_text(path.read_text()[:-20])
    with pytest.raises(UnitRejected):
        work.validate(path)
