"""`tilewright units` and `tilewright unit`: which units there are, and everything that happened to one."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from pipelines.cli.exits import ExitCode
from pipelines.cli.options import ConfigOption, JsonOption, ProductOption, WindowOption, open_ledger
from pipelines.cli.printing import print_json, print_json_rows, print_table, show_bytes
from resources.units import UnitState

StateOption = Annotated[
    list[UnitState] | None,
    typer.Option("--state", "-s", case_sensitive=False, help="Only units in this state; may be given more than once."),
]


def units(
    config: ConfigOption = None,
    state: StateOption = None,
    window: WindowOption = None,
    product: ProductOption = None,
    asset: Annotated[str | None, typer.Option("--asset", help="Only units of this asset, e.g. tiles.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="At most so many units; 0: all.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """List units of work with state, counted attempts and reason, in the order they were first planned."""
    ledger = open_ledger(config, window=window, product=product, asset=asset)
    found = ledger.units(asset=asset, window=window, state=state or None, product=product, limit=limit or None)
    if as_json:
        print_json_rows(found)
        return
    shown = 0

    def rows() -> Any:
        nonlocal shown
        for unit in found:
            shown += 1
            reason = " ".join((unit.reason or "").split())
            yield [unit.key[:16], unit.asset, unit.product, unit.window, unit.tile, unit.state, unit.attempts, reason[:100]]

    print_table("", ["unit", "asset", "product", "window", "tile", "state", "attempts", "reason"], rows(), numbers=["attempts"])
    if limit and shown == limit:
        typer.echo(f"Only the first {limit}; --limit 0 shows all. `tilewright unit KEY` tells a unit's history.")


def unit(
    key: Annotated[str, typer.Argument(help="Unit key, or enough of its beginning.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one unit: what it is made from, where its output is, and its history of attempts, skips and decisions."""
    ledger = open_ledger(config)
    try:
        found = ledger.unit(key.lower())
    except LookupError as error:
        typer.echo(f"tilewright: {error.args[0]}", err=True)
        raise typer.Exit(ExitCode.USAGE) from None
    if found is None:
        typer.echo(f"tilewright: no unit key begins with {key!r}", err=True)
        raise typer.Exit(ExitCode.CANNOT_RUN)
    history = ledger.history(found.key)
    if as_json:
        print_json({"unit": found, "history": history})
        return
    facts: list[list[Any]] = [
        ["unit key", found.key],
        ["asset, product", f"{found.asset}, {found.product}"],
        ["window, tile", f"{found.window}, {found.tile or '-'}"],
        ["partition", found.partition],
        ["state", found.state],
        ["reason", found.reason],
        ["error kind", found.error_kind],
        ["tried again from", found.retry_at],
        ["attempts", f"{found.attempts} counted in round {found.round}; last attempt was number {found.attempt}"],
        ["output", found.output_uri],
        ["digest, size", f"{found.output_digest or '-'}, {show_bytes(found.output_size)}"],
        ["completed", found.completed_at],
    ]
    print_table("", ["", ""], facts)
    rows = [
        [
            entry.at,
            entry.what,
            entry.number,
            entry.outcome,
            "yes" if entry.is_counted else "-",
            (entry.run_id or "")[:8] or entry.who,
            None if entry.duration_s is None else f"{entry.duration_s:.2f}",
            f"{entry.error_kind}: {entry.reason}" if entry.error_kind else entry.reason,
        ]
        for entry in islice(history, 1000)
    ]
    print_table("\nHistory", ["at", "what", "attempt", "outcome", "counted", "run or who", "seconds", "reason"], rows)
