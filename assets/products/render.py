"""The work function of a tile: read, mask, compute, composite, round, write.

Order of things, which the pixels depend on: masks, scale and offset (if asked for), formula, composite over scenes, rescale,
rounding to the dtype (half to even, then clipped to what the dtype holds). A valid value that would equal nodata is moved to its
neighbour. With `nodata` set, a band missing at a pixel is nodata in that band alone; without, one mask serves all bands and a
pixel is valid only where all bands of one scene are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assets.products.cog import TilePixels, tile_tags, write_cog
from assets.products.compositing import composite, in_reading_order
from assets.products.expression import evaluate, parse_formulas
from assets.products.masks import masked_out
from assets.products.model import SceneInput, TileRequest, bands_required, output_names, value_bands
from assets.products.reading import Block, SceneReader, Values, scaled
from resources.config_scenes import ProductConfig
from resources.errors import ErrorKind, InputRejected
from resources.gdal_safety import safe_env

_WORKING_BYTES = 96 << 20


def render_tile(request: TileRequest, path: Path) -> dict[str, Any]:
    """Write the tile to `path` as a Cloud Optimized GeoTIFF and return its metrics, the same that stand in its tags.

    The bytes depend on what the unit key is made from, and on nothing else. `scenes_used` in the metrics are positions in
    `request.scenes`. Raises `InputRejected` with the scene's digest (a scene cannot be decoded; no retry), `TransientError` (a
    scene changed or cannot be read now; retry), `OSError` when the output cannot be written.
    After a crash: `path`, a staging name, may hold part of a file; nothing else is left.
    """
    with safe_env(request.gdal_cache_mb):
        pixels, used = render_pixels(request)
        metrics = _metrics(pixels, used)
        write_cog(path, pixels, box=request.box, product=request.product, tags=tile_tags(request, metrics))
    return metrics


def render_pixels(request: TileRequest) -> tuple[TilePixels, tuple[int, ...]]:
    """The tile's pixels, and which of its scenes had any (positions). Call inside `safe_env`; raises as `render_tile`."""
    product, scenes = request.product, request.scenes
    _refuse_incomplete(request)
    reader = SceneReader(request.box, Path(request.source_dir), request.drivers)
    names = output_names(product)
    height, width = request.box.shape
    values = np.empty((len(names), height, width), dtype=product.dtype)
    valid = np.zeros((len(names), height, width), dtype=bool)
    used: set[int] = set()
    needed = bands_required(product)
    arrays = (len(needed) + len(names)) * (len(scenes) + 1 if product.compositing == "median" else 4)
    for block in reader.blocks(pixels_max=_WORKING_BYTES // (8 * arrays)):
        rows, columns = block.window
        combined = _combine(product, reader, scenes, block, used)
        if combined is None:
            combined = np.full((len(names), block.height, block.width), np.nan)
        values[:, rows, columns], valid[:, rows, columns] = finished(product, combined)
    return TilePixels(values, valid, names), tuple(sorted(used))


def _combine(
    product: ProductConfig, reader: SceneReader, scenes: tuple[SceneInput, ...], block: Block, used: set[int]
) -> Values | None:
    method = product.compositing
    combined = composite(method)
    count = 0
    for position in in_reading_order(method, len(scenes)):
        values, rank = scene_values(product, reader, scenes[position], block)
        count += 1
        if not np.isnan(values).all():
            used.add(position)
        if combined.add(values, rank):
            break
    return combined.result() if count else None


def scene_values(product: ProductConfig, reader: SceneReader, scene: SceneInput, block: Block) -> tuple[Values, Values | None]:
    """The output bands of one scene on a block, `(band, y, x)`, NaN where absent or masked, and the band that is compared."""
    left_out = np.zeros((block.height, block.width), dtype=bool)
    for mask in product.masks:
        quality = reader.read(scene, [mask.band], block, resampling="nearest", full_resolution=True)[0]
        left_out |= masked_out(mask, quality, scene.bands[mask.band].dtype)
    inputs = list(value_bands(product))
    ranking = product.by_band
    names = inputs if ranking is None or ranking in inputs else [*inputs, ranking]
    if left_out.all():
        count = len(output_names(product))
        nothing = np.full((count, block.height, block.width), np.nan, dtype=np.float32)
        return nothing, None if ranking is None else nothing[0]
    read = reader.read(scene, names, block, resampling=product.resampling)
    read[:, left_out] = np.nan
    if product.apply_scale:
        read = scaled(read, [scene.bands[name] for name in names])
    by_name = dict(zip(names, read, strict=True))
    if product.expression is None:
        values = read[: len(inputs)] if product.bands == tuple(inputs) else np.stack([by_name[name] for name in product.bands])
    else:
        formulas = parse_formulas(product.name, product.expression)
        values = np.stack([evaluate(formula, [by_name[name] for name in formula.bands]) for formula in formulas])
    if product.nodata is None and len(values) > 1:
        values[:, np.isnan(values).any(axis=0)] = np.nan
    return values, None if ranking is None else by_name[ranking]


def finished(product: ProductConfig, values: Values) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """`values` `(band, y, x)`, NaN where absent, in the product's dtype, and where they are valid. Absent is nodata or 0."""
    kind = np.dtype(product.dtype)
    valid = ~np.isnan(values)
    if product.nodata is None:
        valid[:] = valid.all(axis=0)
        filler = 0.0
    else:
        filler = float(product.nodata)
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            stored = values.astype(kind)
        # what float32 cannot hold is as absent as what cannot be computed
        valid &= np.isfinite(stored)
        if product.nodata is None:
            valid[:] = valid.all(axis=0)
        elif np.isfinite(filler):
            clash = valid & (stored == kind.type(filler))
            stored[clash] = np.nextafter(kind.type(filler), kind.type(0 if filler else 1))
        stored[~valid] = filler
        return stored, valid
    bounds = np.iinfo(kind)
    wide = values.astype(np.float64) if kind.itemsize > 2 or product.rescale else values
    if product.rescale is not None:
        low, high = product.rescale
        wide = (wide - low) * ((int(bounds.max) - int(bounds.min)) / (high - low)) + float(bounds.min)
    rounded = np.clip(np.rint(wide), float(bounds.min), float(bounds.max))
    rounded[~valid] = filler
    stored = rounded.astype(kind)
    if product.nodata is not None:
        clash = valid & (stored == filler)
        stored[clash] = filler + 1 if filler == bounds.min else filler - 1
    return stored, valid


def _refuse_incomplete(request: TileRequest) -> None:
    for scene in request.scenes:
        missing = [name for name in bands_required(request.product) if name not in scene.bands]
        if missing:
            raise InputRejected(
                f"scene {scene.scene_id}: product {request.product.name} needs band {', '.join(missing)}; "
                f"the scene has {', '.join(sorted(scene.bands))}",
                input_digest=scene.digest,
                kind=ErrorKind.MISSING_BAND,
                unit_key=request.unit_key,
            )


def _metrics(pixels: TilePixels, used: tuple[int, ...]) -> dict[str, Any]:
    bands = []
    for name, values, valid in zip(pixels.names, pixels.values, pixels.valid, strict=True):
        held = values[valid].astype(np.float64)
        entry: dict[str, Any] = {"name": name, "valid": int(held.size)}
        if held.size:
            numbers = {"min": held.min(), "max": held.max(), "mean": held.mean(), "std": held.std()}
            entry |= {key: _tidy(float(number)) for key, number in numbers.items()}
        bands.append(entry)
    share = float(pixels.valid.any(axis=0).mean())
    return {"valid_share": _tidy(share), "bands": bands, "scenes_used": list(used)}


def _tidy(number: float) -> float:
    # sums differ in their last digits between processors, and metrics stand in the output
    return float(f"{number:.9g}")
