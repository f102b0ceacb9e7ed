"""What the source of reports holds and what would be planned from it, told as every pipeline tells it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from assets.inspections.listing import ListedReport, ReportListing
from assets.inspections.planning import Known, Token, is_changed, planned_unit
from assets.inspections.shape import RECORDS
from assets.inspections.stock import ask_tokens, fingerprint, on_record
from assets.outlook import Outlook, WindowOutlook, changes
from assets.survey import LeftOut, Survey, WindowSurvey
from resources.ledger import UnitRow
from resources.units import PlannedUnit

if TYPE_CHECKING:
    from assets.inspections.project import InspectionsProject

KEPT = "CHANGED_AND_KEPT"
_RECORD_BYTES = 1500.0


def survey_of(project: InspectionsProject, *, now: datetime) -> Survey:
    """The survey of the source as it is now. Addresses that are not files are asked now and then: see `token_memory`."""
    listing = project.list_reports(now=now)
    known = on_record(project, listing.reports)
    markers = project.ledger.markers(project.shape.plan_marker)
    planned_at = {window: marker.at for window, marker in markers.items()}
    tokens = project.tokens.tokens(listing.reports, planned_at=planned_at, now=now)
    by_window: dict[str, list[ListedReport]] = {}
    for report in listing.reports:
        by_window.setdefault(report.window, []).append(report)
    silent = set(by_window) | set(markers) if listing.silent is None else listing.silent
    windows = {window: _window(reports, tokens, known) for window, reports in by_window.items()}
    for window in silent:
        # as planned, whatever that was: nothing is known that could wake it
        print_now = markers[window].manifest_fingerprint if window in markers else ""
        windows[window] = WindowSurvey(print_now, print_now, has_inputs=False, is_being_written=True)
    return Survey(
        windows=windows,
        left_out=left_out(project, listing, tokens, known),
        inputs=len(listing.reports),
        accepted=len(listing.reports),
    )


def _window(reports: Iterable[ListedReport], tokens: Mapping[str, Token], known: Mapping[str, Known]) -> WindowSurvey:
    found = fingerprint(reports, tokens, known)
    return WindowSurvey(found, found, has_inputs=True)


def left_out(
    project: InspectionsProject, listing: ReportListing, tokens: Mapping[str, Token], known: Mapping[str, Known]
) -> tuple[LeftOut, ...]:
    """What no record is made of; with same_uri = "keep" also what changed after its record was made."""
    if project.config.source.same_uri != "keep":
        return listing.left_out
    kept = [
        LeftOut(
            report.shown, KEPT, f"{report.place}: it holds another content than its record; same_uri = 'keep' leaves the record"
        )
        for report in listing.reports
        if report.key in tokens and is_changed(tokens[report.key], known[report.key])
    ]
    return (*listing.left_out, *kept)


def records_outlook(project: InspectionsProject, windows: Sequence[str], *, window: str | None) -> Outlook:  # noqa: ARG001
    """The records that would be planned now."""
    listing = project.list_reports(now=project.ledger.clock())
    rules, keeps = project.rules.digest, project.config.source.same_uri == "keep"

    def planned(key: str, reports: Sequence[ListedReport]) -> list[PlannedUnit]:
        if listing.is_silent(key):
            # a window of which the source says nothing just now keeps its plan
            return [row.as_planned() for row in project.ledger.planned(RECORDS, [key])]
        known, tokens = on_record(project, reports), dict(ask_tokens(project, reports))
        return [planned_unit(report, tokens[report.key], known[report.key], rules=rules, keeps=keeps) for report in reports]

    return Outlook(
        windows=[WindowOutlook(key, len(found := listing.of_window(key)), planned(key, found)) for key in windows],
        place=_place,
        explain=_explain,
        size_of=lambda _: _RECORD_BYTES,
        left_out=listing.left_out,
    )


def _place(unit: PlannedUnit | UnitRow) -> Hashable:
    return unit.key


def _explain(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    reasons = changes({"period": old.get("period")}, {"period": new.get("period")})
    if old.get("token") != new.get("token"):
        reasons.append("its content may have changed")
    if not reasons and old.get("rules") != new.get("rules"):
        reasons.append("the rules or the registry changed")
    return "; ".join(reasons) or "its content, or what is made of it, changed"
