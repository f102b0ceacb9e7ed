"""The plan of a window's reports: one unit for each, named by site and address, with the revision that its content has.

A unit key leaves content out, so that a corrected report takes the place of the one before. What was done is recorded for (key,
revision). The true revision covers the content's digest, which costs a download; so the plan goes by version tokens, which cost
a question. Under a token that was seen before, the digest is known and the true revision is planned: a unit that is COMPLETE with
it is skipped. Under a new one a provisional revision is planned, the unit runs, and says its true one when it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from assets.inspections.listing import ListedReport
from assets.inspections.record import EXTRACTION_VERSION
from assets.inspections.shape import RECORDS
from resources.keys import digest_of
from resources.ledger import UnitRow
from resources.ledger.facts import Observation
from resources.row_tables import row_uri
from resources.units import PlannedUnit, UnitState

TABLE = "inspection_records"


class Answer(StrEnum):
    """What a source answered that is no version token."""

    NONE_GIVEN = "none given"
    NOT_ASKED = "not asked"


Token = str | Answer
"""The version token of an address; or that its source gives none, or was not asked or did not answer."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is on record of a report: its unit, and its content as it was last seen."""

    unit: UnitRow | None
    observed: Observation | None

    @property
    def is_complete(self) -> bool:
        """Whether its record is there."""
        return self.unit is not None and self.unit.state is UnitState.COMPLETE

    @property
    def token(self) -> str | None:
        """The version token under which it was last taken, or is planned to be."""
        if self.is_complete and self.observed is not None:
            return self.observed.token
        return None if self.unit is None else self.unit.spec.get("token")


NOTHING_KNOWN = Known(None, None)


def true_revision(report: ListedReport, *, digest: str, rules: str) -> str:
    """The revision of a report's record: all that decides it besides its key. `rules`: the digest of the rules of extraction."""
    return digest_of({"content": digest, "period": report.period, "version": EXTRACTION_VERSION, "rules": rules})


def planned_token(token: Token, known: Known) -> str | None:
    """The token to plan by: what the source says, else what is on record, so that a source that is down changes nothing."""
    if token is Answer.NOT_ASKED:
        return known.token
    return None if token is Answer.NONE_GIVEN else str(token)


def identity(report: ListedReport, token: Token, known: Known) -> Mapping[str, Any]:
    """What tells one state of a listed report from another, for its window's fingerprint."""
    return {
        "key": report.key,
        "site": report.site,
        "period": report.period,
        "uri": report.shown,
        "token": planned_token(token, known),
    }


def is_changed(token: Token, known: Known) -> bool:
    """Whether the source holds another content than the one that a record was made of."""
    return (
        known.is_complete
        and known.observed is not None
        and not isinstance(token, Answer)
        and known.observed.token not in ("", token)
    )


def planned_unit(report: ListedReport, token: Token, known: Known, *, rules: str, keeps: bool) -> PlannedUnit:
    """The unit of a report. `keeps`: a record stays as it is when the content under its address changes."""
    by = planned_token(token, known)
    return PlannedUnit(
        key=report.key,
        product=RECORDS,
        window=report.window,
        output_uri=row_uri(TABLE, report.site, report.period),
        revision=_revision(report, token, known, by=by, rules=rules, keeps=keeps),
        source=report.host,
        spec={"site": report.site, "uri": report.shown, "period": report.period, "token": by, "rules": _ruled(report, rules)},
    )


def _revision(report: ListedReport, token: Token, known: Known, *, by: str | None, rules: str, keeps: bool) -> str:
    unit, observed = known.unit, known.observed
    same_rules = unit is not None and unit.spec.get("rules") == _ruled(report, rules)
    if unit is not None and same_rules and (token is Answer.NOT_ASKED or (known.is_complete and token is Answer.NONE_GIVEN)):
        return unit.revision
    if unit is not None and same_rules and not known.is_complete and unit.spec.get("token") == by:
        # judged under this token: what another site's record of the address tells of its content brings nothing back
        return unit.revision
    if unit is not None and keeps and is_changed(token, known):
        return unit.revision
    if observed is not None and (by == observed.token or (known.is_complete and isinstance(token, Answer))):
        return true_revision(report, digest=observed.digest, rules=rules)
    return f"token:{digest_of({'token': by, 'rules': _ruled(report, rules)})}"


def _ruled(report: ListedReport, rules: str) -> str:
    # a corrected period is judged anew, like corrected rules
    return digest_of([rules, EXTRACTION_VERSION, report.period])


def known_of(
    reports: Iterable[ListedReport], *, units: Mapping[str, UnitRow], observations: Mapping[str, Observation]
) -> dict[str, Known]:
    """What is on record of each report, by unit key."""
    return {report.key: Known(units.get(report.key), observations.get(report.observed_as)) for report in reports}
