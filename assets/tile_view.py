"""What Dagster shows of a partition: counts, pictures and links, as metadata worth opening."""

from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg

from assets.project import Project
from assets.thumbnails import data_uri, tile_thumbnail
from resources.engine import RunReport
from resources.io_managers import counts_metadata, summary_metadata
from resources.ledger import PartitionRow, UnitRow
from resources.units import UnitState

Describe = Callable[[RunReport, PartitionRow], Mapping[str, Any]]
_PREVIEWS_PER_RUN = 32


def describe_tiles(project: Project) -> Describe:
    """Metadata of a partition of tiles: counts, bytes, valid share, a thumbnail, and what is quarantined and why."""
    previews_left = [_PREVIEWS_PER_RUN]

    def describe(report: RunReport, row: PartitionRow) -> Mapping[str, Any]:
        found: dict[str, Any] = {**counts_metadata(row), **summary_metadata(report.summary)}
        units = list(project.ledger.planned(report.asset, [row.partition])) if row.units else []
        complete = [unit for unit in units if unit.state is UnitState.COMPLETE]
        if complete:
            found["bytes"] = sum(unit.output_size or 0 for unit in complete)
            found["outputs"] = dg.MetadataValue.md("\n".join(f"- `{unit.output_uri}`" for unit in complete))
            found["folder"] = dg.MetadataValue.path(str(project.store.path(complete[0].output_uri).parent))
            if previews_left[0] > 0:
                previews_left[0] -= 1
                found["preview"] = dg.MetadataValue.md(_preview(project, complete[0]))
        if row.quarantined:
            found["quarantined_units"] = dg.MetadataValue.md(_reasons(units))
        return found

    return describe


def describe_window(project: Project) -> Describe:
    """Metadata of a window output: counts, files and what the outputs say of themselves."""

    def describe(report: RunReport, row: PartitionRow) -> Mapping[str, Any]:
        found: dict[str, Any] = {**counts_metadata(row), **summary_metadata(report.summary)}
        for unit in project.ledger.planned(report.asset, [row.partition]):
            if unit.state is UnitState.COMPLETE:
                found[f"file {unit.product}"] = dg.MetadataValue.path(str(project.store.path(unit.output_uri)))
                found.update({f"{unit.product}.{name}": value for name, value in unit.metrics.items() if _is_plain(value)})
        picture = project.store.root / report.asset / f"{row.window}.png"
        if picture.is_file():
            found["map"] = dg.MetadataValue.md(f"![tiles by state]({data_uri(picture.read_bytes())})")
        return found

    return describe


def _preview(project: Project, unit: UnitRow) -> str:
    picture = tile_thumbnail(project.store.path(unit.output_uri))
    return f"![{unit.product} {unit.tile}]({data_uri(picture)})"


def _reasons(units: list[UnitRow]) -> str:
    lines = ["| unit | product | tile | kind | reason |", "|---|---|---|---|---|"]
    for unit in units:
        if unit.state is UnitState.QUARANTINED:
            reason = (unit.reason or "").replace("|", "\\|").replace("\n", " ")[:300]
            lines.append(f"| `{unit.key[:16]}` | {unit.product} | {unit.tile} | {unit.error_kind} | {reason} |")
    return "\n".join(lines)


def _is_plain(value: object) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)
