"""Tables of what units write as rows, and of what was captured once: the same metadata as `schema`.

The promises that the database keeps by itself: one preservation event for an event identifier, one inspection record for a unit
and for a site and period, one capture for a URI.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, Text, UniqueConstraint

from resources.ledger.schema import RowId, UtcTime, metadata

preservation_events = Table(
    "preservation_events",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("event_id", String, nullable=False, unique=True),
    Column("event_type", String, nullable=False),
    Column("content_digest", String, nullable=False),
    Column("period", String),
    Column("operation", Text, nullable=False),
    Column("outcome", String, nullable=False),
    Column("detail", Text, nullable=False),
    Column("linked", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("unit_key", String(64), nullable=False),
    Column("window", String, nullable=False),
    Column("output_uri", Text, nullable=False, unique=True),
    Column("size_bytes", BigInteger, nullable=False),
    Index(None, "content_digest"),
    Index(None, "window"),
)
"""Appended facts: inserted once and never changed."""

inspection_records = Table(
    "inspection_records",
    metadata,
    Column("unit_key", String(64), primary_key=True),
    Column("site", String, nullable=False),
    Column("period", String, nullable=False),
    Column("window", String, nullable=False),
    Column("source_uri", Text, nullable=False),
    Column("content_digest", String, nullable=False),
    Column("page_count", Integer, nullable=False),
    Column("extraction_version", String, nullable=False),
    Column("revision", String, nullable=False),
    Column("fields", Text, nullable=False),
    Column("findings", Text, nullable=False),
    Column("recorded_at", UtcTime, nullable=False),
    Column("output_uri", Text, nullable=False, unique=True),
    Column("size_bytes", BigInteger, nullable=False),
    UniqueConstraint("site", "period"),
    Index(None, "window"),
)

row_history = Table(
    "row_history",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("table_name", String, nullable=False),
    Column("output_uri", Text, nullable=False),
    Column("unit_key", String(64), nullable=False),
    Column("window", String, nullable=False),
    Column("said", Text, nullable=False),
    Column("said_at", UtcTime, nullable=False),
    Column("left_at", UtcTime, nullable=False),
    Column("why", String, nullable=False),
    Index(None, "unit_key"),
    Index(None, "output_uri"),
)
"""Rows that another took the place of, or that were set aside because they differed from what was recorded."""

captures = Table(
    "captures",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("uri", Text, nullable=False, unique=True),
    Column("sha256", String(64), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("mtime_ns", BigInteger, nullable=False),
    Column("batch", String, nullable=False),
    Column("window", String, nullable=False),
    Column("captured_at", UtcTime, nullable=False),
    Column("facts", Text, nullable=False),
    Index(None, "sha256"),
    Index(None, "window"),
)
"""Files as they were when they were taken in. Never changed: `pins` follow their file, captures do not. `id` is their order."""

observations = Table(
    "observations",
    metadata,
    Column("uri", Text, primary_key=True),
    Column("token", Text, nullable=False),
    Column("digest", String, nullable=False),
    Column("seen_at", UtcTime, nullable=False),
    sqlite_with_rowid=False,
)
"""The version token (ETag, or time and size) under which the content of a URI was last seen, with the content's digest."""

OUTPUT_TABLES: Mapping[str, Table] = {table.name: table for table in (preservation_events, inspection_records)}
"""Tables whose rows are outputs of units, by name."""
