"""The page of a window of reports: its records by state, what was set aside and why, findings, conflicts, equal contents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assets.inspections.listing import ReportListing
from assets.inspections.shape import PAGE, RECORDS
from assets.inspections.table import StandingRecord, list_uri, standing_records, table_uri
from assets.window_batch import WindowBatch
from assets.window_page import PageTable, page_work, window_page
from resources.ledger import DeadLetter, LetterStatus, UnitRow
from resources.ledger.leavers import GONE

if TYPE_CHECKING:
    from assets.inspections.project import InspectionsProject

_WORD_CHARS = 300


def page_uri(window: str) -> str:
    """Where the page of a window lies."""
    return f"{PAGE}/{window}.html"


def page_batch(project: InspectionsProject, windows: Sequence[str], rows: Iterable[UnitRow]) -> WindowBatch:
    """The pages of some windows."""
    units = list(rows)
    listing = project.list_reports(now=project.ledger.clock())
    letters = [letter for letter in project.ledger.dead_letters() if letter.asset == RECORDS]
    replayed = _rounds(project)
    works = {}
    for window in windows:
        mine = [row for row in units if row.window == window]
        records = standing_records(project, window, mine)
        tables = (
            _letters([letter for letter in letters if letter.window == window], replayed, mine),
            _left_out(listing, mine, window),
            _records(records),
            _not_current(records),
            _same_contents(records),
            _withdrawn(project.ledger.units(asset=RECORDS, window=window, state=GONE)),
        )
        page = window_page(
            page_uri(window),
            project.calendar.window(window),
            mine,
            noun="inspection records",
            tables=[table for table in tables if table.rows],
            links=(("reports that the source lists", list_uri(window)), ("inspection records", table_uri(window))),
            footer=f"A report corrected under its address: {_POLICY[project.config.source.same_uri]}",
        )
        works[window] = [page_work(PAGE, page)]
    return WindowBatch(PAGE, works, ledger=project.ledger)


_POLICY = {
    "replace": "its record takes the place of the one before, which is kept in the history.",
    "keep": "the first record stays, and the change is named by a check.",
}


def _rounds(project: InspectionsProject) -> Mapping[str, int]:
    """How often each unit's dead letter was replayed, by unit key."""
    counts: dict[str, int] = {}
    for letter in project.ledger.dead_letters(status=LetterStatus.REPLAYED):
        counts[letter.subject_key] = counts.get(letter.subject_key, 0) + 1
    return counts


def _letters(letters: Sequence[DeadLetter], replayed: Mapping[str, int], units: Sequence[UnitRow]) -> PageTable:
    addresses = {row.key: str(row.spec.get("uri", "")) for row in units}
    rows = [
        (
            addresses.get(letter.subject_key, letter.name),
            letter.kind,
            letter.reason[:_WORD_CHARS],
            str(letter.attempts),
            f"{letter.first_at:%Y-%m-%d %H:%M}",
            f"{letter.last_at:%Y-%m-%d %H:%M}",
            str(replayed.get(letter.subject_key, 0)),
        )
        for letter in letters
    ]
    columns = ("report", "kind", "reason", "attempts", "first", "last", "replays")
    return PageTable("Open dead letters", columns, tuple(sorted(rows)), numbers=("attempts", "replays"))


def _left_out(listing: ReportListing, rows: Sequence[UnitRow], window: str) -> PageTable:
    """What the source lists and no record is made of, where it can be told that it concerns this window."""
    mine = {row.spec.get("uri") for row in rows} | {report.shown for report in listing.of_window(window)}
    found = [(one.name, one.verdict, one.reason) for one in listing.left_out if one.name in mine or window in one.name]
    return PageTable("Left out, or in conflict", ("report", "verdict", "reason"), tuple(found))


def _records(records: Sequence[StandingRecord]) -> PageTable:
    names = sorted({name for one in records for name in one.record.fields})
    rows = [
        (
            one.record.site,
            one.record.period,
            *(_word(one.record.fields.get(name)) for name in names),
            str(len(one.record.findings)),
            str(one.record.page_count),
        )
        for one in records
    ]
    columns = ("site", "period", *names, "findings", "pages")
    return PageTable("Records", columns, tuple(rows), numbers=("findings", "pages"))


def _not_current(records: Sequence[StandingRecord]) -> PageTable:
    rows = [(one.record.site, one.record.period, one.record.source_uri) for one in records if not one.is_current]
    note = "The report has changed since its record was made; the new content is not taken yet, or was rejected."
    return PageTable("Records of an earlier content", ("site", "period", "report"), tuple(rows), note=note)


def _same_contents(records: Sequence[StandingRecord]) -> PageTable:
    rows = [
        (one.record.site, one.record.period, one.record.source_uri, ", ".join(one.same_content_as))
        for one in records
        if one.same_content_as
    ]
    note = "Each has its record; whether one report may stand for two sites or periods is for a person to say."
    return PageTable("Equal content under several addresses", ("site", "period", "report", "same as"), tuple(rows), note=note)


def _withdrawn(units: Iterable[UnitRow]) -> PageTable:
    rows = [
        (
            str(unit.spec.get("site", "")),
            str(unit.spec.get("period", "")),
            str(unit.spec.get("uri", "")),
            "" if unit.completed_at is None else f"{unit.completed_at:%Y-%m-%d %H:%M}",
            unit.key[:16],
        )
        for unit in units
    ]
    note = "Their records are none of this window any more; `tilewright unit` with the key says when they left."
    columns = ("site", "period", "report", "recorded", "unit")
    return PageTable("Withdrawn: listed no more", columns, tuple(sorted(rows)), note=note)


def _word(value: Any) -> str:
    return "" if value is None else str(value)[:_WORD_CHARS]
