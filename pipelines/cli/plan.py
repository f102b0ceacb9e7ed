"""`tilewright plan`: what a run would do now, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.exits import ExitCode
from pipelines.cli.options import ConfigOption, JsonOption, WindowOption, open_project, require_window
from pipelines.cli.printing import open_words, print_json, print_table, show, show_bytes

if TYPE_CHECKING:
    from assets.forecast import WindowForecast
    from assets.survey import LeftOut

LEFT_OUT_SHOWN = 20
"""Things of each verdict that are shown one by one; the rest is counted."""


def plan(
    config: ConfigOption = None,
    window: WindowOption = None,
    why: Annotated[bool, typer.Option("--why", help="Say for each unit why it would be computed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a run would compute now: how many units and bytes for each window, why, and whether the disk has room.

    The plan is made from the source and the configuration as they are now and held against the ledger. Nothing is computed or
    planned. Windows of which there is nothing to say are left out; what the source holds and nothing is made from is listed
    with its reasons.
    Exit code 0 when nothing is to be done, 3 when something is, 1 when the disk has no room for it.
    """
    from assets.forecast import forecast
    from resources.store import LocalStore

    project = open_project(config)
    if window is not None:
        require_window(project.calendar, window)
    folder = project.config.store_dir
    while not folder.exists():
        folder = folder.parent
    found = forecast(project, window=window, bytes_free=LocalStore(folder).free_bytes())
    if as_json:
        print_json({**_facts(found), "has_room": found.has_room})
    else:
        numbers = ["inputs", "complete", "to compute", "restored", "superseded", "quarantined", "bytes"]
        rows = [
            [*(getattr(item, name.replace(" ", "_")) for name in ("window", *numbers[:-1])), show_bytes(item.bytes_estimate)]
            for item in found.windows
            if window is not None or not _is_empty(item)
        ]
        print_table("", ["window", *numbers], rows, numbers=numbers)
        for item in found.windows:
            for reason, number in item.reasons.most_common():
                typer.echo(f"{item.window}: {number} units: {show(reason)}")
        if why:
            rows = [[redo.window, redo.product, redo.tile, redo.key[:16], redo.why] for redo in found.redos]
            print_table("\nUnits to compute", ["window", "product", "tile", "unit", "why"], rows)
        _print_left_out(found.left_out)
        if found.open_window is not None and found.open_until is not None:
            told = f"{found.open_window.inputs} inputs, {found.open_window.to_compute} units to compute"
            typer.echo(f"{open_words(found.open_window.window, found.open_until)} ({told})")
        free = "" if found.bytes_free is None else f", {show_bytes(found.bytes_free)} are free"
        typer.echo(f"In all {len(found.redos)} units to compute, about {show_bytes(found.bytes_estimate)}{free}.")
    if not found.has_room:
        typer.echo(
            f"tilewright: the disk has no room for that beside store.min_free_mb ({show_bytes(found.bytes_kept_free)})", err=True
        )
        raise typer.Exit(ExitCode.CANNOT_RUN)
    raise typer.Exit(ExitCode.INCOMPLETE if found.redos else ExitCode.COMPLETE)


def _is_empty(item: WindowForecast) -> bool:
    """Neither inputs nor units: of the thousands of windows that a calendar may have, most are so."""
    return not any((item.inputs, item.complete, item.to_compute, item.restored, item.superseded, item.quarantined))


def _print_left_out(left_out: Sequence[LeftOut]) -> None:
    by_verdict: dict[str, list[LeftOut]] = {}
    for item in left_out:
        by_verdict.setdefault(item.verdict, []).append(item)
    if not by_verdict:
        return
    rows = [[item.verdict, item.name, item.reason] for items in by_verdict.values() for item in items[:LEFT_OUT_SHOWN]]
    print_table("\nNot used", ["verdict", "what", "why"], rows)
    for verdict, items in by_verdict.items():
        if len(items) > LEFT_OUT_SHOWN:
            typer.echo(f"{verdict}: {len(items) - LEFT_OUT_SHOWN} more; --json lists them all")
    typer.echo("")


def _facts(found: object) -> dict[str, object]:
    from pipelines.cli.printing import as_plain

    facts: dict[str, object] = as_plain(found)
    return facts
