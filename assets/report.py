"""The report of a window: one HTML page that needs nothing beside it, and the map as a PNG.

For whoever has to say whether a window is fit for use: what is there, what is absent and why, what it looks like, where the files
are. It speaks of the tiles as they stand, not of a run: no time, no attempt and no run id, so that equal tiles give equal bytes.
Names and reasons come from outside and are escaped; the page's own policy lets a browser load and run nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from assets.grid import Tile
from assets.page import check_page, relative_href, render
from assets.state_map import state_counts, state_drawing, state_map
from assets.state_styles import STYLES
from assets.thumbnails import data_uri, mosaic_picture, png, spread, stretch
from assets.tile_mosaic import TileMosaic
from assets.window_tiles import CompleteTile, WindowTiles
from resources.config_scenes import ProductConfig
from resources.errors import ErrorKind, UnitRejected
from resources.keys import digest_of

OPERATION = "window_report"
VERSION = "1"
_ABSENT_MAX = 500
_SCENES_MAX = 200
_PICTURED_MAX = 1_024
_SAMPLES = 6
_SAMPLE_PX = 192


class SceneLike(Protocol):
    """What is asked of a scene of the source."""

    @property
    def scene_id(self) -> str: ...
    @property
    def window(self) -> str | None: ...
    @property
    def verdict(self) -> str: ...
    @property
    def kind(self) -> str | None: ...
    @property
    def reason(self) -> str: ...


@dataclass(frozen=True, slots=True, order=True)
class AbsentScene:
    """A scene of the window that is in no tile, and why."""

    scene_id: str
    verdict: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """Everything that decides a report's bytes. `places` are all tiles of the grid; `links` are (label, store URI). Picklable."""

    unit_key: str
    uri: str
    tiles: WindowTiles
    products: tuple[ProductConfig, ...]
    places: tuple[Tile, ...]
    scenes: tuple[AbsentScene, ...]
    links: tuple[tuple[str, str], ...]
    store_dir: Path


def report_uris(window: str) -> tuple[str, str]:
    """Final places of a window's page and map, relative to the store."""
    return f"{OPERATION}/{window}.html", f"{OPERATION}/{window}.png"


def absent_scenes(scenes: Iterable[SceneLike], window: str) -> tuple[AbsentScene, ...]:
    """Scenes of the window that are not accepted, sorted: rejected, waiting for bands, still being written."""
    return tuple(
        sorted(
            AbsentScene(scene.scene_id, str(scene.verdict), str(scene.kind or ""), scene.reason)
            for scene in scenes
            if scene.window == window and str(scene.verdict) != "ACCEPTED"
        )
    )


def report_ingredients(
    uri: str,
    tiles: WindowTiles,
    *,
    products: Sequence[ProductConfig],
    places: Sequence[Tile],
    scenes: Sequence[AbsentScene],
    links: Sequence[tuple[str, str]],
    grid_settings: Mapping[str, object],
) -> dict[str, Any]:
    """Arguments of `resources.keys.unit_key` for a window's page or its map, told apart by `uri`."""
    return {
        "operation": OPERATION,
        "version": VERSION,
        "settings": {
            "grid": dict(grid_settings),
            "places": digest_of([tile.name for tile in places]),
            "products": [[item.name, item.version] for item in products],
            "links": [list(link) for link in links],
        },
        "destination": {"window": tiles.window.key, "uri": uri},
        "inputs": {
            **tiles.fingerprint(),
            "scenes": [[scene.scene_id, scene.verdict, scene.kind, scene.reason] for scene in scenes],
        },
    }


def write_report(request: ReportRequest, path: Path) -> dict[str, Any]:
    """Write the page to `path`, a staging name, and return the counts it shows.

    Raises as `TileMosaic` when a tile is gone or not what was recorded. After a crash: a staged file that the sweep removes.
    """
    tiles = request.tiles
    counts = state_counts(tiles)
    drawing = state_drawing(tiles, request.places)
    page = render(
        "window_report.html.j2",
        unit_key=request.unit_key,
        window=tiles.window,
        tiles=tiles,
        planned=sum(counts.values()),
        counts=[(style, counts[state]) for state, style in STYLES.items()],
        drawing=drawing,
        map_picture=None if drawing else data_uri(state_map(tiles, request.places)),
        products=[_product(request, product) for product in request.products],
        absent=[(tile, STYLES[tile.state]) for tile in sorted(tiles.absent, key=_by_urgency)[:_ABSENT_MAX]],
        absent_left=max(0, len(tiles.absent) - _ABSENT_MAX),
        scenes=request.scenes[:_SCENES_MAX],
        scenes_left=max(0, len(request.scenes) - _SCENES_MAX),
        used_scenes=sorted({scene for tile in tiles.complete for scene in tile.scenes}),
        links=[(label, relative_href(uri, from_uri=request.uri)) for label, uri in request.links],
        version=VERSION,
    )
    path.write_text(page, encoding="utf-8", newline="\n")
    return {"planned": sum(counts.values()), **{state.value.lower(): count for state, count in counts.items()}}


def validate_report(request: ReportRequest, path: Path) -> None:
    """Open a staged page again. Raises `UnitRejected` (INVALID_OUTPUT) unless it is whole and bears the request's key."""
    check_page(path, uri=request.uri, unit_key=request.unit_key)


def write_report_map(request: ReportRequest, path: Path) -> dict[str, Any]:
    """Write the map as PNG to `path`, a staging name. After a crash: a staged file that the sweep removes."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    picture = state_map(request.tiles, request.places)
    info = PngInfo()
    info.add_text("tilewright:unit_key", request.unit_key)
    path.write_bytes(picture)
    with Image.open(path) as image:
        image.load()
    image.save(path, format="PNG", pnginfo=info, optimize=True)
    return {"tiles": len(request.tiles.complete), "absent": len(request.tiles.absent)}


def validate_report_map(request: ReportRequest, path: Path) -> None:
    """Open a staged map again. Raises `UnitRejected` (INVALID_OUTPUT) unless it decodes and bears the request's key."""
    from PIL import Image

    try:
        with Image.open(path, formats=["PNG"]) as image:
            image.load()
            key = image.info.get("tilewright:unit_key")
    except (OSError, SyntaxError, ValueError) as error:  # Pillow reports a broken PNG as SyntaxError
        raise UnitRejected(
            f"the staged {request.uri} cannot be read back: {error}", kind=ErrorKind.INVALID_OUTPUT, unit_key=request.unit_key
        ) from error
    if key != request.unit_key:
        raise UnitRejected(
            f"the staged {request.uri}: found key {key}, expected {request.unit_key}",
            kind=ErrorKind.INVALID_OUTPUT,
            unit_key=request.unit_key,
        )


@dataclass(frozen=True, slots=True)
class _Sample:
    tile: CompleteTile
    href: str
    picture: str


@dataclass(frozen=True, slots=True)
class _ProductPart:
    name: str
    planned: int
    complete: int
    valid_share: float | None
    size_bytes: int
    picture: str | None
    samples: tuple[_Sample, ...]


def _by_urgency(tile: Any) -> tuple[int, str, Tile]:
    return -list(STYLES).index(tile.state), tile.product, tile.tile


def _product(request: ReportRequest, product: ProductConfig) -> _ProductPart:
    found = request.tiles.of_product(product.name)
    complete = found.complete
    shares = [tile.valid_share for tile in complete if tile.valid_share is not None]
    picture = None
    if 0 < len(complete) <= _PICTURED_MAX:
        picture = data_uri(mosaic_picture(request.store_dir, complete))
    return _ProductPart(
        name=product.name,
        planned=len(complete) + len(found.absent),
        complete=len(complete),
        valid_share=sum(shares) / len(shares) if shares else None,
        size_bytes=sum(tile.size_bytes for tile in complete),
        picture=picture,
        samples=_samples(request, complete),
    )


def _samples(request: ReportRequest, complete: Sequence[CompleteTile]) -> tuple[_Sample, ...]:
    chosen = spread(complete, _SAMPLES)
    if not chosen:
        return ()
    samples = []
    with TileMosaic(request.store_dir, chosen) as mosaic:
        bands = (1, 2, 3) if mosaic.band_count() >= 3 else (1,)
        for tile in chosen:
            side = min(_SAMPLE_PX, tile.box.shape[0])
            picture = png(stretch(mosaic.read_small(tile, bands, side=side)))
            samples.append(_Sample(tile, relative_href(tile.output_uri, from_uri=request.uri), data_uri(picture)))
    return tuple(samples)
