"""The command line `tilewright`. Each command is a module here; heavy libraries are imported where a command needs them."""

from __future__ import annotations


def main() -> None:
    """Entry point of the console script."""
    from pipelines.cli.application import run

    run()
