"""What the crash tests share: a project on each database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.child import write_config


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def config_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A configuration of its own, its ledger on SQLite or on a real PostgreSQL server."""
    if request.param == "sqlite":
        return write_config(tmp_path)
    return write_config(tmp_path, f'[ledger]\nurl = "{request.getfixturevalue("postgres_url")}"\n')
