"""Tables of the ledger: SQLAlchemy Core, the same on SQLite and PostgreSQL.

Belongs here: columns, constraints and indices; those of row outputs and captures are in `schema_rows`. Every promise the
database can keep by itself is a constraint: one row for a unit key, one open dead letter for a subject, one COMPLETE unit for an
output URI, one alert for a fact.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)

HEAD_REVISION = "0002"
"""The newest migration. A ledger that says this needs no migration, and alembic need not be imported."""

UNSETTLED_SQL = "state IN ('PENDING', 'RUNNING', 'FAILED')"


@lru_cache(maxsize=1024)
def _iso_text(value: datetime) -> str:
    # one group commit binds one time hundreds of times
    return value.astimezone(UTC).isoformat(timespec="microseconds")


class UtcTime(TypeDecorator[datetime]):
    """A UTC time, exact to the microsecond: ISO text that sorts in time order on SQLite, `timestamptz` on PostgreSQL."""

    impl = String(32)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(DateTime(timezone=True))
        return dialect.type_descriptor(String(32))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"the ledger keeps times with a zone, found {value!r}")
        return value if dialect.name == "postgresql" else _iso_text(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - SQLAlchemy's signature
        if value is None:
            return None
        found = datetime.fromisoformat(value) if isinstance(value, str) else value
        return found.astimezone(UTC)


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

RowId = BigInteger().with_variant(Integer(), "sqlite")  # only INTEGER PRIMARY KEY is SQLite's own row number

facts = Table("facts", metadata, Column("name", String, primary_key=True), Column("value", Text, nullable=False))
"""Single facts by name: the store's identity, the last request number."""

pins = Table(
    "pins",
    metadata,
    Column("uri", Text, primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("mtime_ns", BigInteger, nullable=False),
    Column("inode", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("first_seen", UtcTime, nullable=False),
    sqlite_with_rowid=False,
)

inspections = Table("inspections", metadata, Column("digest", String, primary_key=True), Column("record", Text, nullable=False))

partitions = Table(
    "partitions",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("asset", String, nullable=False),
    Column("partition", String, nullable=False),
    Column("window", String),
    Column("tile", String),
    Column("planned_at", UtcTime),
    Column("fingerprint", String(64)),
    Column("fence", BigInteger, nullable=False, server_default="0"),
    Column("planned_units", Integer, nullable=False, server_default="0"),
    UniqueConstraint("asset", "partition"),
    Index(None, "asset", "window"),
)
"""A row is never deleted: its id is the byte or number that leases lock. `planned_at` is empty where nothing is planned."""

units = Table(
    "units",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("key", String(64), nullable=False, unique=True),
    Column("revision", String, nullable=False),
    Column("asset", String, nullable=False),
    Column("product", String, nullable=False),
    Column("window", String, nullable=False),
    Column("tile", String),
    Column("output_uri", Text, nullable=False),
    Column("source", String, nullable=False),
    Column("inputs", Text, nullable=False),
    Column("spec", Text, nullable=False),
    Column("state", String(12), nullable=False),
    Column("state_before", String(12)),  # what a unit that left the plan returns to
    Column("attempts", Integer, nullable=False, server_default="0"),  # counted, in this round
    Column("round", Integer, nullable=False, server_default="1"),
    Column("attempt", Integer, nullable=False, server_default="0"),  # number of the last one, over all rounds
    Column("run_id", String),
    Column("error_kind", String),
    Column("reason", Text),
    Column("retry_at", UtcTime),
    Column("blocked_by", String),  # digest of the rejected input, where that is why
    Column("suspect", Boolean, nullable=False, server_default=text("false")),
    Column("output_digest", String(64)),
    Column("output_size", BigInteger),
    Column("metrics", Text),
    Column("completed_at", UtcTime),
    Column("planned_at", UtcTime, nullable=False),
    Column("left_at", UtcTime),
    Index(None, "asset", "window", "product", "tile"),
    Index(None, "output_uri"),
)
Index(
    "uq_units_output_of_complete",
    units.c.output_uri,
    unique=True,
    sqlite_where=text("state = 'COMPLETE'"),
    postgresql_where=text("state = 'COMPLETE'"),
)
Index("ix_units_unsettled", units.c.asset, units.c.state, sqlite_where=text(UNSETTLED_SQL), postgresql_where=text(UNSETTLED_SQL))
Index(
    "ix_units_blocked_by",
    units.c.blocked_by,
    sqlite_where=text("blocked_by IS NOT NULL"),
    postgresql_where=text("blocked_by IS NOT NULL"),
)

membership = Table(
    "membership",
    metadata,
    Column("partition_id", RowId, ForeignKey("partitions.id"), primary_key=True),
    Column("unit_id", RowId, ForeignKey("units.id"), primary_key=True),
    Index(None, "unit_id"),
    sqlite_with_rowid=False,
)

leavers = Table("leavers", metadata, Column("unit_id", RowId, ForeignKey("units.id"), primary_key=True), sqlite_with_rowid=False)
"""Units taken out of a partition and not yet looked at again: emptied at the end of every plan, also after a crash."""

attempts = Table(
    "attempts",
    metadata,
    Column("unit_id", RowId, ForeignKey("units.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("round", Integer, nullable=False),
    Column("run_id", String, nullable=False),
    Column("is_alone", Boolean, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("ended_at", UtcTime),
    Column("outcome", String(12)),
    Column("is_counted", Boolean),
    Column("verdict", String(12)),
    Column("error_kind", String),
    Column("reason", Text),
    Column("duration_s", Float),
    Index(None, "run_id"),
    sqlite_with_rowid=False,
)

skips = Table(
    "skips",
    metadata,
    Column("run_number", RowId, ForeignKey("runs.number"), primary_key=True),
    Column("unit_id", RowId, ForeignKey("units.id"), primary_key=True),
    Column("at", UtcTime, nullable=False),
    Index(None, "unit_id"),
    sqlite_with_rowid=False,
)

notes = Table(
    "notes",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("unit_id", RowId, ForeignKey("units.id"), nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("what", String, nullable=False),
    Column("error_kind", String),
    Column("reason", Text),
    Column("who", String),
    Index(None, "unit_id"),
)
"""What happened to a unit beside attempts and skips: adopted, returned, replayed, dismissed, superseded, restored."""

rejected_inputs = Table(
    "rejected_inputs",
    metadata,
    Column("digest", String, primary_key=True),
    Column("name", Text, nullable=False),
    Column("kind", String, nullable=False),
    Column("reason", Text, nullable=False),
    Column("window", String),
    Column("rejected_at", UtcTime, nullable=False),
    Column("lifted_at", UtcTime),
    Column("round", Integer, nullable=False, server_default="1"),
)

dead_letters = Table(
    "dead_letters",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("subject", String(8), nullable=False),
    Column("subject_key", String, nullable=False),
    Column("name", Text, nullable=False),
    Column("asset", String),
    Column("product", String),
    Column("window", String),
    Column("tile", String),
    Column("kind", String, nullable=False),
    Column("verdict", String(12), nullable=False),
    Column("reason", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("first_at", UtcTime, nullable=False),
    Column("last_at", UtcTime, nullable=False),
    Column("audit_hash", String(64), nullable=False),
    Column("round", Integer, nullable=False),
    Column("status", String(12), nullable=False),
    Column("closed_at", UtcTime),
    Column("who", String),
    Column("why", Text),
    Index(None, "status", "window"),
    Index(None, "subject_key"),
)
Index(
    "uq_dead_letters_open",
    dead_letters.c.subject,
    dead_letters.c.subject_key,
    unique=True,
    sqlite_where=text("status = 'OPEN'"),
    postgresql_where=text("status = 'OPEN'"),
)

runs = Table(
    "runs",
    metadata,
    Column("number", RowId, primary_key=True),
    Column("run_id", String, nullable=False, unique=True),
    Column("asset", String, nullable=False),
    Column("partitions", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("host", String, nullable=False),
    Column("boot_id", String, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("heartbeat_at", UtcTime, nullable=False),
    Column("ended_at", UtcTime),
    Column("outcome", String),
    Column("summary", Text),
    Column("requested_by", String),
)

lease_holders = Table(
    "lease_holders",
    metadata,
    Column("partition_id", RowId, ForeignKey("partitions.id"), primary_key=True),
    Column("run_id", String, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("host", String, nullable=False),
    Column("since", UtcTime, nullable=False),
    Index(None, "run_id"),
)
"""Who took a lease last. For people: the lease itself is the lock, and a row may outlive it."""

requests = Table(
    "requests",
    metadata,
    Column("partition_id", RowId, ForeignKey("partitions.id"), primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("run_key", String, nullable=False),
    Column("requested_at", UtcTime, nullable=False),
    Column("run_id", String),
    Column("state", String(12), nullable=False),
    Column("unsettled", Integer, nullable=False, server_default="0"),  # what was to be done when it was made
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("fruitless", Integer, nullable=False, server_default="0"),  # requests in a row that changed neither
)

markers = Table(
    "markers",
    metadata,
    Column("asset", String, primary_key=True),
    Column("window", String, primary_key=True),
    Column("manifest_fingerprint", String, nullable=False),
    Column("config_fingerprint", String, nullable=False),
    Column("at", UtcTime, nullable=False),
)
"""Processed markers: a window that was wholly settled under these fingerprints."""

alerts = Table(
    "alerts",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("fingerprint", String, nullable=False, unique=True),
    Column("title", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("severity", String, nullable=False),
    Column("is_standing", Boolean, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("sent_at", UtcTime),
    Column("times_sent", Integer, nullable=False, server_default="0"),
    Column("resolved_at", UtcTime),
    Index(None, "resolved_at", "sent_at"),
)
"""The outbox. `sent_at`: since when every channel has the alert; a standing one is told again after a while."""

alert_deliveries = Table(
    "alert_deliveries",
    metadata,
    Column("alert_id", BigInteger, primary_key=True, autoincrement=False),
    Column("channel", String, primary_key=True),
    Column("at", UtcTime, nullable=False),
    sqlite_with_rowid=False,
)
"""When a channel last took an alert, so that one that is down neither hides it from the others nor doubles it there."""
