"""STAC items that lie beside the files they describe: which file holds which band, and when the scene was acquired.

Items come from outside: their size is bounded, and an href that names another machine or leaves the source folder is refused, not
followed. Format: STAC item 1.0 and 1.1 (`eo:bands`, `raster:bands`, `bands`).
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from assets.sources.names import uri_of

ITEM_BYTES_MOST = 4 << 20
_RASTER_NAMES = (".tif", ".tiff", ".jp2")
_RASTER_TYPES = ("tiff", "jp2")


@dataclass(frozen=True, slots=True)
class ItemBand:
    """One band an asset describes; `scale` and `offset` where the item gives them."""

    name: str | None
    scale: float | None = None
    offset: float | None = None


@dataclass(frozen=True, slots=True)
class ItemAsset:
    """One asset of an item."""

    key: str
    href: str
    bands: tuple[ItemBand, ...]
    is_raster: bool
    is_picture: bool


@dataclass(frozen=True, slots=True)
class Item:
    """What a STAC item says. `problem` is set when it cannot be used: field, found, allowed."""

    item_id: str
    acquired: datetime | None = None
    assets: tuple[ItemAsset, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class BandPlace:
    """Where an item says that a band lies."""

    name: str
    href: str
    index: int
    scale: float | None = None
    offset: float | None = None


def read_item(content: bytes, *, fallback_id: str) -> Item | None:
    """The item in a `.json` file; None when it is some other document. Raises nothing: what is wrong is the item's `problem`."""
    if len(content) > ITEM_BYTES_MOST:
        return None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("type") != "Feature" or "stac_version" not in document:
        return None
    item_id = document.get("id")
    if not isinstance(item_id, str) or not item_id:
        return Item(fallback_id, problem=f"id: found {_short(item_id)}; allowed: text")
    properties, assets = document.get("properties"), document.get("assets")
    if not isinstance(properties, dict) or not isinstance(assets, dict):
        return Item(uri_of(item_id), problem="properties and assets: found something else; allowed: two JSON objects")
    try:
        acquired = _acquired(properties)
        return Item(uri_of(item_id), acquired, tuple(_asset(key, value) for key, value in sorted(assets.items())))
    except _UnusableError as error:
        return Item(uri_of(item_id), problem=str(error))


class _UnusableError(ValueError):
    """A part of an item is not what the format says."""


def _acquired(properties: Mapping[str, Any]) -> datetime | None:
    for name in ("datetime", "start_datetime"):
        text = properties.get(name)
        if text is None:
            continue
        try:
            moment = datetime.fromisoformat(text)
        except (TypeError, ValueError):
            raise _UnusableError(f"properties.{name}: found {_short(text)}; allowed: a time by RFC 3339") from None
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return None


def _asset(key: str, value: Any) -> ItemAsset:
    href = value.get("href") if isinstance(value, dict) else None
    if not isinstance(href, str) or not href or "\0" in href:
        raise _UnusableError(f"assets.{_short(key)}.href: found {_short(href)}; allowed: a path relative to the item")
    described = value.get("bands") or value.get("eo:bands") or value.get("raster:bands") or []
    rasters = value.get("raster:bands") or described
    media, roles = str(value.get("type", "")), value.get("roles") or []
    return ItemAsset(
        key=key,
        href=href,
        bands=tuple(_item_band(band, rasters[i] if i < len(rasters) else {}) for i, band in enumerate(_dicts(described))),
        is_raster=any(word in media for word in _RASTER_TYPES) or href.lower().endswith(_RASTER_NAMES),
        is_picture=any(role in ("thumbnail", "overview", "visual") for role in roles if isinstance(role, str)),
    )


def _dicts(values: Any) -> list[Mapping[str, Any]]:
    return [value if isinstance(value, dict) else {} for value in values] if isinstance(values, list) else []


def _item_band(described: Mapping[str, Any], raster: Any) -> ItemBand:
    source = raster if isinstance(raster, dict) else {}
    name = described.get("name")
    return ItemBand(
        name=name if isinstance(name, str) and name else None,
        scale=_number(source.get("scale", source.get("raster:scale"))),
        offset=_number(source.get("offset", source.get("raster:offset"))),
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _short(value: object) -> str:
    return repr(value) if len(repr(value)) <= 80 else repr(value)[:77] + "..."


def bands_of(item: Item, required: Collection[str]) -> list[BandPlace]:
    """Where the bands lie: the required ones that the item has, or all that it has when none is required.

    A name is an asset's key first; else a band that an asset describes, in a file of its own before one of several.
    """
    if not required:
        return _all_bands(item.assets)
    places = []
    for name in sorted(required):
        asset = next((asset for asset in item.assets if asset.key == name), None)
        if asset is not None:
            places.append(_place(name, asset, 0))
            continue
        described = [(asset, i) for asset in item.assets for i, band in enumerate(asset.bands) if band.name == name]
        described.sort(key=lambda found: (found[0].is_picture, len(found[0].bands), found[0].key))
        if described:
            places.append(_place(name, *described[0]))
    return places


def _all_bands(assets: Sequence[ItemAsset]) -> list[BandPlace]:
    places: dict[str, BandPlace] = {}
    for asset in assets:
        if not asset.is_raster or asset.is_picture:
            continue
        if len(asset.bands) <= 1:
            places.setdefault(asset.key, _place(asset.key, asset, 0))
        for i, band in enumerate(asset.bands if len(asset.bands) > 1 else ()):
            name = band.name or f"{asset.key}{i + 1}"
            places.setdefault(name, _place(name, asset, i))
    return [places[name] for name in sorted(places)]


def _place(name: str, asset: ItemAsset, index: int) -> BandPlace:
    band = asset.bands[index] if index < len(asset.bands) else ItemBand(None)
    return BandPlace(name, asset.href, index + 1, band.scale, band.offset)


def local_path(href: str, *, folder: str, source_dir: str) -> tuple[str, ...]:
    """Paths below the source folder that an href may mean, likeliest first; empty when it means none.

    `folder` is the item's own folder below `source_dir`. An href is an address, so `%20` may stand for a space.
    """
    if href.startswith("file://"):
        split = urlsplit(href)
        href = unquote(split.path) if split.netloc in ("", "localhost") else "//elsewhere"
    elif re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", href) or href.startswith("//"):
        return ()
    found = []
    for form in dict.fromkeys((href, unquote(href))):
        base = form
        if form.startswith("/"):
            root = source_dir.rstrip("/") + "/"
            if not posixpath.normpath(form).startswith(root):
                return ()
            base = posixpath.normpath(form)[len(root) :]
        else:
            base = posixpath.normpath(posixpath.join(folder, form))
        if base in ("", ".", "..") or base.startswith(("../", "/")):
            return ()  # whichever way the href is read
        found.append(base)
    return tuple(found)
