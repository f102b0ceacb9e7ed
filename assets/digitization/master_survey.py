"""What the source of masters holds and what would be planned from it, told as every pipeline tells it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assets.digitization.capturing import list_masters
from assets.digitization.copies import window_units
from assets.digitization.masters import NOT_TAKEN_IN, TAKEN_IN, Master, MasterListing, MasterVerdict
from assets.digitization.shape import COPIES
from assets.digitization.stock import fingerprint
from assets.outlook import Outlook, WindowOutlook, changes
from assets.survey import LeftOut, Survey, WindowSurvey
from resources.ledger import UnitRow
from resources.units import PlannedUnit, UnitState

if TYPE_CHECKING:
    from assets.digitization.project import DigitizationProject

NO_MASTER = "NO_MASTER"
_LEFT_OUT = (
    MasterVerdict.WAITING,
    MasterVerdict.IN_FUTURE,
    MasterVerdict.OUTSIDE_WINDOWS,
    MasterVerdict.CHANGED,
    MasterVerdict.MISSING,
)
_SETTLED = TAKEN_IN | NOT_TAKEN_IN


def survey_of(listing: MasterListing) -> Survey:
    """The survey of a listing; left out are batches that wait, masters changed since capture, and files that are no masters."""
    by_window: dict[str, list[Master]] = {}
    for master in listing.masters:
        if master.window is not None:
            by_window.setdefault(master.window, []).append(master)
    return Survey(
        windows={window: _window(masters) for window, masters in by_window.items()},
        left_out=left_out(listing),
        inputs=len(listing.masters),
        accepted=len(listing.with_verdict(*TAKEN_IN)),
    )


def left_out(listing: MasterListing, *verdicts: MasterVerdict) -> tuple[LeftOut, ...]:
    """What no copy is made of, and what changed or went after it was captured; with masters that stand in `verdicts` too."""
    return (
        *(LeftOut(master.uri, master.verdict.value, master.reason) for master in listing.with_verdict(*_LEFT_OUT, *verdicts)),
        *(LeftOut(other.uri, NO_MASTER, other.reason) for other in listing.strangers),
    )


def _window(masters: Sequence[Master]) -> WindowSurvey:
    settled = [master for master in masters if master.verdict in _SETTLED]
    return WindowSurvey(
        fingerprint_now=fingerprint(masters),
        fingerprint_settled=fingerprint(settled),
        has_inputs=bool(settled),
        is_being_written=any(master.verdict is MasterVerdict.UNSETTLED for master in masters),
    )


def copies_outlook(project: DigitizationProject, windows: Sequence[str], *, window: str | None) -> Outlook:  # noqa: ARG001
    """The copies that would be planned now."""
    listing = list_masters(project, now=project.ledger.clock())
    rows = project.ledger.units(asset=COPIES, state=UnitState.COMPLETE, limit=500)
    seen = [row.output_size for row in rows if row.output_size]
    mean = sum(seen) / len(seen) if seen else None
    sizes = {master.uri: float(master.size_bytes) for master in listing.masters}
    return Outlook(
        windows=[WindowOutlook(key, len(listing.of_window(key)), window_units(project, key, listing.masters)) for key in windows],
        place=_place,
        explain=_explain,
        size_of=lambda unit: mean or sizes.get(str(unit.spec.get("master")), 0.0),
        left_out=left_out(listing, MasterVerdict.UNSETTLED),
    )


def _place(unit: PlannedUnit | UnitRow) -> Hashable:
    return str(unit.spec.get("master", unit.key))


def _explain(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    before, after = ({name: spec.get(name) for name in ("version", "settings", "inputs")} for spec in (old, new))
    return "; ".join(changes(before, after)) or "its key's ingredients changed"
