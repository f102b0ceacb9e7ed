"""The first tables."""

from __future__ import annotations

from alembic import op

from resources.ledger.schema import metadata

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table."""
    metadata.create_all(op.get_bind())


def downgrade() -> None:
    """Drop every table."""
    metadata.drop_all(op.get_bind())
