"""From scenes, grid and products to the plan: which units each partition should have now, and the work of each.

Pure functions of the configuration, the scenes and the rejected inputs; no ledger, no clock, no file is read. What can change a
tile's pixels is in its key, and nothing else is: a band that a product does not ask for, the metatile size and the order of a
listing are not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import antimeridian
import numpy as np
import pyproj
import shapely
from shapely.geometry.base import BaseGeometry

from assets.grid import Grid, Tile
from assets.outlook import changes
from assets.products.cog import read_tile_metrics, validate_tile
from assets.products.model import (
    OPERATION,
    RENDER_VERSION,
    SceneInput,
    TileRequest,
    bands_required,
    order_scenes,
)
from assets.products.render import render_tile
from assets.scenes.model import Scene, SceneVerdict
from assets.scenes_shape import TILES
from resources.config_scenes import ProductConfig, ScenesConfig
from resources.keys import SHORT_KEY_LENGTH, unit_key
from resources.units import PartitionPlan, PlannedUnit, UnitOfWork

_EDGE_POINTS = 9
_TOUCH_SHARE_MIN = 1e-7


class TileCover:
    """Which tiles of the grid a footprint touches, in WGS 84. Built once for a grid."""

    def __init__(self, grid: Grid) -> None:
        self.tiles = grid.tiles
        self._outlines = _outlines(grid)
        self._areas = shapely.area(self._outlines)
        self._tree = shapely.STRtree(self._outlines)

    def touched(self, footprint: BaseGeometry) -> list[Tile]:
        """Tiles that share an area with `footprint`, WGS 84 `(longitude, latitude)`; sharing an edge is not enough."""
        found = np.sort(self._tree.query(footprint, predicate="intersects"))
        shared = shapely.area(shapely.intersection(self._outlines[found], footprint))
        return [self.tiles[i] for i in found[shared > _TOUCH_SHARE_MIN * self._areas[found]]]


def _outlines(grid: Grid) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Outlines of all tiles in WGS 84 with points along their edges, split where they cross the antimeridian."""
    corners = np.array([grid.box(tile).bounds for tile in grid.tiles])
    left, bottom, right, top = (corners[:, i, None] for i in range(4))
    along = np.linspace(0.0, 1.0, _EDGE_POINTS)[None, :-1]
    x = np.hstack([left + (right - left) * along, right + 0 * along, right - (right - left) * along, left + 0 * along])
    y = np.hstack([bottom + 0 * along, bottom + (top - bottom) * along, top + 0 * along, top - (top - bottom) * along])
    to_wgs84 = pyproj.Transformer.from_crs(grid.crs, "OGC:CRS84", always_xy=True)
    longitude, latitude = to_wgs84.transform(x, y)
    rings = np.stack([longitude, latitude], axis=-1)
    outlines = shapely.polygons(np.concatenate([rings, rings[:, :1]], axis=1))
    crossing = np.flatnonzero(np.abs(np.diff(longitude, axis=1)).max(axis=1) > 180.0)
    for i in crossing:
        outlines[i] = antimeridian.fix_polygon(outlines[i])
    invalid = ~shapely.is_valid(outlines)
    outlines[invalid] = shapely.make_valid(outlines[invalid])
    found: np.ndarray[Any, np.dtype[np.object_]] = outlines
    return found


@dataclass(frozen=True, slots=True)
class _TileScenes:
    """What one product has for one tile: scenes in compositing order, and those it must do without."""

    used: tuple[SceneInput, ...]
    missing: tuple[str, ...]


class WindowPlan:
    """The plan of one batch window: units of every partition and the request behind each."""

    def __init__(
        self,
        config: ScenesConfig,
        *,
        grid: Grid,
        cover: TileCover,
        window: str,
        scenes: Sequence[Scene],
        rejected: Collection[str],
    ) -> None:
        self._config = config
        self._grid = grid
        self._cover = cover
        self.window = window
        self._rejected = frozenset(rejected)
        self._scenes = [
            scene for scene in scenes if scene.window == window and scene.footprint is not None and scene.verdict in _PLACED
        ]

    def partitions(self, names: Collection[str] | None = None) -> Iterator[PartitionPlan]:
        """The plan of each partition of the window, or of those whose tile part is in `names`."""
        for name, tiles in self._grid.partitions.items():
            if names is not None and name not in names:
                continue
            units = tuple(
                planned
                for tile in tiles
                if tile in self._touching
                for product in self._config.products
                if (planned := self.planned(product, tile)) is not None
            )
            yield PartitionPlan(asset=TILES, partition=f"{self.window}|{name}", window=self.window, units=units, tile=name)

    def held(self, plan: PartitionPlan) -> dict[str, list[str]]:
        """Units of a partition that wait for a rejected scene (`on_rejected_scene = "hold"`): input digest -> unit keys."""
        found: dict[str, list[str]] = {}
        for unit in plan.units:
            for digest in sorted(self._rejected.intersection(unit.inputs))[:1]:
                found.setdefault(digest, []).append(unit.key)
        return found

    def planned(self, product: ProductConfig, tile: Tile) -> PlannedUnit | None:
        """The unit of a product and tile; None when no usable scene touches the tile."""
        found = self._tile_scenes(product, tile)
        if not found.used:
            return None
        ingredients = self._ingredients(product, tile, found)
        key = unit_key(**ingredients)
        return PlannedUnit(
            key=key,
            product=product.name,
            window=self.window,
            tile=tile.name,
            output_uri=f"{TILES}/{product.name}/{self.window}/{tile.name}.{key[:SHORT_KEY_LENGTH]}.tif",
            # a scene that cannot be decoded is rejected by its own digest, one found unfit by a file's
            inputs=tuple(sorted({digest for scene in found.used for digest in (scene.digest, *_band_digests(scene))})),
            spec={**ingredients, "scenes": [scene.scene_id for scene in found.used]},
        )

    def work(self, product: ProductConfig, tile: Tile) -> UnitOfWork | None:
        """The unit of a product and tile with the functions that make, check and read it."""
        planned = self.planned(product, tile)
        if planned is None:
            return None
        found = self._tile_scenes(product, tile)
        request = TileRequest(
            product=product,
            box=self._grid.box(tile),
            tile=tile,
            window=self.window,
            unit_key=planned.key,
            scenes=found.used,
            source_dir=str(self._config.source_dir),
            missing_scenes=found.missing,
            drivers=self._config.source.drivers,
            gdal_cache_mb=self._config.executor.gdal_cache_mb,
        )
        return UnitOfWork(
            unit=planned,
            work=partial(render_tile, request),
            validate=partial(validate_tile, request),
            recover=read_tile_metrics,
        )

    @cached_property
    def _touching(self) -> Mapping[Tile, tuple[Scene, ...]]:
        touching: dict[Tile, list[Scene]] = {}
        for scene in self._scenes:
            for tile in self._cover.touched(scene.footprint):
                touching.setdefault(tile, []).append(scene)
        return {tile: tuple(scenes) for tile, scenes in touching.items()}

    def _tile_scenes(self, product: ProductConfig, tile: Tile) -> _TileScenes:
        wanted = bands_required(product)
        used, missing = [], []
        for scene in self._touching.get(tile, ()):
            if not all(name in scene.bands for name in wanted):
                continue
            bands = {name: scene.bands[name] for name in wanted}
            digests = {scene.digest, *(band.digest for band in bands.values())}
            is_rejected = scene.verdict is SceneVerdict.REJECTED or not self._rejected.isdisjoint(digests)
            if is_rejected and product.on_rejected_scene == "compose_without":
                missing.append(scene)
                continue
            assert scene.acquired is not None
            used.append(SceneInput(scene_id=scene.scene_id, acquired=scene.acquired, digest=scene.digest, bands=bands))
        return _TileScenes(tuple(order_scenes(product, used)), tuple(sorted(scene.digest for scene in missing)))

    def _ingredients(self, product: ProductConfig, tile: Tile, found: _TileScenes) -> dict[str, Any]:
        return {
            "operation": OPERATION,
            "version": RENDER_VERSION,
            "settings": {"product": product.model_dump(mode="json"), "grid": self._grid.settings()},
            "destination": {"product": product.name, "window": self.window, "tile": tile.name},
            "inputs": {
                "scenes": [
                    {name: {"digest": band.digest, "index": band.index} for name, band in sorted(scene.bands.items())}
                    for scene in found.used
                ],
                "lacks": list(found.missing),
            },
        }


_PLACED = frozenset({SceneVerdict.ACCEPTED, SceneVerdict.REJECTED})


def _band_digests(scene: SceneInput) -> set[str]:
    return {band.digest for band in scene.bands.values()}


def explain_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Why a unit's key changed, in words a person can act on, from the ingredients of the old key and the new."""
    reasons = changes({"rendering version": old.get("version")}, {"rendering version": new.get("version")})
    reasons += changes(_settings(old), _settings(new))
    had, has = _scene_digests(old), _scene_digests(new)
    reasons += [f"scene {name} is gone" for name in sorted(had.keys() - has.keys())]
    reasons += [f"scene {name} is new" for name in sorted(has.keys() - had.keys())]
    reasons += [f"scene {name} was replaced" for name in sorted(had.keys() & has.keys()) if had[name] != has[name]]
    if not reasons and list(had) != list(has):
        reasons.append("the order of its scenes changed")
    if old.get("inputs", {}).get("lacks") != new.get("inputs", {}).get("lacks"):
        reasons.append("the scenes it lacks changed")
    return "; ".join(reasons) or "its key's ingredients changed"


def _settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    settings = spec.get("settings", {})
    return {**{f"grid.{k}": v for k, v in settings.get("grid", {}).items()}, **settings.get("product", {})}


def _scene_digests(spec: Mapping[str, Any]) -> dict[str, Any]:
    return dict(zip(spec.get("scenes", ()), spec.get("inputs", {}).get("scenes", ()), strict=False))
