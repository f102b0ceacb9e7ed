"""Row outputs, captures and observations; the table of events that nothing ever wrote to gives way to `preservation_events`."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from resources.ledger.schema import UtcTime

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables as they were in the second version. Never changed: a change of the schema is a migration of its own."""
    op.drop_table("events")
    op.create_table(
        "preservation_events",
        sa.Column("id", ID, nullable=False),
        sa.Column("event_id", sa.String(), nullable=False),
        sa.Column("event_type", sa.String(), nullable=False),
        sa.Column("content_digest", sa.String(), nullable=False),
        sa.Column("period", sa.String(), nullable=True),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("linked", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("unit_key", sa.String(length=64), nullable=False),
        sa.Column("window", sa.String(), nullable=False),
        sa.Column("output_uri", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_preservation_events")),
        sa.UniqueConstraint("event_id", name=op.f("uq_preservation_events_event_id")),
        sa.UniqueConstraint("output_uri", name=op.f("uq_preservation_events_output_uri")),
    )
    op.create_index(op.f("ix_preservation_events_content_digest"), "preservation_events", ["content_digest"], unique=False)
    op.create_index(op.f("ix_preservation_events_window"), "preservation_events", ["window"], unique=False)
    op.create_table(
        "inspection_records",
        sa.Column("unit_key", sa.String(length=64), nullable=False),
        sa.Column("site", sa.String(), nullable=False),
        sa.Column("period", sa.String(), nullable=False),
        sa.Column("window", sa.String(), nullable=False),
        sa.Column("source_uri", sa.Text(), nullable=False),
        sa.Column("content_digest", sa.String(), nullable=False),
        sa.Column("page_count", sa.Integer(), nullable=False),
        sa.Column("extraction_version", sa.String(), nullable=False),
        sa.Column("revision", sa.String(), nullable=False),
        sa.Column("fields", sa.Text(), nullable=False),
        sa.Column("findings", sa.Text(), nullable=False),
        sa.Column("recorded_at", UtcTime(), nullable=False),
        sa.Column("output_uri", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("unit_key", name=op.f("pk_inspection_records")),
        sa.UniqueConstraint("output_uri", name=op.f("uq_inspection_records_output_uri")),
        sa.UniqueConstraint("site", "period", name=op.f("uq_inspection_records_site_period")),
    )
    op.create_index(op.f("ix_inspection_records_window"), "inspection_records", ["window"], unique=False)
    op.create_table(
        "row_history",
        sa.Column("id", ID, nullable=False),
        sa.Column("table_name", sa.String(), nullable=False),
        sa.Column("output_uri", sa.Text(), nullable=False),
        sa.Column("unit_key", sa.String(length=64), nullable=False),
        sa.Column("window", sa.String(), nullable=False),
        sa.Column("said", sa.Text(), nullable=False),
        sa.Column("said_at", UtcTime(), nullable=False),
        sa.Column("left_at", UtcTime(), nullable=False),
        sa.Column("why", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_row_history")),
    )
    op.create_index(op.f("ix_row_history_unit_key"), "row_history", ["unit_key"], unique=False)
    op.create_index(op.f("ix_row_history_output_uri"), "row_history", ["output_uri"], unique=False)
    op.create_table(
        "captures",
        sa.Column("id", ID, nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("mtime_ns", sa.BigInteger(), nullable=False),
        sa.Column("batch", sa.String(), nullable=False),
        sa.Column("window", sa.String(), nullable=False),
        sa.Column("captured_at", UtcTime(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_captures")),
        sa.UniqueConstraint("uri", name=op.f("uq_captures_uri")),
    )
    op.create_index(op.f("ix_captures_sha256"), "captures", ["sha256"], unique=False)
    op.create_index(op.f("ix_captures_window"), "captures", ["window"], unique=False)
    op.create_table(
        "observations",
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("seen_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("uri", name=op.f("pk_observations")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Back to the first version; what the newer tables held is lost."""
    for name in ("observations", "captures", "row_history", "inspection_records", "preservation_events"):
        op.drop_table(name)
    op.create_table(
        "events",
        sa.Column("id", ID, nullable=False),
        sa.Column("event_key", sa.String(), nullable=False),
        sa.Column("unit_key", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sa.UniqueConstraint("event_key", name=op.f("uq_events_event_key")),
    )
    op.create_index(op.f("ix_events_unit_key"), "events", ["unit_key"], unique=False)
