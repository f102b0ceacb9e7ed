"""What a window's outputs are made from: the tiles that exist, and those that are absent with their reasons.

Belongs here: the values that catalogue, zone statistics and report share, taken from ledger rows. Nothing here opens a file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from assets.grid import Grid, Tile, TileBox
from resources.config_scenes import ProductConfig
from resources.units import UnitState
from resources.windows import BatchWindow

_STATISTICS = ("min", "max", "mean", "std")
_OVER = frozenset({UnitState.SUPERSEDED, UnitState.RETIRED})


class TileRow(Protocol):
    """What is asked of a ledger row of one unit of the tiles asset."""

    @property
    def key(self) -> str: ...
    @property
    def product(self) -> str: ...
    @property
    def window(self) -> str: ...
    @property
    def tile(self) -> str | None: ...
    @property
    def output_uri(self) -> str: ...
    @property
    def spec(self) -> Mapping[str, Any]: ...
    @property
    def state(self) -> UnitState: ...
    @property
    def error_kind(self) -> str | None: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def output_digest(self) -> str | None: ...
    @property
    def output_size(self) -> int | None: ...
    @property
    def metrics(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class BandStatistics:
    """Statistics of one band's valid pixels; None where no pixel is valid."""

    min: float | None
    max: float | None
    mean: float | None
    std: float | None


@dataclass(frozen=True, slots=True)
class CompleteTile:
    """One tile that exists. `output_uri` is relative to the store; `valid_share` lies in 0..1; `scenes` are source scene ids."""

    key: str
    product: str
    tile: Tile
    box: TileBox
    output_uri: str
    digest: str
    size_bytes: int
    valid_share: float | None = None
    bands: tuple[BandStatistics, ...] = ()
    scenes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AbsentTile:
    """One planned tile that does not exist now, and why. RUNNING counts as PENDING: whether it runs must not change an output."""

    key: str
    product: str
    tile: Tile
    box: TileBox
    state: UnitState
    kind: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WindowTiles:
    """The tiles of one batch window, each tuple sorted by product and tile."""

    window: BatchWindow
    complete: tuple[CompleteTile, ...] = ()
    absent: tuple[AbsentTile, ...] = ()

    def of_product(self, product: str) -> WindowTiles:
        """Only that product's tiles."""
        return WindowTiles(
            window=self.window,
            complete=tuple(tile for tile in self.complete if tile.product == product),
            absent=tuple(tile for tile in self.absent if tile.product == product),
        )

    def outputs(self) -> list[list[str]]:
        """Which tiles exist, for unit keys: what a tile holds follows from its key and digest."""
        return [[tile.product, tile.tile.name, tile.key, tile.digest] for tile in self.complete]

    def fingerprint(self) -> dict[str, object]:
        """What decides the bytes of an output that also names scenes and reasons, for its unit key.

        Scenes are listed apart: a scene that is renamed leaves its tiles, their keys and digests as they are.
        """
        return {
            "complete": self.outputs(),
            "scenes": [list(tile.scenes) for tile in self.complete],
            "absent": [
                [tile.product, tile.tile.name, tile.key, tile.state.value, tile.kind, tile.reason] for tile in self.absent
            ],
        }

    def absent_counts(self) -> list[dict[str, object]]:
        """Absent tiles counted by product, state and error kind."""
        counts: dict[tuple[str, str, str], int] = {}
        for tile in self.absent:
            group = (tile.product, tile.state.value, tile.kind)
            counts[group] = counts.get(group, 0) + 1
        return [
            {"product": product, "state": state, "kind": kind, "count": count}
            for (product, state, kind), count in sorted(counts.items())
        ]


def window_tiles(rows: Iterable[TileRow], *, window: BatchWindow, grid: Grid) -> WindowTiles:
    """Sort ledger rows of one window into tiles that exist and tiles that are absent.

    Superseded and retired units are neither. Raises `ValueError` for a row of another window or without a tile: a caller's error.
    """
    complete: list[CompleteTile] = []
    absent: list[AbsentTile] = []
    for row in rows:
        if row.window != window.key or row.tile is None:
            raise ValueError(f"unit {row.key}: expected a tile of window {window.key}, found tile {row.tile} of {row.window}")
        if row.state in _OVER:
            continue
        tile = Tile.parse(row.tile)
        box = grid.box(tile)
        if row.state is UnitState.COMPLETE:
            metrics = row.metrics or {}
            complete.append(
                CompleteTile(
                    key=row.key,
                    product=row.product,
                    tile=tile,
                    box=box,
                    output_uri=row.output_uri,
                    digest=row.output_digest or "",
                    size_bytes=row.output_size or 0,
                    valid_share=finite(metrics.get("valid_share")),
                    bands=tuple(
                        BandStatistics(*(finite(band.get(name)) for name in _STATISTICS)) for band in metrics.get("bands") or ()
                    ),
                    scenes=_scene_ids(metrics.get("source_scenes") or _used(metrics, row.spec or {})),
                )
            )
        else:
            absent.append(
                AbsentTile(
                    key=row.key,
                    product=row.product,
                    tile=tile,
                    box=box,
                    state=UnitState.PENDING if row.state is UnitState.RUNNING else UnitState(row.state),
                    kind=str(row.error_kind or ""),
                    reason=row.reason or "",
                )
            )
    return WindowTiles(
        window=window,
        complete=tuple(sorted(complete, key=lambda item: (item.product, item.tile))),
        absent=tuple(sorted(absent, key=lambda item: (item.product, item.tile))),
    )


def band_names(product: ProductConfig) -> tuple[str, ...]:
    """Names of a product's output bands: its source bands, or the formula of each output of its expression."""
    if product.expression:
        return tuple(part.strip() for part in product.expression.split(";") if part.strip())
    return tuple(product.bands)


def finite(value: object) -> float | None:
    """`value` as a float, or None when it is absent or not a finite number: JSON and keys hold no NaN."""
    if value is None or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _used(metrics: Mapping[str, Any], spec: Mapping[str, Any]) -> Sequence[object]:
    """The scenes of a unit's plan that gave it pixels; all of them where the metrics do not say."""
    planned: Sequence[object] = spec.get("scenes") or ()
    positions = metrics.get("scenes_used")
    return planned if positions is None else [planned[i] for i in positions if i < len(planned)]


def _scene_ids(scenes: Iterable[object]) -> tuple[str, ...]:
    """Scene ids, sorted, from a list of ids, of mappings with `scene_id`, or of lists that begin with the id."""
    found = set()
    for scene in scenes:
        if isinstance(scene, Mapping):
            found.add(str(scene.get("scene_id", scene.get("scene", ""))))
        elif isinstance(scene, str):
            found.add(scene)
        elif isinstance(scene, list | tuple) and scene:
            found.add(str(scene[0]))
    return tuple(sorted(found - {""}))
