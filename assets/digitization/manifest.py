"""The master manifest: every file of a window's batches as one Parquet table. Equal masters give equal bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from assets.digitization.masters import Master
from assets.digitization.model import PageFacts
from assets.keyed_table import write_keyed_table

MANIFEST_VERSION = "1"
"""Raise it when the bytes of a manifest of equal masters change."""

SCHEMA = pa.schema(
    [
        ("uri", pa.string()),
        ("batch", pa.string()),
        ("verdict", pa.string()),
        ("kind", pa.string()),
        ("reason", pa.string()),
        ("size_bytes", pa.int64()),
        ("sha256", pa.string()),
        ("found_sha256", pa.string()),
        ("expected_sha256", pa.string()),
        ("captured_at", pa.timestamp("us", tz="UTC")),
        ("format", pa.string()),
        ("pages", pa.int32()),
        ("width", pa.int64()),
        ("height", pa.int64()),
        ("samples", pa.int32()),
        ("bits", pa.int32()),
        ("photometric", pa.string()),
        ("compression", pa.string()),
        ("orientation", pa.int32()),
        ("icc_sha256", pa.string()),
        ("pixels_per_inch_x", pa.float64()),
        ("pixels_per_inch_y", pa.float64()),
        ("capture", pa.string()),
        ("every_page", pa.string()),
    ]
)
"""Columns of width to pixels_per_inch are the first page's; `capture` and `every_page` are JSON."""

_INCH_M = 0.0254


def write_manifest(masters: Sequence[Master], unit_key: str, path: Path) -> dict[str, Any]:
    """Write the manifest to `path` with its unit key inside; returns counts by verdict.

    After a crash: `path` is a staging name and may hold half a file; it is written again from the start.
    """
    rows = (_row(master) for master in sorted(masters, key=lambda item: item.uri))
    write_keyed_table(rows, SCHEMA, path, unit_key=unit_key, facts={"version": MANIFEST_VERSION, "masters": len(masters)})
    verdicts = [master.verdict.value for master in masters]
    return {"masters": len(masters), "verdicts": {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}}


def _row(master: Master) -> dict[str, Any]:
    row: dict[str, Any] = {
        "uri": master.uri,
        "batch": master.batch,
        "verdict": master.verdict.value,
        "kind": None if master.kind is None else master.kind.value,
        "reason": master.reason or None,
        "size_bytes": master.size_bytes,
        "sha256": master.sha256,
        "found_sha256": master.found_sha256,
        "expected_sha256": master.expected_sha256,
        "captured_at": master.captured_at,
    }
    if master.facts is None:
        return row
    row |= {
        "format": master.facts.format,
        "pages": len(master.facts.pages),
        "capture": _json(dict(master.facts.capture)),
        "every_page": _json([_page(page) for page in master.facts.pages]),
    }
    return row | (_page(master.facts.pages[0]) if master.facts.pages else {})


def _page(page: PageFacts) -> dict[str, Any]:
    resolution = page.per_metre
    return {
        "width": page.width,
        "height": page.height,
        "samples": page.samples,
        "bits": page.bits,
        "photometric": page.photometric.value,
        "compression": page.compression,
        "orientation": page.orientation,
        "icc_sha256": page.icc_sha256,
        "pixels_per_inch_x": None if resolution is None else float(resolution[0]) * _INCH_M,
        "pixels_per_inch_y": None if resolution is None else float(resolution[1]) * _INCH_M,
    }


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def read_manifest(path: Path) -> list[dict[str, Any]]:
    """The rows of a manifest, by uri. Raises `OSError`, `pyarrow.ArrowException`."""
    rows: Iterable[dict[str, Any]] = pq.read_table(path).to_pylist()
    return list(rows)
