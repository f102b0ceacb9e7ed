"""The page of a window of batches: its copies by state, what was refused or changed and why, and its batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from assets.digitization.capturing import list_masters
from assets.digitization.copies import copy_states
from assets.digitization.export import events_uri
from assets.digitization.masters import TAKEN_IN, Master, MasterVerdict, first_of_each
from assets.digitization.shape import MANIFEST, REPORT
from assets.digitization.stock import window_masters
from assets.window_batch import WindowBatch
from assets.window_page import PageTable, page_work, window_page
from resources.ledger import UnitRow

if TYPE_CHECKING:
    from assets.digitization.project import DigitizationProject


def report_uri(window: str) -> str:
    """Where the page of a window lies."""
    return f"{REPORT}/{window}.html"


def report_batch(project: DigitizationProject, windows: Sequence[str], rows: Iterable[UnitRow]) -> WindowBatch:
    """The pages of some windows."""
    listing = list_masters(project, now=project.ledger.clock())
    units = list(rows)
    works = {}
    for window in windows:
        masters = window_masters(project, window, listing)
        tables = (
            _batches(masters),
            _amiss(masters),
            _of_other_windows(project, window, masters),
            _statements(units, window),
        )
        page = window_page(
            report_uri(window),
            project.calendar.window(window),
            [row for row in units if row.window == window],
            noun="access copies",
            tables=[table for table in tables if table.rows],
            links=(("master manifest", f"{MANIFEST}/{window}.parquet"), ("preservation events", events_uri(window))),
            footer="Masters are described as they were captured; copies are lossless unless their settings say otherwise.",
        )
        works[window] = [page_work(REPORT, page)]
    return WindowBatch(REPORT, works, ledger=project.ledger)


def _batches(masters: Sequence[Master]) -> PageTable:
    names = sorted({master.batch for master in masters})
    rows = []
    for name in names:
        mine = [master for master in masters if master.batch == name]
        taken = [master for master in mine if master.verdict in TAKEN_IN]
        contents = {master.sha256 for master in taken}
        rows.append((name, str(len(mine)), str(len(taken)), str(len(contents)), str(sum(master.size_bytes for master in mine))))
    columns = ("batch", "files", "captured", "contents", "bytes")
    return PageTable("Batches", columns, tuple(rows), note="Files with equal bytes are one content and have one copy.")


def _of_other_windows(project: DigitizationProject, window: str, masters: Sequence[Master]) -> PageTable:
    """Contents that another window captured first: their copies are there, and may be missing there."""
    mine = {master.uri: master.sha256 for master in masters if master.verdict in TAKEN_IN and master.sha256 is not None}
    first = first_of_each(project.ledger.captures(sha256s=sorted(set(mine.values()))))
    elsewhere = {uri: first[sha256] for uri, sha256 in mine.items() if first[sha256].window != window}
    states = copy_states(project, elsewhere.values())
    rows = [(uri, capture.window, capture.uri, states.get(capture.sha256, "not planned")) for uri, capture in elsewhere.items()]
    columns = ("file", "window of its copy", "captured first as", "copy")
    return PageTable("Contents of other windows", columns, tuple(sorted(rows)))


def _amiss(masters: Sequence[Master]) -> PageTable:
    rows = [
        (master.uri, master.verdict.value, "" if master.kind is None else master.kind.value, master.reason)
        for master in masters
        if master.verdict is not MasterVerdict.CAPTURED
    ]
    return PageTable("Masters not taken in, or changed or gone since", ("file", "verdict", "kind", "reason"), tuple(rows))


def _statements(units: Sequence[UnitRow], window: str) -> PageTable:
    counts: Counter[str] = Counter()
    for row in units:
        if row.window == window:
            counts.update(row.metrics.get("statements", ()))
    rows = tuple((text, str(count)) for text, count in sorted(counts.items()))
    return PageTable("What was converted", ("statement", "copies"), rows)
