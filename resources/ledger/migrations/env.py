"""Alembic environment: runs on the connection that the opener hands over, inside its transaction."""

from __future__ import annotations

from alembic import context

from resources.ledger.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
