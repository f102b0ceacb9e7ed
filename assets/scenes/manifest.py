"""The scene manifest: every scene of a batch window as one GeoParquet table, and back.

One row per scene in the order of scene ids; bands as JSON with sorted keys. Equal scenes give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import geopandas as gpd
import numpy as np
import pandas as pd

from assets.scenes.model import BandRef, Scene, SceneVerdict
from resources.errors import ErrorKind

MANIFEST_CRS = "OGC:CRS84"
COLUMNS = (
    "scene_id",
    "acquired",
    "window",
    "digest",
    "crs",
    "bands",
    "dtype",
    "nodata",
    "size_bytes",
    "uris",
    "verdict",
    "kind",
    "reason",
)


def manifest_frame(scenes: Sequence[Scene]) -> gpd.GeoDataFrame:
    """Scenes as a frame in WGS 84, one row each, ordered by scene id: columns `COLUMNS`, and the footprint as `geometry`."""
    ordered = sorted(scenes, key=lambda scene: scene.scene_id)
    columns: dict[str, object] = {
        "scene_id": _texts([scene.scene_id for scene in ordered]),
        "acquired": pd.Series(pd.to_datetime([scene.acquired for scene in ordered], utc=True), dtype="datetime64[us, UTC]"),
        "window": _texts([scene.window for scene in ordered]),
        "digest": _texts([scene.digest for scene in ordered]),
        "crs": _texts([scene.crs for scene in ordered]),
        "bands": _texts([_bands_json(scene) for scene in ordered]),
        "dtype": _texts([_agreed([band.dtype for band in scene.bands.values()]) for scene in ordered]),
        "nodata": _texts([_agreed([str(band.nodata) for band in scene.bands.values()]) for scene in ordered]),
        "size_bytes": pd.Series([scene.size_bytes for scene in ordered], dtype="int64"),
        "uris": _texts([json.dumps(list(scene.uris), ensure_ascii=False) for scene in ordered]),
        "verdict": _texts([scene.verdict.value for scene in ordered]),
        "kind": _texts([None if scene.kind is None else scene.kind.value for scene in ordered]),
        "reason": _texts([scene.reason for scene in ordered]),
    }
    shapes = gpd.GeoSeries([scene.footprint for scene in ordered], crs=MANIFEST_CRS)
    return gpd.GeoDataFrame(columns, geometry=shapes, crs=MANIFEST_CRS)


def scenes_from_frame(frame: gpd.GeoDataFrame) -> list[Scene]:
    """The scenes that `manifest_frame` wrote, in the order of its rows. Raises `KeyError` for a frame that is no manifest."""
    scenes = []
    for row in frame.to_dict("records"):
        acquired = row["acquired"]
        geometry = row["geometry"]
        scenes.append(
            Scene(
                scene_id=row["scene_id"],
                verdict=SceneVerdict(row["verdict"]),
                digest=row["digest"],
                acquired=None if pd.isna(acquired) else acquired.to_pydatetime(),
                window=_or_none(row["window"]),
                bands={name: BandRef.from_json(band) for name, band in json.loads(row["bands"]).items()},
                crs=row["crs"],
                footprint=geometry,
                uris=tuple(json.loads(row["uris"])),
                size_bytes=int(row["size_bytes"]),
                kind=None if _or_none(row["kind"]) is None else ErrorKind(row["kind"]),
                reason=row["reason"],
            )
        )
    return scenes


def _bands_json(scene: Scene) -> str:
    plain = {name: band.to_json() for name, band in scene.bands.items()}
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _texts(values: Sequence[str | None]) -> pd.Series:
    return pd.Series(np.array(values, dtype=object), dtype="str" if pd.__version__ >= "3" else "object")


def _or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _agreed(values: Sequence[str]) -> str | None:
    """The value all bands share, or all of them in the order of bands."""
    distinct = list(dict.fromkeys(values))
    return None if not distinct else distinct[0] if len(distinct) == 1 else ",".join(values)
