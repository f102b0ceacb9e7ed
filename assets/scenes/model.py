"""What is known of a scene: its bands, where it lies, when it was taken, and whether it may be used.

Belongs here: values only, picklable and turned into plain JSON and back without loss. Nothing here opens a raster. File names are
held as uris (`assets.sources.names`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import shapely
from shapely.geometry.base import BaseGeometry

from assets.sources.names import Stranger, path_of
from resources.errors import ErrorKind

Affine6 = tuple[float, float, float, float, float, float]
"""`(a, b, c, d, e, f)` of `affine.Affine`: pixel (column, row) to CRS coordinates."""


class SceneVerdict(StrEnum):
    """What happens to a scene now. Only ACCEPTED scenes reach tiles; every other one is listed with its reason."""

    ACCEPTED = "ACCEPTED"
    REJECTED = "REJECTED"
    WAITING = "WAITING"
    UNSETTLED = "UNSETTLED"
    UNDATED = "UNDATED"
    BEFORE_FIRST_WINDOW = "BEFORE_FIRST_WINDOW"
    AFTER_LAST_WINDOW = "AFTER_LAST_WINDOW"
    IN_FUTURE = "IN_FUTURE"
    OUTSIDE_AREA = "OUTSIDE_AREA"


class MaskSource(StrEnum):
    """What says which pixels of a band are valid, strongest first: GDAL asks in this order too."""

    PER_DATASET = "per_dataset"
    NODATA = "nodata"
    ALPHA = "alpha"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class BandRef:
    """One band of a scene: a named, 1-based `index` into the file at `uri` (see `band_path`).

    `digest` is a sha256 (64 hex): the file's own, or one over it, its sidecars and what a STAC item says of scale.
    `size_bytes`, `mtime_ns` and `inode` are the main file's, for `file_changed`. `nodata` may be NaN. `crs` is an authority
    code or WKT. `alpha_index` is the file's alpha band, if it has one.
    """

    name: str
    uri: str
    index: int
    digest: str
    size_bytes: int
    mtime_ns: int
    inode: int
    dtype: str
    nodata: float | None
    width: int
    height: int
    transform: Affine6
    crs: str
    scale: float = 1.0
    offset: float = 0.0
    mask: MaskSource = MaskSource.NONE
    alpha_index: int | None = None
    is_palette: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; a nodata that JSON cannot hold is named as text."""
        plain = asdict(self)
        plain["transform"] = list(self.transform)
        plain["mask"] = self.mask.value
        if self.nodata is not None and not math.isfinite(self.nodata):
            plain["nodata"] = str(self.nodata)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> BandRef:
        """The band that `to_json` wrote; keys of later versions are ignored."""
        known = {name: plain[name] for name in _BAND_FIELDS if name in plain}
        a, b, c, d, e, f = (float(value) for value in plain["transform"])
        known["transform"] = (a, b, c, d, e, f)
        known["mask"] = MaskSource(plain.get("mask", MaskSource.NONE))
        known["nodata"] = None if plain["nodata"] is None else float(plain["nodata"])
        return cls(**known)


_BAND_FIELDS = tuple(entry.name for entry in fields(BandRef))


@dataclass(frozen=True, slots=True)
class Scene:
    """One scene of the source with everything that was found out about it.

    `digest` (64 hex) covers the bands that products ask for: content, sidecars, place in the file. It is empty for a scene
    whose files were not read (still being written, waiting for bands, or outside every window). `uris` are all its files.
    `acquired` is UTC. `footprint` is WGS 84 `(longitude, latitude)`, split at the antimeridian; None when the scene was not
    opened. `window` is the batch window's key, None when no window holds it.
    """

    scene_id: str
    verdict: SceneVerdict
    digest: str
    acquired: datetime | None = None
    window: str | None = None
    bands: Mapping[str, BandRef] = field(default_factory=dict)
    crs: str = ""
    footprint: BaseGeometry | None = None
    uris: tuple[str, ...] = ()
    size_bytes: int = 0
    kind: ErrorKind | None = None
    reason: str = ""

    @property
    def is_accepted(self) -> bool:
        """The scene may be used for tiles."""
        return self.verdict is SceneVerdict.ACCEPTED

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, the footprint as WKB in hex."""
        return {
            "scene_id": self.scene_id,
            "verdict": self.verdict.value,
            "digest": self.digest,
            "acquired": None if self.acquired is None else self.acquired.isoformat(),
            "window": self.window,
            "bands": {name: band.to_json() for name, band in self.bands.items()},
            "crs": self.crs,
            "footprint": None if self.footprint is None else shapely.to_wkb(self.footprint, hex=True),
            "uris": list(self.uris),
            "size_bytes": self.size_bytes,
            "kind": None if self.kind is None else self.kind.value,
            "reason": self.reason,
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Scene:
        """The scene that `to_json` wrote."""
        return cls(
            scene_id=plain["scene_id"],
            verdict=SceneVerdict(plain["verdict"]),
            digest=plain["digest"],
            acquired=None if plain["acquired"] is None else datetime.fromisoformat(plain["acquired"]),
            window=plain["window"],
            bands={name: BandRef.from_json(band) for name, band in plain["bands"].items()},
            crs=plain["crs"],
            footprint=None if plain["footprint"] is None else shapely.from_wkb(plain["footprint"]),
            uris=tuple(plain["uris"]),
            size_bytes=plain["size_bytes"],
            kind=None if plain["kind"] is None else ErrorKind(plain["kind"]),
            reason=plain["reason"],
        )


@dataclass(frozen=True, slots=True)
class SceneListing:
    """Everything that one look at the source found, in a stable order. Nothing that was seen is left out."""

    scenes: tuple[Scene, ...]
    strangers: tuple[Stranger, ...] = ()
    files_seen: int = 0
    files_hashed: int = 0
    files_opened: int = 0

    def with_verdict(self, *verdicts: SceneVerdict) -> tuple[Scene, ...]:
        """The scenes that stand so."""
        return tuple(scene for scene in self.scenes if scene.verdict in verdicts)

    @property
    def accepted(self) -> tuple[Scene, ...]:
        """The scenes that may be used for tiles."""
        return self.with_verdict(SceneVerdict.ACCEPTED)


def band_path(band: BandRef, source_dir: Path | str) -> Path:
    """Where the file of a band lies."""
    return path_of(band.uri, source_dir)


def file_changed(band: BandRef, source_dir: Path | str) -> bool:
    """Whether the band's file is gone or differs (size, mtime, inode) from what was pinned. Costs one stat."""
    try:
        found = band_path(band, source_dir).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    return (found.st_size, found.st_mtime_ns, found.st_ino) != (band.size_bytes, band.mtime_ns, band.inode)
