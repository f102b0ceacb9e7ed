"""Taking stock: what scenes a window has now, its manifest, and the plan that follows from them.

Called at the start of every run of a window, whoever launched it, so that a run never works from a plan older than the source.
A second call with nothing changed reads one listing and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from assets.planning import WindowPlan
from assets.products.model import bands_required
from assets.scenes.discovery import find_scenes
from assets.scenes.manifest import MANIFEST_VERSION, validate_manifest, write_manifest
from assets.scenes.model import Scene, SceneListing, SceneVerdict
from assets.scenes_project import ScenesProject
from assets.scenes_shape import MANIFEST, TILES
from assets.survey import source_fingerprint
from assets.window_batch import WindowBatch
from assets.window_plan import bring_up_to_date
from resources.keys import digest_of, unit_key
from resources.ledger import InputRejection
from resources.units import PartitionPlan, PlannedUnit, UnitOfWork


@dataclass(frozen=True, slots=True)
class WindowStock:
    """A window's scenes, the fingerprint of its manifest, and its plan; whether the manifest was brought up to date just now."""

    window: str
    scenes: tuple[Scene, ...]
    manifest_fingerprint: str
    plan: WindowPlan
    is_manifest_made: bool


def list_scenes(project: ScenesProject, *, now: datetime) -> SceneListing:
    """Everything the source holds now, all windows; scenes found unfit are recorded as one dead letter each.

    Files that are no scenes are left unsaid when `source.ignore` names them; one that a pattern matches is a scene all the same.
    Raises `EnvironmentUnfit` (SOURCE_MISSING) when the source folder is not there.
    """
    required = {name for product in project.config.products for name in bands_required(product)}
    listing = find_scenes(project.config, ledger=project.ledger, required_bands=sorted(required), now=now)
    ignored = project.config.source.ignore
    if ignored:
        others = tuple(
            other
            for other in listing.strangers
            if not any(fnmatchcase(other.uri.rpartition("/")[2], pattern) for pattern in ignored)
        )
        listing = replace(listing, strangers=others)
    rejections = [
        InputRejection(scene.digest, scene.scene_id, scene.kind, scene.reason, scene.window)
        for scene in listing.with_verdict(SceneVerdict.REJECTED)
        if scene.kind is not None
    ]
    project.ledger.reject_inputs(rejections)
    living = {scene.digest for scene in listing.scenes} | {
        band.digest for scene in listing.scenes for band in scene.bands.values()
    }
    project.ledger.close_superseded_inputs(living)
    return listing


def take_stock(project: ScenesProject, windows: Iterable[str], *, run_id: str) -> dict[str, WindowStock]:
    """List the source once, then bring manifest and plan of each window up to date.

    After a crash: the manifest is promoted whole or not at all, and the plan is written again.
    """
    listing = list_scenes(project, now=project.ledger.clock())
    return {window: refresh_window(project, window, listing.scenes, run_id=run_id) for window in dict.fromkeys(windows)}


def refresh_window(project: ScenesProject, window: str, scenes: Sequence[Scene], *, run_id: str) -> WindowStock:
    """Write the window's manifest and plan if scenes, rejected inputs or settings changed since they were written.

    After a crash: as `bring_up_to_date`.
    """
    mine = tuple(scene for scene in scenes if scene.window == window)
    manifest = manifest_fingerprint(mine)
    rejected = project.ledger.rejected_inputs()
    plan = WindowPlan(
        project.config, grid=project.grid, cover=project.cover, window=window, scenes=mine, rejected=rejected.keys()
    )
    known = {band.digest for scene in mine for band in scene.bands.values()} | {scene.digest for scene in mine}
    settings = settings_fingerprint(project, rejected={digest for digest in rejected if digest in known})

    def write_plan() -> None:
        held: dict[str, list[str]] = {}
        project.ledger.write_plan(TILES, _noting_held(plan, held))
        for digest, keys in held.items():
            project.ledger.block_units(digest, keys)
        _forget_old_partitions(project, window)

    is_manifest_made = bring_up_to_date(
        project,
        window,
        source=manifest,
        settings=settings,
        manifest=lambda: manifest_work(window, mine, fingerprint=manifest),
        write_plan=write_plan,
        run_id=run_id,
    )
    return WindowStock(window, mine, manifest, plan, is_manifest_made)


def _noting_held(plan: WindowPlan, held: dict[str, list[str]]) -> Iterator[PartitionPlan]:
    for partition in plan.partitions():
        for digest, keys in plan.held(partition).items():
            held.setdefault(digest, []).extend(keys)
        yield partition


def settings_fingerprint(project: ScenesProject, *, rejected: Iterable[str]) -> str:
    """What beside the manifest decides a window's plan: products, grid with its metatile size, rejected inputs."""
    return digest_of(
        {
            "products": [product.model_dump(mode="json") for product in project.config.products],
            "grid": {**project.config.grid.model_dump(mode="json"), **project.grid.settings()},
            "area": project.grid.area.wkb_hex,
            "rejected": sorted(rejected),
        }
    )


def manifest_work(window: str, scenes: Sequence[Scene], *, fingerprint: str) -> UnitOfWork:
    """The unit of work that writes one window's manifest."""
    ingredients: dict[str, Any] = {
        "operation": MANIFEST,
        "version": MANIFEST_VERSION,
        "settings": {},
        "destination": {"window": window},
        "inputs": fingerprint,
    }
    key = unit_key(**ingredients)
    planned = PlannedUnit(
        key=key, product=MANIFEST, window=window, output_uri=f"{MANIFEST}/{window}.parquet", source="ledger", spec=ingredients
    )
    return UnitOfWork(planned, partial(write_manifest, tuple(scenes), key), partial(validate_manifest, key), replaces=True)


def manifest_fingerprint(scenes: Iterable[Scene]) -> str:
    """Tells one state of a window's scenes from another: what they are, what decides their pixels, how they were judged."""
    return source_fingerprint(_identity(scene) for scene in scenes)


def manifest_batch(project: ScenesProject, windows: Iterable[str], scenes: Sequence[Scene]) -> WindowBatch:
    """The manifests of some windows, from the scenes of all."""
    works = {}
    for window in windows:
        mine = tuple(scene for scene in scenes if scene.window == window)
        works[window] = [manifest_work(window, mine, fingerprint=manifest_fingerprint(mine))]
    return WindowBatch(MANIFEST, works, ledger=project.ledger)


def _forget_old_partitions(project: ScenesProject, window: str) -> None:
    """Partitions of another metatile size or area are no longer in the grid; their units live on where they are planned now."""
    living = project.grid.partitions
    gone = [
        row.partition for row in project.ledger.partition_rows(TILES, window) if row.tile is not None and row.tile not in living
    ]
    if gone:
        project.ledger.forget_partitions(TILES, gone)


def _identity(scene: Scene) -> Mapping[str, Any]:
    return {
        "scene_id": scene.scene_id,
        "digest": scene.digest,
        "acquired": None if scene.acquired is None else scene.acquired.isoformat(),
        "verdict": scene.verdict.value,
        "reason": scene.reason,
        "bands": sorted(scene.bands),
    }
