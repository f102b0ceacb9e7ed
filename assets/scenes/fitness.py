"""Whether an opened scene serves: its bands together, and against what the products and the area ask for.

Belongs here: judgements that need the configuration, so that the facts about a file can be kept and judged anew when it changes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import shapely
from shapely.geometry.base import BaseGeometry

from assets.scenes.grouping import Candidate, Part
from assets.scenes.model import BandRef, MaskSource, Scene, SceneVerdict
from assets.scenes.stac_items import BandPlace
from resources.config_scenes import ProductConfig
from resources.errors import ErrorKind
from resources.keys import digest_of


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a scene is not used for tiles, though each of its files is sound."""

    verdict: SceneVerdict
    kind: ErrorKind
    reason: str


def bands_of_part(
    part: Part, facts: Mapping[str, Any], *, digest: str, names: Sequence[str], required: Collection[str]
) -> dict[str, BandRef]:
    """The bands of an opened file that products ask for (`required` empty: all). `names`: of a many-band file, by position."""
    described = facts["bands"]
    by_position = tuple(BandPlace(names[i] if i < len(names) else f"b{i + 1}", "", i + 1) for i in range(len(described)))
    places = [place for place in part.bands or by_position if not required or place.name in required]
    alpha = next((i + 1 for i, band in enumerate(described) if band["is_alpha"]), None)
    return {
        place.name: _band(part, facts, place, digest=digest, alpha=alpha) for place in places if place.index <= len(described)
    }


def band_digest(file_digest: str, place: BandPlace) -> str:
    """Digest of a band: its file's, and what a STAC item says of scale and offset, since that decides pixels too."""
    if place.scale is None and place.offset is None:
        return file_digest
    return digest_of({"file": file_digest, "scale": repr(place.scale), "offset": repr(place.offset)})


def _band(part: Part, facts: Mapping[str, Any], place: BandPlace, *, digest: str, alpha: int | None) -> BandRef:
    band = facts["bands"][place.index - 1]
    a, b, c, d, e, f = facts["transform"]
    return BandRef(
        name=place.name,
        uri=part.entry.uri,
        index=place.index,
        digest=band_digest(digest, place),
        size_bytes=part.entry.size_bytes,
        mtime_ns=part.entry.mtime_ns,
        inode=part.entry.inode,
        dtype=band["dtype"],
        nodata=None if band["nodata"] is None else float(band["nodata"]),
        width=facts["width"],
        height=facts["height"],
        transform=(a, b, c, d, e, f),
        crs=facts["crs"],
        scale=band["scale"] if place.scale is None else place.scale,
        offset=band["offset"] if place.offset is None else place.offset,
        mask=MaskSource(band["mask"]),
        alpha_index=alpha,
        is_palette=band["is_palette"],
    )


def fault_of(
    scene: Scene,
    candidate: Candidate,
    *,
    facts: Mapping[str, Mapping[str, Any]],
    required: Collection[str],
    products: Sequence[ProductConfig],
    area: BaseGeometry,
) -> Fault | None:
    """The first thing that is wrong with an opened scene; None if it serves. `facts` are those of its opened files, by uri."""
    return (
        _missing_bands(scene, candidate, required)
        or _crowded_file(candidate, facts)
        or _mixed_crs(scene)
        or _averaged_palette(scene, products)
        or _outside(scene, area)
    )


def _missing_bands(scene: Scene, candidate: Candidate, required: Collection[str]) -> Fault | None:
    missing = sorted(set(required) - set(scene.bands))
    if not missing and scene.bands:
        return None
    where = f"{candidate.parts[0].entry.uri!r}" if candidate.parts else f"scene {scene.scene_id!r}"
    allowed = f"also {names_of(missing)}, which products ask for" if missing else "at least one"
    reason = f"{where}: bands: found {names_of(scene.bands)}; allowed: {allowed}"
    return Fault(SceneVerdict.REJECTED, ErrorKind.MISSING_BAND, reason)


def _crowded_file(candidate: Candidate, facts: Mapping[str, Mapping[str, Any]]) -> Fault | None:
    """A file whose name stands for one band, and which holds several: whichever was taken would be a guess."""
    for part in candidate.parts if candidate.item is None else ():
        if not part.bands or part.entry.uri not in facts:
            continue
        count = sum(not band["is_alpha"] for band in facts[part.entry.uri]["bands"])
        if count > 1:
            reason = (
                f"{part.entry.uri!r}: bands: found {count} in a file whose name stands for one; allowed: 1, and an alpha band"
            )
            return Fault(SceneVerdict.REJECTED, ErrorKind.CONTRACT_VIOLATED, reason)
    return None


def _mixed_crs(scene: Scene) -> Fault | None:
    systems = {band.crs: band for band in scene.bands.values()}
    if len(systems) <= 1:
        return None
    first, second = (systems[crs] for crs in sorted(systems)[:2])
    reason = (
        f"scene {scene.scene_id!r}: CRS: found {_short(first.crs)} in {first.uri!r} and {_short(second.crs)} in {second.uri!r}; "
        "allowed: one CRS for all bands of a scene"
    )
    return Fault(SceneVerdict.REJECTED, ErrorKind.MIXED_CRS, reason)


def _averaged_palette(scene: Scene, products: Sequence[ProductConfig]) -> Fault | None:
    """A band of palette indices is used as it is, by products that only pick pixels: averaged, it would mean something else."""
    for band in scene.bands.values():
        for product in products if band.is_palette else ():
            in_formula = re.search(rf"\b{re.escape(band.name)}\b", product.expression or "") is not None
            asked = band.name in product.bands or in_formula
            if not asked or (product.resampling in ("nearest", "mode") and product.compositing not in ("mean", "median")):
                continue
            reason = (
                f"{band.uri!r}: colour table: found palette indices in band {band.name}, which product {product.name!r} would "
                f"average (resampling {product.resampling}, compositing {product.compositing}); allowed: resampling nearest or "
                "mode without mean or median, or a file expanded to colours (gdal_translate -expand rgb)"
            )
            return Fault(SceneVerdict.REJECTED, ErrorKind.UNSUPPORTED_DTYPE, reason)
    return None


def _outside(scene: Scene, area: BaseGeometry) -> Fault | None:
    shape = scene.footprint
    if shape is not None and shapely.intersects(area, shape) and not shapely.touches(area, shape):
        return None
    reason = (
        f"scene {scene.scene_id!r}: footprint: found {_box(scene.footprint)}; allowed: one that meets the area {_box(area)} "
        "(grid.area; left, bottom, right, top in degrees)"
    )
    return Fault(SceneVerdict.OUTSIDE_AREA, ErrorKind.OUTSIDE_AREA, reason)


def united(hexes: Iterable[str]) -> BaseGeometry | None:
    """Union of footprints in WKB hex; None of none."""
    shapes = [shapely.from_wkb(text) for text in sorted(set(hexes))]
    if not shapes:
        return None
    return shapes[0] if len(shapes) == 1 else shapely.union_all(shapes)


def names_of(names: Iterable[str]) -> str:
    """Band names for a message, sorted, the first twenty."""
    ordered = sorted(names)
    rest = f" and {len(ordered) - 20} more" if len(ordered) > 20 else ""
    return (", ".join(ordered[:20]) + rest) or "none"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _box(shape: BaseGeometry | None) -> str:
    return "none" if shape is None or shape.is_empty else "(" + ", ".join(f"{value:.6g}" for value in shape.bounds) + ")"
