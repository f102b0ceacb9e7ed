"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from resources.ledger.schema import UtcTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables as they were in the first version. Never changed: a change of the schema is a migration of its own."""
    op.create_table(
        "alert_deliveries",
        sa.Column("alert_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("alert_id", "channel", name=op.f("pk_alert_deliveries")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "alerts",
        sa.Column("id", ID, nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("severity", sa.String(), nullable=False),
        sa.Column("is_standing", sa.Boolean(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("sent_at", UtcTime(), nullable=True),
        sa.Column("times_sent", sa.Integer(), server_default="0", nullable=False),
        sa.Column("resolved_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
        sa.UniqueConstraint("fingerprint", name=op.f("uq_alerts_fingerprint")),
    )
    op.create_index(op.f("ix_alerts_resolved_at_sent_at"), "alerts", ["resolved_at", "sent_at"], unique=False)
    op.create_table(
        "dead_letters",
        sa.Column("id", ID, nullable=False),
        sa.Column("subject", sa.String(length=8), nullable=False),
        sa.Column("subject_key", sa.String(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("asset", sa.String(), nullable=True),
        sa.Column("product", sa.String(), nullable=True),
        sa.Column("window", sa.String(), nullable=True),
        sa.Column("tile", sa.String(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("verdict", sa.String(length=12), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("first_at", UtcTime(), nullable=False),
        sa.Column("last_at", UtcTime(), nullable=False),
        sa.Column("audit_hash", sa.String(length=64), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=12), nullable=False),
        sa.Column("closed_at", UtcTime(), nullable=True),
        sa.Column("who", sa.String(), nullable=True),
        sa.Column("why", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dead_letters")),
    )
    op.create_index(op.f("ix_dead_letters_status_window"), "dead_letters", ["status", "window"], unique=False)
    op.create_index(op.f("ix_dead_letters_subject_key"), "dead_letters", ["subject_key"], unique=False)
    op.create_index(
        "uq_dead_letters_open",
        "dead_letters",
        ["subject", "subject_key"],
        unique=True,
        sqlite_where=sa.text("status = 'OPEN'"),
        postgresql_where=sa.text("status = 'OPEN'"),
    )
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
    op.create_table(
        "facts",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_facts")),
    )
    op.create_table(
        "inspections",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_inspections")),
    )
    op.create_table(
        "markers",
        sa.Column("asset", sa.String(), nullable=False),
        sa.Column("window", sa.String(), nullable=False),
        sa.Column("manifest_fingerprint", sa.String(), nullable=False),
        sa.Column("config_fingerprint", sa.String(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("asset", "window", name=op.f("pk_markers")),
    )
    op.create_table(
        "partitions",
        sa.Column("id", ID, nullable=False),
        sa.Column("asset", sa.String(), nullable=False),
        sa.Column("partition", sa.String(), nullable=False),
        sa.Column("window", sa.String(), nullable=True),
        sa.Column("tile", sa.String(), nullable=True),
        sa.Column("planned_at", UtcTime(), nullable=True),
        sa.Column("fingerprint", sa.String(length=64), nullable=True),
        sa.Column("fence", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("planned_units", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_partitions")),
        sa.UniqueConstraint("asset", "partition", name=op.f("uq_partitions_asset_partition")),
    )
    op.create_index(op.f("ix_partitions_asset_window"), "partitions", ["asset", "window"], unique=False)
    op.create_table(
        "pins",
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("mtime_ns", sa.BigInteger(), nullable=False),
        sa.Column("inode", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("first_seen", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("uri", name=op.f("pk_pins")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "rejected_inputs",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("window", sa.String(), nullable=True),
        sa.Column("rejected_at", UtcTime(), nullable=False),
        sa.Column("lifted_at", UtcTime(), nullable=True),
        sa.Column("round", sa.Integer(), server_default="1", nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_rejected_inputs")),
    )
    op.create_table(
        "runs",
        sa.Column("number", ID, nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("asset", sa.String(), nullable=False),
        sa.Column("partitions", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("started_at", UtcTime(), nullable=False),
        sa.Column("heartbeat_at", UtcTime(), nullable=False),
        sa.Column("ended_at", UtcTime(), nullable=True),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.Column("summary", sa.Text(), nullable=True),
        sa.Column("requested_by", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_runs")),
        sa.UniqueConstraint("run_id", name=op.f("uq_runs_run_id")),
    )
    op.create_table(
        "units",
        sa.Column("id", ID, nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("revision", sa.String(), nullable=False),
        sa.Column("asset", sa.String(), nullable=False),
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("window", sa.String(), nullable=False),
        sa.Column("tile", sa.String(), nullable=True),
        sa.Column("output_uri", sa.Text(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("inputs", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("state_before", sa.String(length=12), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("round", sa.Integer(), server_default="1", nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("error_kind", sa.String(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("retry_at", UtcTime(), nullable=True),
        sa.Column("blocked_by", sa.String(), nullable=True),
        sa.Column("suspect", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("output_digest", sa.String(length=64), nullable=True),
        sa.Column("output_size", sa.BigInteger(), nullable=True),
        sa.Column("metrics", sa.Text(), nullable=True),
        sa.Column("completed_at", UtcTime(), nullable=True),
        sa.Column("planned_at", UtcTime(), nullable=False),
        sa.Column("left_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_units")),
        sa.UniqueConstraint("key", name=op.f("uq_units_key")),
    )
    op.create_index(op.f("ix_units_asset_window_product_tile"), "units", ["asset", "window", "product", "tile"], unique=False)
    op.create_index(
        "ix_units_blocked_by",
        "units",
        ["blocked_by"],
        unique=False,
        sqlite_where=sa.text("blocked_by IS NOT NULL"),
        postgresql_where=sa.text("blocked_by IS NOT NULL"),
    )
    op.create_index(op.f("ix_units_output_uri"), "units", ["output_uri"], unique=False)
    op.create_index(
        "ix_units_unsettled",
        "units",
        ["asset", "state"],
        unique=False,
        sqlite_where=sa.text("state IN ('PENDING', 'RUNNING', 'FAILED')"),
        postgresql_where=sa.text("state IN ('PENDING', 'RUNNING', 'FAILED')"),
    )
    op.create_index(
        "uq_units_output_of_complete",
        "units",
        ["output_uri"],
        unique=True,
        sqlite_where=sa.text("state = 'COMPLETE'"),
        postgresql_where=sa.text("state = 'COMPLETE'"),
    )
    op.create_table(
        "attempts",
        sa.Column("unit_id", ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("is_alone", sa.Boolean(), nullable=False),
        sa.Column("started_at", UtcTime(), nullable=False),
        sa.Column("ended_at", UtcTime(), nullable=True),
        sa.Column("outcome", sa.String(length=12), nullable=True),
        sa.Column("is_counted", sa.Boolean(), nullable=True),
        sa.Column("verdict", sa.String(length=12), nullable=True),
        sa.Column("error_kind", sa.String(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("duration_s", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["unit_id"], ["units.id"], name=op.f("fk_attempts_unit_id")),
        sa.PrimaryKeyConstraint("unit_id", "number", name=op.f("pk_attempts")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_attempts_run_id"), "attempts", ["run_id"], unique=False)
    op.create_table(
        "lease_holders",
        sa.Column("partition_id", ID, nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("since", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(["partition_id"], ["partitions.id"], name=op.f("fk_lease_holders_partition_id")),
        sa.PrimaryKeyConstraint("partition_id", name=op.f("pk_lease_holders")),
    )
    op.create_index(op.f("ix_lease_holders_run_id"), "lease_holders", ["run_id"], unique=False)
    op.create_table(
        "leavers",
        sa.Column("unit_id", ID, nullable=False),
        sa.ForeignKeyConstraint(["unit_id"], ["units.id"], name=op.f("fk_leavers_unit_id")),
        sa.PrimaryKeyConstraint("unit_id", name=op.f("pk_leavers")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "membership",
        sa.Column("partition_id", ID, nullable=False),
        sa.Column("unit_id", ID, nullable=False),
        sa.ForeignKeyConstraint(["partition_id"], ["partitions.id"], name=op.f("fk_membership_partition_id")),
        sa.ForeignKeyConstraint(["unit_id"], ["units.id"], name=op.f("fk_membership_unit_id")),
        sa.PrimaryKeyConstraint("partition_id", "unit_id", name=op.f("pk_membership")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_membership_unit_id"), "membership", ["unit_id"], unique=False)
    op.create_table(
        "notes",
        sa.Column("id", ID, nullable=False),
        sa.Column("unit_id", ID, nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("what", sa.String(), nullable=False),
        sa.Column("error_kind", sa.String(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("who", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["unit_id"], ["units.id"], name=op.f("fk_notes_unit_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notes")),
    )
    op.create_index(op.f("ix_notes_unit_id"), "notes", ["unit_id"], unique=False)
    op.create_table(
        "requests",
        sa.Column("partition_id", ID, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("run_key", sa.String(), nullable=False),
        sa.Column("requested_at", UtcTime(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("unsettled", sa.Integer(), server_default="0", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("fruitless", sa.Integer(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["partition_id"], ["partitions.id"], name=op.f("fk_requests_partition_id")),
        sa.PrimaryKeyConstraint("partition_id", name=op.f("pk_requests")),
    )
    op.create_table(
        "skips",
        sa.Column("run_number", ID, nullable=False),
        sa.Column("unit_id", ID, nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(["run_number"], ["runs.number"], name=op.f("fk_skips_run_number")),
        sa.ForeignKeyConstraint(["unit_id"], ["units.id"], name=op.f("fk_skips_unit_id")),
        sa.PrimaryKeyConstraint("run_number", "unit_id", name=op.f("pk_skips")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_skips_unit_id"), "skips", ["unit_id"], unique=False)


def downgrade() -> None:
    """Drop every table."""
    op.drop_table("skips")
    op.drop_table("requests")
    op.drop_table("notes")
    op.drop_table("membership")
    op.drop_table("leavers")
    op.drop_table("lease_holders")
    op.drop_table("attempts")
    op.drop_table("units")
    op.drop_table("runs")
    op.drop_table("rejected_inputs")
    op.drop_table("pins")
    op.drop_table("partitions")
    op.drop_table("markers")
    op.drop_table("inspections")
    op.drop_table("facts")
    op.drop_table("events")
    op.drop_table("dead_letters")
    op.drop_table("alerts")
    op.drop_table("alert_deliveries")
