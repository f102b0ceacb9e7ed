"""`tilewright verify`, `sweep` and `rebuild-ledger`: outputs and ledger held against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.exits import ExitCode
from pipelines.cli.options import ConfigOption, JsonOption, WindowOption, load, open_project
from pipelines.cli.printing import print_json, print_table, show, show_bytes

if TYPE_CHECKING:
    from resources.config import Config
    from resources.sweep import Keep

ASIDE_SHOWN = 20
"""Set aside outputs that are named one by one; the rest is counted."""


def verify(
    config: ConfigOption = None,
    window: WindowOption = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read every output and compare its digest.")] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Return units with a missing or differing output to PENDING; set aside what is nobody's."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare planned units, units recorded complete and outputs that exist, and name every discrepancy.

    Exit code 0 when they agree, 3 when they do not. Nothing is changed unless --repair is given; the next run then
    redoes the units.
    """
    from assets.pipeline_shape import shape_of
    from resources.amends import make_amends
    from resources.opening import open_project_ledger, open_project_store
    from resources.reconciliation import Discrepancy, reconcile

    settings = load(config)
    ledger = open_project_ledger(settings)
    shape = shape_of(settings)
    assets = (*shape.window_assets, *shape.more)
    if window is not None and not any(row for asset in assets for row in ledger.partition_rows(asset, window)):
        typer.echo(
            f"tilewright: --window: nothing is planned for {show(window)}; `tilewright status` shows the windows", err=True
        )
        raise typer.Exit(ExitCode.USAGE)
    store = open_project_store(settings, ledger)
    rows: list[list[Any]] = []
    found: list[Discrepancy] = []
    for asset in assets:
        names = [row.partition for row in ledger.partition_rows(asset, window)]
        result = reconcile(ledger, store, asset=asset, partitions=names, deep=deep)
        rows.append([asset, len(names), result.planned, result.complete, result.outputs, len(result.discrepancies)])
        found += result.discrepancies
    returned = make_amends(ledger, store, found).returned if repair else 0
    columns = ["asset", "partitions", "planned", "complete", "outputs", "discrepancies"]
    if as_json:
        print_json(
            {
                "deep": deep,
                "assets": [dict(zip(columns, row, strict=True)) for row in rows],
                "discrepancies": found,
                "returned_to_pending": returned,
            }
        )
    else:
        print_table("", columns, rows, numbers=columns[1:])
        for item in found:
            typer.echo(f"{item.kind.value}: {show(item.message)}")
        if returned:
            typer.echo(f"{returned} units are PENDING again; `tilewright run --failed` redoes them.")
    raise typer.Exit(ExitCode.INCOMPLETE if found else ExitCode.COMPLETE)


def sweep(
    config: ConfigOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove abandoned staging files and outputs of superseded units whose retention time is over.

    A living writer's file is never touched; live references are read again before each deletion. What stays is
    counted: staging files younger than retention.staging_hours or of runs that hold a lease, and outputs that were set aside.
    """
    from resources.opening import open_leases, open_project_ledger, open_project_store
    from resources.sweep import Keep, holding_runs, set_aside_files, sweep_staging, sweep_superseded

    settings = load(config)
    ledger = open_project_ledger(settings)
    store = open_project_store(settings, ledger)
    leases = open_leases(settings, ledger)
    living = holding_runs(ledger, leases)
    bound = settings.retention
    young_s = bound.staging_hours * 3600
    kept: Counter[Keep] = Counter()
    swept = [
        *sweep_staging(ledger, store, living_runs=living, older_than_s=young_s, dry_run=dry_run, kept=kept),
        *sweep_superseded(ledger, store, leases, older_than_days=bound.superseded_days, dry_run=dry_run),
    ]
    aside = list(set_aside_files(store))
    total = sum(item.size_bytes for item in swept)
    if as_json:
        of_staged = {reason.value: kept[reason] for reason in Keep}
        print_json({"dry_run": dry_run, "removed": swept, "bytes": total, "kept_staged": of_staged, "set_aside": aside})
        return
    for item in swept:
        typer.echo(f"{'would remove' if dry_run else 'removed'} {show(item.uri)} ({show_bytes(item.size_bytes)}, {item.why})")
    typer.echo(f"{len(swept)} files, {show_bytes(total)}{' (dry run: nothing was removed)' if dry_run else ''}")
    for line in _left_lines(settings, kept, aside):
        typer.echo(line)


def _left_lines(settings: Config, kept: Counter[Keep], aside: list[str]) -> Iterator[str]:
    """What the sweep leaves, and why."""
    from resources.sweep import Keep

    if kept[Keep.YOUNG]:
        hours = settings.retention.staging_hours
        yield f"kept: {kept[Keep.YOUNG]} staged files younger than retention.staging_hours ({hours:g} h)"
    if kept[Keep.ALIVE]:
        yield f"kept: {kept[Keep.ALIVE]} staged files of runs that hold a lease; `tilewright leases list` names them"
    if aside:
        yield f"set aside: {len(aside)}, outputs that did not verify, kept for a person below {settings.store_dir}:"
        yield from (f"  {show(uri)}" for uri in aside[:ASIDE_SHOWN])
        if len(aside) > ASIDE_SHOWN:
            yield f"  and {len(aside) - ASIDE_SHOWN} more; --json lists them all"


def rebuild_ledger(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Make COMPLETE rows again from the outputs in the store, each verified by its key, its content and the catalogue's digest.

    For a ledger that was lost: plans come from the source, completion from the outputs. Attempts, dead letters, decisions of
    people, records and events are not in outputs; they are in the ledger's backup. Done again, it changes nothing. Exit code 3
    if an output did not verify.
    """
    found = open_project(config).rebuild()
    if as_json:
        print_json(found)
    else:
        numbers = ["outputs", "restored", "known", "absent"]
        rows: list[list[Any]] = [[item.asset, item.outputs, item.restored, item.known, item.absent] for item in found.assets]
        print_table("", ["asset", *numbers], rows, numbers=numbers)
        for message in found.unverified:
            typer.echo(f"not restored: {show(message)}")
    raise typer.Exit(ExitCode.INCOMPLETE if found.unverified else ExitCode.COMPLETE)
