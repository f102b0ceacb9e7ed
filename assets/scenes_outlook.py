"""What the main job would plan now: tiles from the scenes as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from assets.outlook import Outlook, WindowOutlook
from assets.planning import WindowPlan, explain_change
from assets.scenes.model import Scene
from assets.scenes_project import ScenesProject
from assets.scenes_shape import TILES
from assets.scenes_survey import not_used
from assets.stock import list_scenes
from resources.config_scenes import ProductConfig
from resources.ledger import UnitRow
from resources.units import PlannedUnit, UnitState

_COMPRESSED_SHARE = 0.5


def scenes_outlook(project: ScenesProject, windows: Sequence[str], *, window: str | None) -> Outlook:
    """The outlook on some windows; `window`: the one that was asked for by name, whose scenes alone are told as not used."""
    listing = list_scenes(project, now=project.ledger.clock())
    sizes = {product.name: _size(project, product) for product in project.config.products}
    return Outlook(
        windows=_windows(project, windows, listing.scenes),
        place=_place,
        explain=explain_change,
        size_of=lambda unit: sizes[unit.product],
        left_out=not_used(listing, window=window),
    )


def _windows(project: ScenesProject, windows: Sequence[str], scenes: Sequence[Scene]) -> Iterator[WindowOutlook]:
    rejected = project.ledger.rejected_inputs().keys()
    for key in windows:
        mine = tuple(scene for scene in scenes if scene.window == key)
        plan = WindowPlan(project.config, grid=project.grid, cover=project.cover, window=key, scenes=mine, rejected=rejected)
        yield WindowOutlook(key, len(mine), [unit for part in plan.partitions() for unit in part.units])


def _place(unit: PlannedUnit | UnitRow) -> tuple[str, str | None]:
    return unit.product, unit.tile


def _size(project: ScenesProject, product: ProductConfig) -> float:
    """Bytes that a tile of a product is likely to have: the mean of those on record, else half of its pixels' bytes."""
    rows = project.ledger.units(asset=TILES, product=product.name, state=UnitState.COMPLETE, limit=500)
    seen = [row.output_size for row in rows if row.output_size]
    outputs = len(product.bands) or len([part for part in (product.expression or "").split(";") if part.strip()])
    pixels = project.config.grid.tile_px**2 * outputs * np.dtype(product.dtype).itemsize
    return float(np.mean(seen)) if seen else pixels * _COMPRESSED_SHARE
