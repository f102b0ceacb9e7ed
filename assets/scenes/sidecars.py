"""Files beside a raster that decide its pixels or its place, by the names GDAL looks for."""

from __future__ import annotations

from collections.abc import Collection

RASTER_SIDECARS = (".ovr", ".msk", ".msk.ovr", ".ovr.msk", ".OVR", ".MSK")
"""Appended to the file's name; GDAL opens these as rasters."""

_APPENDED = (*RASTER_SIDECARS, ".aux.xml", ".AUX.XML")
_INSTEAD = (".wld", ".tab", ".rpb", "_rpc.txt")


def sidecar_names(name: str, *, among: Collection[str]) -> list[str]:
    """Names in the same folder (`among`) that belong to the raster `name`, sorted: overviews, masks, metadata, world files."""
    found = {name + suffix for suffix in _APPENDED if name + suffix in among}
    stem, dot, extension = name.rpartition(".")
    if dot and stem and extension:
        for suffix in (*_world_suffixes(extension), *_INSTEAD):
            found |= {stem + form for form in (suffix, suffix.upper()) if stem + form in among}
    return sorted(found)


def _world_suffixes(extension: str) -> tuple[str, ...]:
    low = extension.lower()
    return f".{low[0]}{low[-1]}w", f".{low}w"
