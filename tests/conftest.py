"""Fixtures that many tests share, and the plugins of the test run."""

from __future__ import annotations

pytest_plugins = ["tests.support.skips", "tests.support.postgres", "tests.support.ledgers"]
