"""What a run would do now: the plan from the source and the configuration, held against the ledger. Changes no plan.

Listing the source pins new files and records unfit ones, as any listing does; nothing is planned, computed or removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from assets.outlook import Outlook
from assets.project import Project
from assets.survey import LeftOut
from resources.ledger import UnitRow
from resources.units import RUNNABLE_STATES, PlannedUnit, UnitState

_OVER = (UnitState.SUPERSEDED, UnitState.RETIRED)
_GONE = "its source is not there any more"


@dataclass(frozen=True, slots=True)
class Redo:
    """One unit that would be computed, and why. `before` is the key that it takes the place of."""

    key: str
    product: str
    window: str
    tile: str
    why: str
    before: str | None = None


@dataclass(slots=True)
class WindowForecast:
    """One window: units by what would become of them, and bytes that would be written (an estimate)."""

    window: str
    inputs: int = 0
    complete: int = 0
    to_compute: int = 0
    restored: int = 0
    superseded: int = 0
    quarantined: int = 0
    bytes_estimate: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Forecast:
    """All windows, the units that would be computed, whether the disk has room, and what of the source is not used.

    `open_window` is the one that is not over, when it has inputs and nobody has asked for it: a run leaves it alone.
    """

    windows: tuple[WindowForecast, ...]
    redos: tuple[Redo, ...]
    bytes_estimate: float
    bytes_free: int | None
    bytes_kept_free: int
    left_out: tuple[LeftOut, ...] = ()
    open_window: WindowForecast | None = None
    open_until: datetime | None = None

    @property
    def has_room(self) -> bool:
        """False when the estimate does not fit beside what `store.min_free_mb` keeps free."""
        return self.bytes_free is None or self.bytes_estimate + self.bytes_kept_free <= self.bytes_free


def forecast(project: Project, *, window: str | None = None, bytes_free: int | None) -> Forecast:
    """What would be done for one window or for all. Raises `EnvironmentUnfit` when the source is not there."""
    now = project.ledger.clock()
    left_alone = project.calendar.open_window(now) if window is None else None
    windows = [item.key for item in project.calendar.begun(now)] if window is None else [window]
    outlook = project.outlook(windows, window=window)
    found: list[WindowForecast] = []
    redos: list[Redo] = []
    unasked: WindowForecast | None = None
    for item in outlook.windows:
        here = WindowForecast(item.window, inputs=item.inputs)
        known = list(project.ledger.units(asset=project.shape.units, window=item.window))
        would_redo = list(_compare(here, item.units, known, outlook))
        if left_alone is not None and item.window == left_alone.key and not known:
            unasked = here if here.inputs else None
            continue
        redos += would_redo
        found.append(here)
    total = sum(item.bytes_estimate for item in found)
    kept = project.config.store.min_free_mb * 1_000_000
    until = None if left_alone is None or unasked is None else left_alone.end
    return Forecast(tuple(found), tuple(redos), total, bytes_free, kept, outlook.left_out, unasked, until)


def _compare(here: WindowForecast, planned: Iterable[PlannedUnit], known: Iterable[UnitRow], outlook: Outlook) -> Iterator[Redo]:
    by_key = {row.key: row for row in known}
    living = {outlook.place(row): row for row in by_key.values() if row.state not in _OVER}
    places = set()
    for unit in planned:
        place = outlook.place(unit)
        places.add(place)
        row, before = by_key.get(unit.key), living.get(place)
        is_revised = row is not None and row.revision != unit.revision
        if before is not None and before.key != unit.key:
            here.superseded += 1
        if row is not None and row.state is UnitState.QUARANTINED and not is_revised:
            here.quarantined += 1
        elif row is not None and row.state is UnitState.COMPLETE and not is_revised:
            here.complete += 1
        elif row is not None and row.state in _OVER and row.output_digest is not None and not is_revised:
            here.restored += 1
        elif row is None or row.state in RUNNABLE_STATES or row.state in _OVER or is_revised:
            why = _why(unit, row, before, outlook.explain)
            here.to_compute += 1
            here.reasons[why] += 1
            here.bytes_estimate += outlook.size_of(unit)
            yield Redo(unit.key, unit.product, unit.window, unit.tile or "", why, before.key if before is not None else None)
    gone = sum(1 for place in living if place not in places)
    if gone:
        here.superseded += gone
        here.reasons[_GONE] += gone


def _why(
    unit: PlannedUnit,
    row: UnitRow | None,
    before: UnitRow | None,
    explain: Callable[[Mapping[str, Any], Mapping[str, Any]], str],
) -> str:
    if before is not None and before.key != unit.key:
        return explain(before.spec, unit.spec)
    if row is None or row.state in _OVER:
        return "never computed"
    if row.state is UnitState.FAILED:
        return f"failed before: {row.error_kind}"
    if row.revision != unit.revision and row.output_digest is not None:
        return explain(row.spec, unit.spec)
    return f"planned, not yet computed{f': {row.error_kind}' if row.error_kind else ''}"
