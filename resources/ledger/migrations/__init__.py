"""Alembic migrations of the ledger, shipped with the package and run when a ledger is opened."""
