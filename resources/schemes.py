"""Schemes of object stores, and the package that teaches each to fsspec.

Nothing else is let through: fsspec also knows schemes that run programs.
"""

from __future__ import annotations

STORES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "abfss": "adlfs"}


def is_object_address(uri: str) -> bool:
    """Whether `uri` is an address in an object store and no path of this machine."""
    scheme, separator, _ = uri.partition("://")
    return bool(separator) and scheme.lower() in STORES
