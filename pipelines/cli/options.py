"""Options that several commands share, and the doors to what they stand on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assets.project import Project
    from resources.config import Config
    from resources.ledger import Ledger
    from resources.windows import WindowCalendar

CONFIG_VARIABLE = "TILEWRIGHT_CONFIG"

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help=f"Configuration file. Default: ${CONFIG_VARIABLE}, else tilewright.toml here."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the facts as JSON on standard output.")]
WindowOption = Annotated[str | None, typer.Option("--window", "-w", help="Only this batch window, e.g. 2024-06-01.")]
ProductOption = Annotated[str | None, typer.Option("--product", "-p", help="Only this product.")]


def require_window(calendar: WindowCalendar, window: str) -> None:
    """End with wrong usage unless the calendar has that window: a slip of the pen must not look like "nothing to do"."""
    from pipelines.cli.exits import ExitCode
    from pipelines.cli.printing import show

    try:
        calendar.window(window)
    except ValueError as error:
        typer.echo(f"tilewright: --window: {show(error)}", err=True)
        raise typer.Exit(ExitCode.USAGE) from None


def use_config(config: Path | None) -> None:
    """Make the named configuration the one that everything in this process, and its children, uses."""
    if config is not None:
        os.environ[CONFIG_VARIABLE] = str(config.absolute())


def load(config: Path | None) -> Config:
    """The configuration. Raises `ConfigurationError`."""
    from resources.config import load_config

    use_config(config)
    return load_config()


def open_ledger(config: Path | None) -> Ledger:
    """The ledger of the configuration. Raises `EnvironmentUnfit` when it cannot be reached."""
    from resources.opening import open_project_ledger

    return open_project_ledger(load(config))


def open_project(config: Path | None) -> Project:
    """The whole project. Raises `EnvironmentUnfit`."""
    from assets.project import open_project as opened

    use_config(config)
    return opened()
