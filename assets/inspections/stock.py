"""Taking stock: what reports a window has now, their list, and the plan that follows from them.

Called at the start of every run of a window, whoever launched it. A second call with nothing changed asks each source for its
version tokens, takes no content and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assets.fetch.fetching import version_tokens
from assets.inspections.listing import ListedReport, ReportListing
from assets.inspections.planning import Answer, Known, Token, identity, known_of, planned_unit
from assets.inspections.shape import MANIFEST, RECORDS
from assets.inspections.table import LIST_SCHEMA, LIST_VERSION, list_rows, list_uri
from assets.keyed_table import keyed_table_unit, write_keyed_table
from assets.survey import source_fingerprint
from assets.window_batch import WindowBatch
from assets.window_plan import bring_up_to_date
from resources.errors import TransientError
from resources.keys import digest_of
from resources.ledger.leavers import GONE
from resources.units import Metrics, PartitionPlan, UnitOfWork

if TYPE_CHECKING:
    from pathlib import Path

    from assets.inspections.project import InspectionsProject


@dataclass(frozen=True, slots=True)
class WindowStock:
    """A window's reports by unit key, the token of each and what is on record of it; whether its list was written just now."""

    window: str
    reports: Mapping[str, ListedReport]
    tokens: Mapping[str, Token]
    known: Mapping[str, Known]
    is_manifest_made: bool


def take_stock(project: InspectionsProject, windows: Iterable[str], *, run_id: str) -> dict[str, WindowStock]:
    """List the source once, ask for version tokens, then bring list and plan of each window up to date.

    After a crash: the list is promoted whole or not at all, and the plan is written again.
    """
    listing = project.list_reports(now=project.ledger.clock())
    return {window: _refresh(project, window, listing, run_id=run_id) for window in dict.fromkeys(windows)}


def ask_tokens(project: InspectionsProject, reports: Sequence[ListedReport]) -> Iterator[tuple[str, Token]]:
    """The version token of each report, by unit key. A source that fails counts as not asked: the report's own try tells why."""
    answers = version_tokens((report.uri for report in reports), limits=project.limits, slots=project.slots)
    for report, (_, answer) in zip(reports, answers, strict=True):
        if answer is None:
            yield report.key, Answer.NONE_GIVEN
        else:
            yield report.key, answer if isinstance(answer, str) else Answer.NOT_ASKED


def on_record(project: InspectionsProject, reports: Sequence[ListedReport]) -> dict[str, Known]:
    """What the ledger has of each report, by unit key."""
    units = {row.key: row for row in project.ledger.units(asset=RECORDS, keys=[report.key for report in reports])}
    return known_of(
        reports, units=units, observations=project.ledger.observations(dict.fromkeys(report.observed_as for report in reports))
    )


def fingerprint(reports: Iterable[ListedReport], tokens: Mapping[str, Token], known: Mapping[str, Known]) -> str:
    """Tells one state of a window's reports from another."""
    return source_fingerprint(identity(report, tokens.get(report.key, Answer.NOT_ASKED), known[report.key]) for report in reports)


def _refresh(project: InspectionsProject, window: str, listing: ReportListing, *, run_id: str) -> WindowStock:
    if listing.is_silent(window):
        return _as_it_was(project, window, listing)
    reports = listing.of_window(window)
    known = on_record(project, reports)
    tokens = dict(ask_tokens(project, reports))
    keeps, rules = project.config.source.same_uri == "keep", project.rules.digest

    def write_plan() -> None:
        units = (planned_unit(report, tokens[report.key], known[report.key], rules=rules, keeps=keeps) for report in reports)
        project.ledger.write_plan(RECORDS, [PartitionPlan(RECORDS, window, window, tuple(units))])

    is_made = bring_up_to_date(
        project,
        window,
        source=fingerprint(reports, tokens, known),
        settings=digest_of({"rules": rules, "same_uri": project.config.source.same_uri}),
        manifest=lambda: list_work(window, reports),
        write_plan=write_plan,
        run_id=run_id,
    )
    return WindowStock(window, {report.key: report for report in reports}, tokens, known, is_made)


def _as_it_was(project: InspectionsProject, window: str, listing: ReportListing) -> WindowStock:
    """A window of which the source says nothing keeps its plan; one that was never planned has an empty one for now."""
    rows = list(project.ledger.planned(RECORDS, [window]))
    if not rows and not list(project.ledger.partition_rows(RECORDS, names=[window])):
        project.ledger.write_plan(RECORDS, [PartitionPlan(RECORDS, window, window, ())])
    keys = {row.key for row in rows if row.state not in GONE}
    reports = {report.key: report for report in listing.reports if report.key in keys}
    known = on_record(project, list(reports.values()))
    return WindowStock(window, reports, {}, known, is_manifest_made=False)


def list_work(window: str, reports: Sequence[ListedReport]) -> UnitOfWork:
    """The unit of work that writes one window's list of reports."""
    return keyed_table_unit(
        MANIFEST,
        list_uri(window),
        window=window,
        version=LIST_VERSION,
        inputs=list_rows(reports),
        rows=tuple(reports),
        write=write_list,
    )


def write_list(reports: Sequence[ListedReport], key: str, path: Path) -> Metrics:
    """Write the list of a window's reports to `path`, a staging name; returns their number."""
    facts = {"version": LIST_VERSION}
    return {"reports": write_keyed_table(list_rows(reports), LIST_SCHEMA, path, unit_key=key, facts=facts)}


def list_batch(project: InspectionsProject, windows: Iterable[str], listing: ReportListing) -> WindowBatch:
    """The lists of some windows. Raises `TransientError` for one of which the source says nothing just now: its list stays."""
    works = {}
    for window in windows:
        if listing.is_silent(window):
            raise TransientError(f"a table of batch window {window} is unreadable or being written; its list stays as it is")
        works[window] = [list_work(window, listing.of_window(window))]
    return WindowBatch(MANIFEST, works, ledger=project.ledger)
