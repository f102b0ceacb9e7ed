"""`tilewright quarantine`: dead letters, and what a person does about them."""

from __future__ import annotations

import getpass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from pipelines.cli.exits import EPILOG, ExitCode
from pipelines.cli.options import (
    ConfigOption,
    JsonOption,
    ProductOption,
    WindowOption,
    open_ledger,
    open_project,
)
from pipelines.cli.printing import print_json, print_json_rows, print_table
from resources.errors import EnvironmentUnfit, ErrorKind

if TYPE_CHECKING:
    from resources.ledger import DeadLetter, Ledger

app = typer.Typer(help="Dead letters: list, show, replay and dismiss what was set aside.", no_args_is_help=True, epilog=EPILOG)

KindOption = Annotated[
    ErrorKind | None, typer.Option("--kind", "-k", metavar="KIND", help="Only this error kind, e.g. corrupt_input.")
]
AgeOption = Annotated[float | None, typer.Option("--older-than", min=0, help="Only those last seen more than so many days ago.")]
_COLUMNS = ("id", "status", "subject", "name", "window", "kind", "attempts", "last_at", "reason")
_FIELDS = (
    *("id", "status", "subject", "subject_key", "name", "asset", "product", "window", "tile", "kind", "verdict", "reason"),
    *("attempts", "round", "first_at", "last_at", "audit_hash", "closed_at", "who", "why"),
)

Ids = Annotated[list[int] | None, typer.Argument(help="Numbers of dead letters, as `quarantine list` shows them.")]
WhoOption = Annotated[str | None, typer.Option("--who", help="Who decides; default: your account's name.")]


@app.command("list", epilog=EPILOG)
def list_letters(
    config: ConfigOption = None,
    window: WindowOption = None,
    kind: KindOption = None,
    product: ProductOption = None,
    older_than: AgeOption = None,
    closed: Annotated[bool, typer.Option("--closed", help="Also those that were replayed, resolved or dismissed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List dead letters: what was set aside, why, after how many attempts, since when. Exit code 3 if any is open."""
    ledger = open_ledger(config, window=window, product=product)
    letters = _select(ledger, window=window, kind=kind, product=product, older_than=older_than, closed=closed)
    if as_json:
        print_json_rows(letters)
    elif not letters:
        typer.echo("No dead letters.")
    else:
        rows = [[getattr(letter, name) for name in _COLUMNS] for letter in letters]
        print_table("", [name.removesuffix("_at") for name in _COLUMNS], rows, numbers=["id"])
    is_open = any(letter.status == "OPEN" for letter in letters)
    raise typer.Exit(ExitCode.INCOMPLETE if is_open else ExitCode.COMPLETE)


@app.command("show", epilog=EPILOG)
def show_letter(
    letter_id: Annotated[int, typer.Argument(metavar="ID", help="Number of the dead letter.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one dead letter whole, and the history of its unit."""
    ledger = open_ledger(config)
    letter = next(ledger.dead_letters(status=None, ids=[letter_id]), None)
    if letter is None:
        typer.echo(f"tilewright: no dead letter {letter_id}; `tilewright quarantine list --closed` shows all", err=True)
        raise typer.Exit(ExitCode.CANNOT_RUN)
    history = ledger.history(letter.subject_key) if letter.subject == "unit" else []
    if as_json:
        print_json({"dead_letter": letter, "history": history})
        return
    print_table("", ["", ""], [[name.replace("_", " "), getattr(letter, name)] for name in _FIELDS])
    if history:
        rows = [[entry.at, entry.what, entry.number, entry.outcome, entry.error_kind, entry.reason] for entry in history]
        print_table("\nHistory of the unit", ["at", "what", "attempt", "outcome", "kind", "reason"], rows)


@app.command("replay", epilog=EPILOG)
def replay(
    ids: Ids = None,
    config: ConfigOption = None,
    window: WindowOption = None,
    kind: KindOption = None,
    product: ProductOption = None,
    older_than: AgeOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All open dead letters.")] = False,
    who: WhoOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask for quarantined work again, by number or by filter, as a new round with its history kept.

    It goes the ordinary path: the failed-partition sensor asks for its partitions, or `tilewright run --failed` does so now. A
    unit that succeeded meanwhile is skipped; one that fails again returns with its new reason.
    """
    is_filtered = any(item is not None for item in (window, kind, product, older_than))
    if bool(ids) == (is_filtered or everything):
        typer.echo("tilewright: give numbers, or a filter, or --all", err=True)
        raise typer.Exit(ExitCode.USAGE)
    ledger = open_ledger(config, window=window, product=product)
    letters = _chosen(ledger, ids) if ids else _select(ledger, window=window, kind=kind, product=product, older_than=older_than)
    done = 0
    if not dry_run and letters:
        done = ledger.replay([letter.id for letter in letters], who=who or getpass.getuser())
        _plan_again(config, {letter.window for letter in letters if letter.subject == "input" and letter.window is not None})
    if as_json:
        print_json({"dead_letters": letters, "replayed": done})
        return
    for letter in letters:
        typer.echo(f"{'would replay' if dry_run else 'replay'} {letter.id}: {_plain_name(letter)} ({letter.kind})")
    if done:
        typer.echo(
            f"{done} replayed. `tilewright run --failed` does the work now; otherwise the failed-partition sensor asks for it."
        )


@app.command("dismiss", epilog=EPILOG)
def dismiss(
    ids: Annotated[list[int], typer.Argument(help="Numbers of dead letters.")],
    why: Annotated[str, typer.Option("--why", help="Why this will not be done; kept for ever.")],
    config: ConfigOption = None,
    who: WhoOption = None,
    as_json: JsonOption = False,
) -> None:
    """Dispose of dead letters for good: their units are not done and are no longer asked for. Who and why are kept."""
    if not why.strip():
        typer.echo("tilewright: --why must say something", err=True)
        raise typer.Exit(ExitCode.USAGE)
    ledger = open_ledger(config)
    letters = _chosen(ledger, ids)
    done = ledger.dismiss([letter.id for letter in letters], who=who or getpass.getuser(), why=why.strip())
    if as_json:
        print_json({"dead_letters": letters, "dismissed": done})
        return
    typer.echo(f"{done} dismissed.")


def _plan_again(config: Path | None, windows: set[str]) -> None:
    """Plan windows whose inputs may be used again: what was made without them is due only when the plan says so."""
    if not windows:
        return
    try:
        open_project(config).plan_again(sorted(windows), run_id=f"replay-{uuid4()}")
    except EnvironmentUnfit as error:
        typer.echo(f"tilewright: {error.message}; `tilewright run --window` plans with these inputs again later", err=True)


def _select(
    ledger: Ledger,
    *,
    window: str | None = None,
    kind: ErrorKind | None = None,
    product: str | None = None,
    older_than: float | None = None,
    closed: bool = False,
) -> list[DeadLetter]:
    before = None if older_than is None else ledger.clock() - timedelta(days=older_than)
    status = None if closed else "OPEN"
    return list(ledger.dead_letters(status=status, window=window, kind=kind, product=product, older_than=before))


def _chosen(ledger: Ledger, ids: list[int]) -> list[DeadLetter]:
    found = {letter.id: letter for letter in ledger.dead_letters(ids=ids)}
    unknown = [str(number) for number in ids if number not in found]
    if unknown:
        typer.echo(f"tilewright: no open dead letter {', '.join(unknown)}; `tilewright quarantine list` shows them", err=True)
        raise typer.Exit(ExitCode.CANNOT_RUN)
    return [found[number] for number in dict.fromkeys(ids)]


def _plain_name(letter: DeadLetter) -> str:
    from pipelines.cli.printing import show

    return f"{letter.subject} {show(letter.name)}"
