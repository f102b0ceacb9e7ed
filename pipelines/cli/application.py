"""The commands put together, and what becomes of errors."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from pipelines.cli import demo, dev, doctor, keys, leases, maintenance, plan, quarantine, running, status, units
from pipelines.cli.exits import EPILOG, ExitCode
from pipelines.cli.options import ConfigOption, use_config
from resources.errors import TilewrightError

app = typer.Typer(
    name="tilewright",
    help="Scenes to tiles, masters to access copies, reports to records: batches that may be killed anywhere and run again.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("doctor", epilog=EPILOG)(doctor.doctor)
app.command("plan", epilog=EPILOG)(plan.plan)
app.command("run", epilog=EPILOG)(running.run)
app.command("status", epilog=EPILOG)(status.status)
app.command("units", epilog=EPILOG)(units.units)
app.command("unit", epilog=EPILOG)(units.unit)
app.add_typer(quarantine.app, name="quarantine")
app.add_typer(leases.app, name="leases")
app.command("verify", epilog=EPILOG)(maintenance.verify)
app.command("sweep", epilog=EPILOG)(maintenance.sweep)
app.command("rebuild-ledger", epilog=EPILOG)(maintenance.rebuild_ledger)
app.command("demo", epilog=EPILOG)(demo.demo)
app.command("dev", epilog=EPILOG)(dev.dev)
app.command("keys", epilog=EPILOG)(keys.keys)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"tilewright {version('tilewright')}")
        raise typer.Exit


@app.callback()
def _root(
    config: ConfigOption = None,
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool, typer.Option("--version", help="Print the version and end.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    use_config(config)


def run() -> None:
    """Run the command line. A failure with a cause a person can mend is one message, without a traceback."""
    try:
        app()
    except TilewrightError as error:
        typer.echo(f"tilewright: {error.message}", err=True)
        sys.exit(ExitCode.CANNOT_RUN)
    except BrokenPipeError:
        # the reader (head, less) went away; nothing more can be said to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.CANNOT_RUN)
    except OSError as error:
        # a folder that may not be written, a full disk: the system's words name file and cause
        typer.echo(f"tilewright: {error}", err=True)
        sys.exit(ExitCode.CANNOT_RUN)
