"""The page of a window for a pipeline without a map: its units by state, what is absent and why, and tables of what was made.

For whoever has to say whether a window is fit for use. The bytes follow from the request alone; see `assets.page`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from assets.page import check_page, relative_href, render
from assets.state_styles import STYLES
from assets.window_batch import window_unit
from resources.keys import unit_key
from resources.ledger import UnitRow
from resources.units import Metrics, UnitOfWork, UnitState
from resources.windows import BatchWindow

VERSION = "1"
_ROWS_MAX = 500
_OVER = frozenset({UnitState.SUPERSEDED, UnitState.RETIRED})


@dataclass(frozen=True, slots=True)
class PageTable:
    """One table of a page: at most some hundred rows of text; `left` more are only counted. `note` is said below it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    numbers: tuple[str, ...] = ()
    left: int = 0


@dataclass(frozen=True, slots=True)
class WindowPage:
    """Everything that decides a page's bytes. Picklable.

    `noun` is the word for its units (plural); `counts` has a number for each state of `STYLES`; `links` are (label, store URI).
    """

    uri: str
    window: BatchWindow
    noun: str
    counts: Mapping[UnitState, int]
    absent: PageTable | None
    tables: tuple[PageTable, ...]
    links: tuple[tuple[str, str], ...]
    footer: str = ""
    unit_key: str = ""


def window_page(
    uri: str,
    window: BatchWindow,
    rows: Iterable[UnitRow],
    *,
    noun: str,
    tables: Sequence[PageTable] = (),
    links: Sequence[tuple[str, str]] = (),
    footer: str = "",
) -> WindowPage:
    """The page of a window's units, `rows`, with the pipeline's own tables and links to files of the store."""
    counts = dict.fromkeys(STYLES, 0)
    absent = []
    for row in rows:
        if row.state in _OVER:
            continue
        # whether a unit runs just now must not change a page
        state = UnitState.PENDING if row.state is UnitState.RUNNING else row.state
        counts[state] += 1
        if state is not UnitState.COMPLETE:
            absent.append(
                (-list(STYLES).index(state), row.product, row.output_uri, state, row.error_kind or "", row.reason or "")
            )
    absent.sort()
    told = tuple(
        (STYLES[state].label, product, _plain(uri), kind, reason) for _, product, uri, state, kind, reason in absent[:_ROWS_MAX]
    )
    columns = ("state", "operation", "output", "kind", "reason")
    table = PageTable(f"Absent {noun}", columns, told, left=len(absent) - len(told)) if absent else None
    return WindowPage(uri, window, noun, counts, table, tuple(cut(table) for table in tables), tuple(links), footer)


def cut(table: PageTable) -> PageTable:
    """A table with no more rows than a page shows; the rest is counted."""
    return replace(table, rows=table.rows[:_ROWS_MAX], left=table.left + max(0, len(table.rows) - _ROWS_MAX))


def page_work(asset: str, page: WindowPage) -> UnitOfWork:
    """The unit of work that writes a page; its key is made from all that it says."""
    ingredients: dict[str, Any] = {
        "operation": asset,
        "version": VERSION,
        "settings": {},
        "destination": {"window": page.window.key, "uri": page.uri},
        "inputs": {
            "counts": {state.value: number for state, number in page.counts.items()},
            "says": [asdict(table) for table in (page.absent, *page.tables) if table is not None],
            "links": [list(link) for link in page.links],
            "words": [page.noun, page.footer],
        },
    }
    keyed = replace(page, unit_key=unit_key(**ingredients))
    return window_unit(asset, page.uri, ingredients, work=partial(write_page, keyed), validate=partial(validate_page, keyed))


def write_page(page: WindowPage, path: Path) -> Metrics:
    """Write the page to `path`, a staging name; returns its counts. After a crash: a staged file that the sweep removes."""
    planned = sum(page.counts.values())
    text = render(
        "window_page.html.j2",
        unit_key=page.unit_key,
        window=page.window,
        page=page,
        planned=planned,
        complete=page.counts[UnitState.COMPLETE],
        counts=[(style, page.counts[state]) for state, style in STYLES.items()],
        links=[(label, relative_href(uri, from_uri=page.uri)) for label, uri in page.links],
        version=VERSION,
    )
    path.write_text(text, encoding="utf-8", newline="\n")
    return {"planned": planned, **{state.value.lower(): count for state, count in page.counts.items()}}


def validate_page(page: WindowPage, path: Path) -> None:
    """Open a staged page again. Raises `UnitRejected` (INVALID_OUTPUT) unless it is whole and bears its key."""
    check_page(path, uri=page.uri, unit_key=page.unit_key)


def _plain(uri: str) -> str:
    return uri.partition(":")[2] if uri.startswith("row:") else uri
