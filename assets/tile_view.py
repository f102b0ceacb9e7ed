"""What Dagster shows of a partition: counts, pictures and links, as metadata worth opening."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from assets.automation_assets import Describe
from assets.grid import Tile
from assets.scenes.model import Scene, SceneVerdict
from assets.scenes_project import ScenesProject
from assets.scenes_shape import MANIFEST
from assets.thumbnails import data_uri, small_thumbnail
from resources.engine import RunReport
from resources.io_managers import counts_metadata, summary_metadata
from resources.ledger import PartitionRow, UnitRow
from resources.units import UnitState

_PREVIEWED_PER_RUN = 32
_PREVIEWED_PRODUCTS = 4
# Dagster's pages show Markdown of less than 1,000 characters where it stands, and longer only after a click
_PREVIEW_BYTES = 690
_REASON_CHARS = 300
_NAME_CHARS = 80
_SCENES_SHOWN = 10
_QUOTE = "\u2019"


def describe_tiles(project: ScenesProject) -> Describe:
    """Metadata of a partition of tiles: a small picture of each product, counts, duration, bytes, what is quarantined and why.

    Only the first partitions of a run get pictures: metadata is kept in Dagster's database for ever.
    """
    previews_left = [_PREVIEWED_PER_RUN]

    def describe(report: RunReport, row: PartitionRow) -> Mapping[str, Any]:
        units = sorted(project.ledger.planned(report.asset, [row.partition]), key=_place) if row.units else []
        complete = [unit for unit in units if unit.state is UnitState.COMPLETE]
        found: dict[str, Any] = {}
        if complete and previews_left[0] > 0:
            previews_left[0] -= 1
            found.update(_previews(project, complete))
        found.update(counts_metadata(row))
        if row.quarantined:
            found["quarantined_units"] = dg.MetadataValue.md(_reasons(units))
        if complete:
            found["bytes"] = sum(unit.output_size or 0 for unit in complete)
            found["seconds"] = round(project.ledger.seconds(report.asset, [row.partition]).get(row.partition, 0.0), 3)
            found["outputs"] = dg.MetadataValue.md(_outputs(complete))
            for unit in complete:
                found.setdefault(f"folder {unit.product}", dg.MetadataValue.path(_folder(project, unit)))
        return {**found, **summary_metadata(report.summary)}

    return describe


def describe_window(project: ScenesProject) -> Describe:
    """Metadata of a window output: the map, counts, files and what the outputs say of themselves."""

    def describe(report: RunReport, row: PartitionRow) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        picture = project.store.root / report.asset / f"{row.window}.png"
        if picture.is_file():
            found["map"] = dg.MetadataValue.md(f"![tiles by state]({data_uri(picture.read_bytes())})")
        found.update(counts_metadata(row))
        for unit in sorted(project.ledger.planned(report.asset, [row.partition]), key=_place):
            if unit.state is UnitState.COMPLETE:
                found[f"file {unit.product}"] = dg.MetadataValue.path(str(project.store.path(unit.output_uri)))
                found.update({f"{unit.product}.{name}": value for name, value in unit.metrics.items() if _is_plain(value)})
        return {**found, **summary_metadata(report.summary)}

    return describe


def describe_scenes(project: ScenesProject, scenes: Sequence[Scene]) -> Describe:
    """Metadata of a window's manifest: its file, how many scenes of each verdict, and the first of them."""

    def describe(report: RunReport, row: PartitionRow) -> Mapping[str, Any]:
        window = row.partition
        mine = [scene for scene in scenes if scene.window == window]
        return {**scenes_metadata(project, window, mine), **counts_metadata(row), **summary_metadata(report.summary)}

    return describe


def scenes_metadata(project: ScenesProject, window: str, scenes: Sequence[Scene]) -> dict[str, Any]:
    """What a window's manifest holds, also where a run of tiles wrote it."""
    verdicts = Counter(scene.verdict.value for scene in scenes)
    # those that are left out first: they are what someone looks for
    shown = sorted(scenes, key=lambda scene: (scene.verdict is SceneVerdict.ACCEPTED, scene.scene_id))[:_SCENES_SHOWN]
    return {
        "scenes": len(scenes),
        "verdicts": ", ".join(f"{number} {name}" for name, number in sorted(verdicts.items())) or "none",
        "first_scenes": dg.MetadataValue.md("\n".join(map(_scene_line, shown)) or "none"),
        "file": dg.MetadataValue.path(str(project.store.path(f"{MANIFEST}/{window}.parquet"))),
    }


def _scene_line(scene: Scene) -> str:
    name = scene.scene_id[:_NAME_CHARS].replace("`", _QUOTE)
    when = f", {scene.acquired:%Y-%m-%d %H:%M}" if scene.acquired else ""
    reason = " ".join(scene.reason.split())[:_REASON_CHARS].replace("`", _QUOTE)
    return f"- `{name}`{when}, {scene.verdict.value}" + (f": `{reason}`" if reason else "")


def _previews(project: ScenesProject, complete: list[UnitRow]) -> dict[str, Any]:
    """One picture of each product: of its fullest tile."""
    fullest: dict[str, UnitRow] = {}
    for unit in complete:
        if unit.product not in fullest or _valid_share(unit) > _valid_share(fullest[unit.product]):
            fullest[unit.product] = unit
    found: dict[str, Any] = {}
    for product, unit in list(fullest.items())[:_PREVIEWED_PRODUCTS]:
        if picture := small_thumbnail(project.store.path(unit.output_uri), bytes_max=_PREVIEW_BYTES):
            found[f"preview {product}"] = dg.MetadataValue.md(f"![{unit.tile}]({data_uri(picture, 'webp')})")
    return found


def _outputs(complete: list[UnitRow]) -> str:
    lines = ["| product | tile | valid | bytes | file |", "|---|---|---|---|---|"]
    for unit in complete:
        name = unit.output_uri.rpartition("/")[2]
        lines.append(f"| {unit.product} | {unit.tile} | {_valid_share(unit):.0%} | {unit.output_size} | {name} |")
    return "\n".join(lines)


def _reasons(units: list[UnitRow]) -> str:
    lines = []
    for unit in units:
        if unit.state is UnitState.QUARANTINED:
            reason = " ".join((unit.reason or "").split())[:_REASON_CHARS].replace("`", _QUOTE)
            lines.append(f"- {unit.product} {unit.tile}, {unit.error_kind}: `{reason}` (unit {unit.key[:16]})")
    return "\n".join(lines)


def _folder(project: ScenesProject, unit: UnitRow) -> str:
    return str(project.store.path(unit.output_uri).parent)


def _place(unit: UnitRow) -> tuple[str, Tile]:
    return unit.product, Tile.parse(unit.tile) if unit.tile else Tile(0, 0, 0)


def _valid_share(unit: UnitRow) -> float:
    return float(unit.metrics.get("valid_share", 0.0))


def _is_plain(value: object) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)
