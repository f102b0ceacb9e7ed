"""The scene manifest: every scene of a batch window as one GeoParquet table, and back.

One row per scene in the order of scene ids; bands as JSON with sorted keys. Equal scenes give equal bytes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from assets.scenes.model import BandRef, Scene, SceneVerdict
from resources.errors import ErrorKind, UnitRejected

MANIFEST_VERSION = "1"
"""Raise it when the bytes of a manifest of equal scenes change."""

MANIFEST_CRS = "OGC:CRS84"
METADATA_KEY = b"tilewright"
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


def write_manifest(scenes: Sequence[Scene], unit_key: str, path: Path) -> dict[str, Any]:
    """Write the manifest of `scenes` to `path` as GeoParquet with its unit key inside; returns counts by verdict.

    After a crash: `path` is a staging name and may hold half a file; it is written again from the start.
    """
    buffer = io.BytesIO()
    manifest_frame(scenes).to_parquet(buffer, index=False, compression="zstd")
    table = pq.read_table(buffer)
    facts = {"unit_key": unit_key, "version": MANIFEST_VERSION, "scenes": len(scenes)}
    metadata = {
        b"geo": (table.schema.metadata or {})[b"geo"],
        METADATA_KEY: json.dumps(facts, sort_keys=True, separators=(",", ":")).encode("ascii"),
    }
    pq.write_table(table.replace_schema_metadata(metadata), path, compression="zstd")
    verdicts = [scene.verdict.value for scene in scenes]
    return {"scenes": len(scenes), "verdicts": {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}}


def validate_manifest(unit_key: str, path: Path) -> None:
    """Open a staged manifest again. Raises `UnitRejected` (INVALID_OUTPUT, no retry) if it is not the one that was planned."""
    try:
        scenes = read_manifest(path)
        facts = json.loads((pq.read_schema(path).metadata or {}).get(METADATA_KEY, b"{}"))
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise UnitRejected(f"{path.name}: manifest: cannot be read back: {error}", kind=ErrorKind.INVALID_OUTPUT) from error
    expected = {"unit_key": unit_key, "scenes": len(scenes)}
    found = {name: facts.get(name) for name in expected}
    if found != expected:
        raise UnitRejected(f"{path.name}: manifest: found {found}; allowed: {expected}", kind=ErrorKind.INVALID_OUTPUT)


def read_manifest(path: Path) -> list[Scene]:
    """The scenes of a manifest file, ordered by scene id. Raises `OSError`, and `ValueError` or `KeyError` for another file."""
    return scenes_from_frame(gpd.read_parquet(path))


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
