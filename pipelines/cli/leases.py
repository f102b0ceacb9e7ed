"""`tilewright leases`: who works on which partitions now, and how to end a run that hangs."""

from __future__ import annotations

import socket
from collections import defaultdict
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.exits import EPILOG, ExitCode
from pipelines.cli.options import ConfigOption, JsonOption, load
from pipelines.cli.printing import print_json, print_table

if TYPE_CHECKING:
    from resources.config import Config
    from resources.leases import Leases
    from resources.ledger import HolderRow, Ledger

app = typer.Typer(help="Leases: who works on which partitions now.", no_args_is_help=True, epilog=EPILOG)


def _open(config: Config) -> tuple[Ledger, Leases]:
    from resources.opening import open_leases, open_project_ledger

    ledger = open_project_ledger(config)
    return ledger, open_leases(config, ledger)


def _held(ledger: Ledger, leases: Leases) -> dict[str, list[HolderRow]]:
    holders = ledger.holders()
    numbers = leases.held(row.partition_id for row in holders)
    held: dict[str, list[HolderRow]] = defaultdict(list)
    for row in holders:
        if row.partition_id in numbers:
            held[row.run_id].append(row)
    return dict(held)


@app.command("list", epilog=EPILOG)
def list_leases(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the runs that hold leases now, with their process, their last sign of life and the partitions they hold.

    A lease ends with the process that holds it, so one that is listed has a living holder, which may hang.
    """
    ledger, leases = _open(load(config))
    held = _held(ledger, leases)
    runs = {run_id: ledger.run(run_id) for run_id in held}
    if as_json:
        print_json(
            [
                {
                    "run_id": run_id,
                    "host": rows[0].host,
                    "pid": rows[0].pid,
                    "since": rows[0].since,
                    "heartbeat_at": run.heartbeat_at if run is not None else None,
                    "asset": rows[0].asset,
                    "partitions": [row.partition for row in rows],
                }
                for (run_id, rows), run in zip(held.items(), runs.values(), strict=True)
            ]
        )
        return
    if not held:
        typer.echo("No lease is held.")
        return
    rows = [
        [run_id, items[0].host, items[0].pid, items[0].since, run.heartbeat_at if run else None, items[0].asset, len(items)]
        for (run_id, items), run in zip(held.items(), runs.values(), strict=True)
    ]
    print_table(
        "", ["run", "host", "pid", "since", "last sign of life", "asset", "partitions"], rows, numbers=["pid", "partitions"]
    )


@app.command("break", epilog=EPILOG)
def break_lease(
    run_id: Annotated[str, typer.Argument(help="Run whose leases are to be broken, or enough of its beginning.")],
    config: ConfigOption = None,
    grace: Annotated[
        float, typer.Option("--grace", min=0, help="Seconds to wait after asking, before the process is killed.")
    ] = 30,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """End a run that hangs: its process is asked to stop, then killed, and its leases are free.

    What it was doing is void or lost and is done again; nothing it wrote half is ever seen. On PostgreSQL its
    session is ended, which stops a run on any machine.
    """
    from resources.lease_breaking import end_local_holder
    from resources.leases import PostgresLeases

    settings = load(config)
    ledger, leases = _open(settings)
    held = {name: rows for name, rows in _held(ledger, leases).items() if name.startswith(run_id)}
    if len(held) != 1:
        names = ", ".join(sorted(held)) or "none"
        typer.echo(f"tilewright: {run_id!r} must name one run that holds leases; found: {names}", err=True)
        raise typer.Exit(ExitCode.CANNOT_RUN)
    ((name, rows),) = held.items()
    holder = rows[0]
    if not yes:
        typer.confirm(f"End run {name} (process {holder.pid} on {holder.host}, {len(rows)} partitions)?", abort=True)
    if isinstance(leases, PostgresLeases):
        ended = leases.end_holder(holder.partition_id)
    elif holder.host != socket.gethostname():
        typer.echo(f"tilewright: the holder runs on {holder.host}; run this there", err=True)
        raise typer.Exit(ExitCode.CANNOT_RUN)
    else:
        ended = end_local_holder(settings.state_dir / "leases.lock", pid=holder.pid, grace_s=grace)
    typer.echo(f"Run {name} was ended; its leases are free." if ended else f"Run {name} had ended by itself.")
