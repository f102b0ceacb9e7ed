"""`python -m pipelines.cli` is `tilewright`."""

from __future__ import annotations

from pipelines.cli import main

main()
