"""Options that several commands share, and the doors to what they stand on."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from assets.project import Project
    from resources.config import Config
    from resources.ledger import Ledger
    from resources.windows import WindowCalendar

CONFIG_VARIABLE = "TILEWRIGHT_CONFIG"
_FORMS = (("%Y", "YYYY"), ("%m", "MM"), ("%d", "DD"), ("%H", "HH"))
_LOOKED_AT = 1000

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help=f"Configuration file. Default: ${CONFIG_VARIABLE}, else tilewright.toml here."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the facts as JSON on standard output.")]
WindowOption = Annotated[str | None, typer.Option("--window", "-w", help="Only this batch window, e.g. 2024-06-01.")]
ProductOption = Annotated[str | None, typer.Option("--product", "-p", help="Only this product.")]


def refuse(option: str, found: str, allowed: str) -> NoReturn:
    """End with wrong usage, saying what an option was given and what it takes."""
    from pipelines.cli.exits import ExitCode
    from pipelines.cli.printing import show

    typer.echo(f"tilewright: {option}: found {show(found)!r}; allowed: {allowed}", err=True)
    raise typer.Exit(ExitCode.USAGE)


def require_window(calendar: WindowCalendar, window: str) -> None:
    """End with wrong usage unless the calendar has that window: a slip of the pen must not look like "nothing to do"."""
    try:
        calendar.window(window)
    except ValueError:
        form = reduce(lambda text, part: text.replace(*part), _FORMS, calendar.key_format)
        end = "" if calendar.end is None else f" and before {calendar.end:{calendar.key_format}}"
        allowed = f"{form}, one each {calendar.every} from {calendar.start:{calendar.key_format}}{end}"
        refuse("--window", window, allowed)


def require_known(
    config: Config, ledger: Ledger, *, window: str | None = None, product: str | None = None, asset: str | None = None
) -> None:
    """End with wrong usage on a filter that can fit nothing, planned or past: a slip of the pen must not look like "nothing"."""
    from assets.pipeline_shape import shape_of
    from resources.windows import WindowCalendar

    shape = shape_of(config)
    assets = (*shape.window_assets, *shape.more)
    if asset is not None and asset not in assets:
        refuse("--asset", asset, ", ".join(assets))
    if window is not None and not _is_on_record(ledger, assets, window=window):
        require_window(WindowCalendar(config.window), window)
    if product is not None and not _is_on_record(ledger, assets, product=product):
        known = [item.name for item in getattr(config, "products", ())]
        if product not in known:
            # the first of each asset: all that there are would be too many to read for an answer
            found = {unit.product for name in assets for unit in ledger.units(asset=name, limit=_LOOKED_AT)}
            refuse("--product", product, ", ".join(sorted({*known, *found})) or "none yet")


def _is_on_record(ledger: Ledger, assets: Iterable[str], *, window: str | None = None, product: str | None = None) -> bool:
    found = (unit for name in assets for unit in ledger.units(asset=name, window=window, product=product, limit=1))
    return any(found) or any(ledger.dead_letters(status=None, window=window, product=product))


def use_config(config: Path | None) -> None:
    """Make the named configuration the one that everything in this process, and its children, uses."""
    if config is not None:
        os.environ[CONFIG_VARIABLE] = str(config.absolute())


def load(config: Path | None) -> Config:
    """The configuration. Raises `ConfigurationError`."""
    from resources.config import load_config

    use_config(config)
    return load_config()


def open_ledger(
    config: Path | None, *, window: str | None = None, product: str | None = None, asset: str | None = None
) -> Ledger:
    """The ledger of the configuration; wrong usage where a filter can fit nothing in it. Raises `EnvironmentUnfit`."""
    from resources.opening import open_project_ledger

    settings = load(config)
    ledger = open_project_ledger(settings)
    require_known(settings, ledger, window=window, product=product, asset=asset)
    return ledger


def open_project(config: Path | None) -> Project:
    """The whole project. Raises `EnvironmentUnfit`."""
    from assets.project import open_project as opened

    use_config(config)
    return opened()
