"""What a tile is made from: the values that travel to the worker that renders it.

Belongs here: values, which bands a product reads, and the order of scenes. Everything here that can change a pixel is part of the
unit key, and so are `RENDER_VERSION` and nothing else of the code: raise it when pixels of fixed inputs change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, TypeVar

from assets.products.expression import parse_formulas
from resources.config_scenes import ProductConfig, ScenesConfig
from resources.errors import ConfigurationError

if TYPE_CHECKING:
    from assets.grid import Tile, TileBox
    from assets.scenes.model import BandRef

OPERATION = "tile"
RENDER_VERSION = "1"

_WEBP_BANDS = (3, 4)
_JPEG_BANDS = (1, 3)


@dataclass(frozen=True, slots=True)
class SceneInput:
    """One scene as a tile needs it. `digest` covers every file of the scene; `acquired` is UTC."""

    scene_id: str
    acquired: datetime
    digest: str
    bands: Mapping[str, BandRef]


@dataclass(frozen=True, slots=True)
class TileRequest:
    """One tile of one product, to be rendered. `scenes` are in the order that `order_scenes` gave.

    `missing_scenes` are digests of rejected scenes that the tile is composed without; `drivers` may open a scene.
    """

    product: ProductConfig
    box: TileBox
    tile: Tile
    window: str
    unit_key: str
    scenes: tuple[SceneInput, ...]
    source_dir: str
    missing_scenes: tuple[str, ...] = ()
    gdal_cache_mb: int = 64
    drivers: tuple[str, ...] = ("GTiff", "JP2OpenJPEG")


class Datable(Protocol):
    """What can be put into compositing order."""

    @property
    def scene_id(self) -> str: ...
    @property
    def acquired(self) -> datetime | None: ...
    @property
    def digest(self) -> str: ...


S = TypeVar("S", bound=Datable)


def order_scenes(product: ProductConfig, scenes: Sequence[S]) -> tuple[S, ...]:
    """The scenes in the product's compositing order, which is total: equal times are told apart by scene id, then by digest.

    `newest` and `oldest` go by acquisition time (a scene without one counts as older than all), `name` by scene id.
    """
    by_name = sorted(scenes, key=lambda scene: (scene.scene_id, scene.digest))
    if product.order == "name":
        return tuple(by_name)
    # sorting is stable, also in reverse: equal times keep the order of names
    return tuple(sorted(by_name, key=_time_of, reverse=product.order == "newest"))


def _time_of(scene: Datable) -> datetime:
    moment = scene.acquired
    if moment is None:
        return datetime.min.replace(tzinfo=UTC)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def output_names(product: ProductConfig) -> tuple[str, ...]:
    """Names of the output bands, in order: source band names, or the formulas."""
    if product.expression is None:
        return product.bands
    return tuple(formula.text for formula in parse_formulas(product.name, product.expression))


def value_bands(product: ProductConfig) -> tuple[str, ...]:
    """Source bands whose values enter the output, each once, in order of first use."""
    if product.expression is None:
        return tuple(dict.fromkeys(product.bands))
    return tuple(dict.fromkeys(name for formula in parse_formulas(product.name, product.expression) for name in formula.bands))


def bands_required(product: ProductConfig) -> tuple[str, ...]:
    """Every band a scene must have for this product: values, masks, and the band that highest and lowest compare."""
    names = list(value_bands(product))
    if product.by_band is not None:
        names.append(product.by_band)
    names.extend(mask.band for mask in product.masks)
    return tuple(dict.fromkeys(names))


def check_products(config: ScenesConfig) -> None:
    """Check what only a look at the formulas can tell. Raises `ConfigurationError`: file, product, found, allowed.

    Bands are compared with `source.bands` where that list is all there is; names from file names or items are not known yet.
    """
    source = config.source
    named = source.bands if source.acquired != "item" and not any("{band}" in pattern for pattern in source.patterns) else ()
    for product in config.products:
        try:
            _check_product(product, named)
        except ConfigurationError as error:
            raise ConfigurationError(f"{config.path}: {error.message}") from None


def _check_product(product: ProductConfig, named: Sequence[str]) -> None:
    outputs = len(output_names(product))
    if product.compression == "webp" and outputs not in _WEBP_BANDS:
        raise ConfigurationError(f"product {product.name}: compression = webp needs 3 or 4 output bands, found {outputs}")
    if product.compression == "jpeg" and outputs not in _JPEG_BANDS:
        raise ConfigurationError(f"product {product.name}: compression = jpeg needs 1 or 3 output bands, found {outputs}")
    unknown = [name for name in bands_required(product) if named and name not in named]
    if unknown:
        where = f"expression {product.expression!r}" if product.expression else "bands, masks or by_band"
        raise ConfigurationError(
            f"product {product.name}: {where}: unknown band {', '.join(map(repr, unknown))}; allowed: {', '.join(named)}"
        )
