"""What a run would do now: the plan from the source and the configuration, held against the ledger. Changes no plan.

Listing the source pins new files and records unfit ones, as any listing does; nothing is planned, computed or removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from assets.planning import ASSET, WindowPlan, explain_change
from assets.project import Project
from assets.scenes.model import SceneListing
from assets.stock import list_scenes
from resources.ledger import UnitRow
from resources.units import RUNNABLE_STATES, PlannedUnit, UnitState

NO_SCENE = "NO_SCENE"
_OVER = (UnitState.SUPERSEDED, UnitState.RETIRED)
_COMPRESSED_SHARE = 0.5


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
    scenes: int = 0
    complete: int = 0
    to_compute: int = 0
    restored: int = 0
    superseded: int = 0
    quarantined: int = 0
    bytes_estimate: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A scene, or a file that is no scene (`NO_SCENE`), that no tile is made from, and why."""

    name: str
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """All windows, the units that would be computed, whether the disk has room, and what of the source is not used."""

    windows: tuple[WindowForecast, ...]
    redos: tuple[Redo, ...]
    bytes_estimate: float
    bytes_free: int | None
    bytes_kept_free: int
    left_out: tuple[LeftOut, ...] = ()

    @property
    def has_room(self) -> bool:
        """False when the estimate does not fit beside what `store.min_free_mb` keeps free."""
        return self.bytes_free is None or self.bytes_estimate + self.bytes_kept_free <= self.bytes_free


def forecast(project: Project, *, window: str | None = None, bytes_free: int | None) -> Forecast:
    """What would be done for one window or for all. Raises `EnvironmentUnfit` when the source is not there."""
    now = project.ledger.clock()
    listing = list_scenes(project, now=now)
    scenes = listing.scenes
    rejected = project.ledger.rejected_inputs().keys()
    sizes = _sizes(project)
    found: list[WindowForecast] = []
    redos: list[Redo] = []
    for key in [item.key for item in project.calendar.windows(now)] if window is None else [window]:
        mine = tuple(scene for scene in scenes if scene.window == key)
        plan = WindowPlan(project.config, grid=project.grid, cover=project.cover, window=key, scenes=mine, rejected=rejected)
        here = WindowForecast(key, scenes=len(mine))
        redos += _compare(here, [unit for part in plan.partitions() for unit in part.units], _known(project, key), sizes)
        found.append(here)
    total = sum(item.bytes_estimate for item in found)
    kept = project.config.store.min_free_mb * 1_000_000
    return Forecast(tuple(found), tuple(redos), total, bytes_free, kept, left_out(listing, window=window))


def left_out(listing: SceneListing, *, window: str | None = None) -> tuple[LeftOut, ...]:
    """Scenes of the window (or of none) that are not used, then files that are no scenes; each with its reason."""
    scenes = [scene for scene in listing.scenes if not scene.is_accepted and (window is None or scene.window in (window, None))]
    return (
        *(LeftOut(scene.scene_id, scene.verdict.value, scene.reason) for scene in scenes),
        *(LeftOut(other.uri, NO_SCENE, other.reason) for other in listing.strangers),
    )


def _known(project: Project, window: str) -> list[UnitRow]:
    return list(project.ledger.units(asset=ASSET, window=window))


def _compare(
    here: WindowForecast, planned: Iterable[PlannedUnit], known: Iterable[UnitRow], sizes: Mapping[str, float]
) -> Iterator[Redo]:
    by_key = {row.key: row for row in known}
    living = {(row.product, row.tile): row for row in by_key.values() if row.state not in _OVER}
    places = set()
    for unit in planned:
        places.add((unit.product, unit.tile))
        row, before = by_key.get(unit.key), living.get((unit.product, unit.tile))
        if before is not None and before.key != unit.key:
            here.superseded += 1
        if row is not None and row.state is UnitState.QUARANTINED:
            here.quarantined += 1
        elif row is not None and row.state is UnitState.COMPLETE:
            here.complete += 1
        elif row is not None and row.state in _OVER and row.output_digest is not None:
            here.restored += 1
        elif row is None or row.state in RUNNABLE_STATES or row.state in _OVER:
            why = _why(unit, row, before)
            here.to_compute += 1
            here.reasons[why] += 1
            here.bytes_estimate += sizes[unit.product]
            yield Redo(unit.key, unit.product, unit.window, unit.tile or "", why, before.key if before is not None else None)
    gone = sum(1 for place in living if place not in places)
    if gone:
        here.superseded += gone
        here.reasons["no scene touches the tile any more"] += gone


def _why(unit: PlannedUnit, row: UnitRow | None, before: UnitRow | None) -> str:
    if before is not None and before.key != unit.key:
        return explain_change(before.spec, unit.spec)
    if row is None or row.state in _OVER:
        return "never computed"
    if row.state is UnitState.FAILED:
        return f"failed before: {row.error_kind}"
    return f"planned, not yet computed{f': {row.error_kind}' if row.error_kind else ''}"


def _sizes(project: Project) -> dict[str, float]:
    """Bytes that a tile of each product is likely to have: the mean of those on record, else half of its pixels' bytes."""
    import numpy as np

    sizes = {}
    for product in project.config.products:
        rows = project.ledger.units(asset=ASSET, product=product.name, state=UnitState.COMPLETE, limit=500)
        seen = [row.output_size for row in rows if row.output_size]
        outputs = len(product.bands) or len([part for part in (product.expression or "").split(";") if part.strip()])
        pixels = project.config.grid.tile_px**2 * outputs * np.dtype(product.dtype).itemsize
        sizes[product.name] = float(np.mean(seen)) if seen else pixels * _COMPRESSED_SHARE
    return sizes
