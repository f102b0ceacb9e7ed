"""The map of a window by the state of its tiles: a picture for Dagster and mail, and a drawing with names for the report.

A place is shown in the worst state of its products. No basemap and no coordinates: rows and columns of the grid, north up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assets.grid import Tile
from assets.state_styles import STYLES
from assets.window_tiles import WindowTiles
from resources.units import UnitState

_CELLS_MAX = 1_000
_NAMED_MAX = 3_000
_MAP_PX = 720
_CELL_PX_MAX = 56


_RANK = {state: number for number, state in enumerate(STYLES, start=1)}
_EMPTY = "#f1f3f6"


@dataclass(frozen=True, slots=True)
class MapCell:
    """One place of the drawing: its corner in pixels, and what is said of it."""

    left: int
    top: int
    colour: str
    mark: str
    title: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """Cells of a map, for an SVG of `width` x `height` pixels with cells of `cell` pixels."""

    width: int
    height: int
    cell: int
    cells: tuple[MapCell, ...]


def state_counts(tiles: WindowTiles) -> dict[UnitState, int]:
    """Planned tiles of a window by state; every state of `STYLES` has a number."""
    counts = dict.fromkeys(STYLES, 0)
    counts[UnitState.COMPLETE] = len(tiles.complete)
    for tile in tiles.absent:
        counts[tile.state] = counts.get(tile.state, 0) + 1
    return counts


def state_map(tiles: WindowTiles, places: Iterable[Tile]) -> bytes:
    """PNG of the window: title, map, legend with counts. `places` are all tiles of the grid; without a unit they are pale."""
    from PIL import Image, ImageDraw, ImageFont

    from assets.thumbnails import png

    ranks = _ranks(tiles, places)
    rows, columns = ranks.shape
    cell = max(1, min(_CELL_PX_MAX, _MAP_PX // max(rows, columns)))
    margin, line = 24, 24
    counts = state_counts(tiles)
    width = max(columns * cell + 2 * margin, 460)
    height = rows * cell + 2 * margin + 44 + line * len(STYLES)
    picture = Image.new("RGBA", (width, height), "white")
    draw = ImageDraw.Draw(picture)
    planned = sum(counts.values())
    title = f"{tiles.window.key}: {counts[UnitState.COMPLETE]} of {planned} tiles"
    draw.text((margin, margin - 8), title, "#1d2733", ImageFont.load_default(20))
    top, left = margin + 32, margin
    colours = [_EMPTY, *(style.colour for style in STYLES.values())]
    gap = 1 if cell >= 6 else 0
    for row, column in np.ndindex(rows, columns):
        corner = left + column * cell, top + row * cell
        if ranks[row, column] >= 0:
            draw.rectangle((*corner, corner[0] + cell - 1 - gap, corner[1] + cell - 1 - gap), fill=colours[ranks[row, column]])
    for number, (state, style) in enumerate(STYLES.items()):
        base = top + rows * cell + margin // 2 + number * line
        draw.rectangle((left, base + 3, left + 14, base + 17), fill=style.colour)
        draw.text((left + 24, base + 1), f"{counts[state]}  {style.label}", "#1d2733", ImageFont.load_default(15))
    return png(np.asarray(picture))


def state_drawing(tiles: WindowTiles, places: Iterable[Tile]) -> Drawing | None:
    """The map as cells that can be pointed at; None when there are too many for a page, then take `state_map`."""
    named = _states(tiles)
    pale = {place for place in places if place not in named}
    if not named or len(named) + len(pale) > _NAMED_MAX:
        return None
    everything = [*named, *pale]
    first_x, first_y = min(tile.x for tile in everything), min(tile.y for tile in everything)
    columns = max(tile.x for tile in everything) - first_x + 1
    rows = max(tile.y for tile in everything) - first_y + 1
    if max(columns, rows) > _CELLS_MAX:
        return None
    cell = max(3, min(_CELL_PX_MAX, _MAP_PX // max(columns, rows)))
    cells = [
        MapCell((tile.x - first_x) * cell, (tile.y - first_y) * cell, _EMPTY, "", f"{tile.name}: no scene")
        for tile in sorted(pale)
    ]
    for tile, says in sorted(named.items()):
        worst = max(says, key=lambda entry: _RANK[entry[0]])[0]
        title = f"{tile.name}\n" + "\n".join(f"{product}: {STYLES[state].label}{why}" for state, product, why in says)
        style = STYLES[worst]
        cells.append(MapCell((tile.x - first_x) * cell, (tile.y - first_y) * cell, style.colour, style.mark, title))
    return Drawing(width=columns * cell, height=rows * cell, cell=cell, cells=tuple(cells))


def _states(tiles: WindowTiles) -> dict[Tile, list[tuple[UnitState, str, str]]]:
    states: dict[Tile, list[tuple[UnitState, str, str]]] = {}
    for complete in tiles.complete:
        states.setdefault(complete.tile, []).append((UnitState.COMPLETE, complete.product, ""))
    for absent in tiles.absent:
        states.setdefault(absent.tile, []).append((absent.state, absent.product, f" ({absent.kind})" if absent.kind else ""))
    return {tile: sorted(says, key=lambda entry: entry[1]) for tile, says in states.items()}


def _ranks(tiles: WindowTiles, places: Iterable[Tile]) -> npt.NDArray[np.int8]:
    """Worst rank for each place `(row, column)`, north up: -1 outside the grid, 0 without a unit. Large grids are thinned."""
    ranked = dict.fromkeys(places, 0)
    for tile, says in _states(tiles).items():
        ranked[tile] = max(_RANK[state] for state, _, _ in says)
    if not ranked:
        return np.full((1, 1), -1, dtype=np.int8)
    first_x, first_y = min(tile.x for tile in ranked), min(tile.y for tile in ranked)
    columns = max(tile.x for tile in ranked) - first_x + 1
    rows = max(tile.y for tile in ranked) - first_y + 1
    step = -(-max(columns, rows) // _CELLS_MAX)
    ranks = np.full((-(-rows // step), -(-columns // step)), -1, dtype=np.int8)
    for tile, rank in ranked.items():
        place = (tile.y - first_y) // step, (tile.x - first_x) // step
        ranks[place] = max(ranks[place], rank)
    return ranks
