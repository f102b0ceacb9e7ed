"""`tilewright run`: launch Dagster runs for windows, wait, and say what came of them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.exits import ExitCode
from pipelines.cli.options import ConfigOption, JsonOption, open_project, require_window
from pipelines.cli.printing import open_words, print_json, print_table, progress_of_units, show

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from assets.project import Project
    from pipelines.cli.launching import LaunchedRun
    from resources.windows import BatchWindow


@dataclass(frozen=True, slots=True)
class Trouble:
    """What went wrong with runs as such, and the exit code that says so."""

    words: str
    code: ExitCode = ExitCode.CANNOT_RUN


FIVE = ("processed", "skipped", "failed", "quarantined", "not_attempted")


def run(
    config: ConfigOption = None,
    window: Annotated[
        list[str] | None,
        typer.Option(
            "--window",
            "-w",
            help="Batch window, also one that is not over; may be repeated. Default: all that are over and have inputs.",
        ),
    ] = None,
    tile: Annotated[
        list[str] | None,
        typer.Option(
            "--tile", "-t", help="Only the partition of this name, or the one that holds this output tile, e.g. 12-840-1524."
        ),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only partitions with units that failed or are pending.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Launch Dagster runs for whole windows or some tiles, wait with a progress bar, then what is made of whole windows.

    Only what is incomplete is computed: running it again costs next to nothing. It may be killed at any time and run again.
    Exit code 0 when every planned unit of these windows is complete, 3 when some are incomplete or quarantined or what is made
    of them failed, 1 when it cannot run.
    """
    from pipelines.cli.home import enter_home
    from pipelines.cli.launching import unsettled_windows

    project = open_project(config)
    enter_home(project.config)
    windows, left_alone = _windows(project, window)
    tiles = None if not tile else {_partition(project, name) for name in tile}
    runs = unit_runs(project, windows, tiles=tiles, failed=failed)
    # an output of the window may be all that is missing
    also = unsettled_windows(project) & set(windows) if failed and tiles is None else set()
    trouble = run_and_watch(project, runs, also=also, is_quiet=as_json) if runs or also else None
    facts = [window_facts(project, name, runs) for name in sorted({*also, *(item.window for item in runs)} or windows)]
    if as_json:
        print_json({"windows": facts, "problem": trouble.words if trouble else None})
    elif runs or also:
        print_summary(facts)
    else:
        subject = project.shape.subject
        typer.echo(f"Nothing to run: no {subject}s, or nothing incomplete. `tilewright plan` says what is not used, and why.")
    if left_alone is not None and not as_json:
        typer.echo(open_words(left_alone.key, left_alone.end))
    if trouble:
        typer.echo(f"tilewright: {trouble.words}", err=True)
        raise typer.Exit(trouble.code)
    # of all assets, not of the units alone: a report that is quarantined is not complete
    whole = [project.ledger.counts(window=item["window"]) for item in facts]
    is_complete = all(counts.processed == counts.planned for counts in whole)
    raise typer.Exit(ExitCode.COMPLETE if is_complete else ExitCode.INCOMPLETE)


def unit_runs(
    project: Project, windows: Sequence[str], *, tiles: set[str] | None = None, failed: bool = False
) -> list[LaunchedRun]:
    """The runs over units that a command asks for."""
    from pipelines.cli.launching import unsettled_runs, window_runs

    if failed:
        return unsettled_runs(project, windows=set(windows), tiles=tiles)
    return [item for name in windows for item in window_runs(project, name, tiles=tiles)]


def run_and_watch(
    project: Project,
    runs: Sequence[LaunchedRun],
    *,
    also: Collection[str] = (),
    is_quiet: bool = False,
    environment: dict[str, str] | None = None,
) -> Trouble | None:
    """Execute the runs, then what is made of their windows and of `also`; returns what kept them from it, if anything did."""
    from rich.console import Console

    from pipelines.cli.launching import downstream_run, execute_runs, failed_runs

    after = downstream_run(project, sorted({*also, *(item.window for item in runs)}))
    names = [name for item in runs for name in item.partitions]
    log = (
        project.config.state_dir / "logs" / f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{[*runs, *after][0].run_id[:8]}.log"
    )
    with progress_of_units(Console(stderr=True), is_quiet=is_quiet) as progress:
        task = progress.add_task("units", total=None, note="starting")

        def tick() -> None:
            counts = project.ledger.counts(partitions_of=(project.shape.units, names))
            settled = counts.processed + counts.skipped + counts.quarantined
            words = [
                f"{counts.failed} failed" if counts.failed else "",
                f"{counts.quarantined} quarantined" if counts.quarantined else "",
            ]
            progress.update(task, completed=settled, total=counts.planned or None, note=", ".join(filter(None, words)))

        code = execute_runs([*runs, *after], log=log, on_tick=tick, environment=environment)
    if code != 0:
        return Trouble(f"the process that ran them ended with code {code}; its words are in {log}")
    for item in runs:
        found = project.ledger.run(item.run_id)
        if found is None:
            return Trouble(f"run {item.run_id[:8]} did not begin; see {log}")
        if found.outcome == "stopped":
            return Trouble(f"run {item.run_id[:8]} stopped: {(found.summary or {}).get('reason') or 'see ' + str(log)}")
    failed = failed_runs(log)
    unmade = [item.partitions for item in after if item.run_id in failed]
    if unmade:
        windows = f"{unmade[0][0]} to {unmade[-1][-1]}"
        return Trouble(f"{' or '.join(project.shape.outputs)} of windows {windows} failed; see {log}", ExitCode.INCOMPLETE)
    return None


def window_facts(project: Project, window: str, runs: Sequence[LaunchedRun]) -> dict[str, Any]:
    """The five numbers of a window's runs, summed, and how many of all its planned units are complete."""
    five = dict.fromkeys(FIVE, 0)
    for item in runs:
        if item.window == window:
            counts = project.ledger.counts(run_id=item.run_id)
            five = {name: five[name] + getattr(counts, name) for name in FIVE}
    whole = project.ledger.counts(asset=project.shape.units, window=window)
    return {"window": window, **five, "complete": whole.processed, "planned": whole.planned}


def print_summary(facts: Sequence[dict[str, Any]]) -> None:
    """The table that ends a run."""
    columns = [name.replace("_", " ") for name in ("window", *FIVE, "complete", "planned")]
    print_table("", columns, [list(item.values()) for item in facts], numbers=columns[1:])


def _windows(project: Project, given: Sequence[str] | None) -> tuple[list[str], BatchWindow | None]:
    """The windows to run, and the one that has inputs and is left alone because it is not over and nobody asked for it."""
    if given:
        for name in given:
            require_window(project.calendar, name)
        return list(dict.fromkeys(given)), None
    now = project.ledger.clock()
    sourced = set(project.survey(now=now).windows)
    planned = {row.window for row in project.ledger.partition_rows(project.shape.units)}
    windows = [window.key for window in project.calendar.windows(now) if window.key in sourced | planned]
    last = project.calendar.open_window(now)
    if last is not None and last.key in planned:
        return [*windows, last.key], None
    return windows, last if last is not None and last.key in sourced else None


def _partition(project: Project, name: str) -> str:
    found = project.tile_partition(name)
    if found is None:
        words = (
            f"{show(name)} is neither a partition nor a tile of the grid"
            if project.shape.has_tiles
            else "there are no tiles here"
        )
        typer.echo(f"tilewright: --tile: {words}", err=True)
        raise typer.Exit(ExitCode.USAGE)
    return found
