"""`tilewright status`: how each batch window stands."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import typer

from pipelines.cli.exits import ExitCode
from pipelines.cli.options import ConfigOption, JsonOption, WindowOption, load, require_known
from pipelines.cli.printing import print_json, print_table, show

if TYPE_CHECKING:
    from resources.ledger import Ledger, PartitionRow, RunRow

_NUMBERS = ("units", "pending", "running", "complete", "failed", "quarantined", "dismissed")


@dataclass(slots=True)
class WindowStanding:
    """One window's units by state, and how many of its partitions are settled."""

    window: str
    partitions: int = 0
    settled: int = 0
    units: Counter[str] = field(default_factory=Counter)

    def add(self, row: PartitionRow) -> None:
        """Count one partition in."""
        self.partitions += 1
        self.settled += row.is_settled
        self.units.update({name: getattr(row, name) for name in _NUMBERS})

    @property
    def word(self) -> str:
        """What the window amounts to."""
        if self.units["running"]:
            return "running"
        if self.settled < self.partitions:
            return "incomplete"
        return "quarantined" if self.units["quarantined"] else "complete"

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        numbers = {name: self.units[name] for name in _NUMBERS}
        return {"window": self.window, "standing": self.word, "partitions": self.partitions, "settled": self.settled, **numbers}


def standings(ledger: Ledger, asset: str, *, window: str | None = None) -> list[WindowStanding]:
    """How each window that has a plan of the asset's units stands, in order."""
    found: dict[str, WindowStanding] = {}
    for row in ledger.partition_rows(asset, window):
        key = row.window or row.partition
        found.setdefault(key, WindowStanding(key)).add(row)
    return [found[key] for key in sorted(found)]


def status(config: ConfigOption = None, window: WindowOption = None, as_json: JsonOption = False) -> None:
    """Show how each batch window stands: its units by state, the last runs with their five numbers, and open dead letters.

    A window is complete when all its planned units are; quarantined when all are settled and some need a person; else incomplete.
    Only the ledger is read: `tilewright plan` tells what the source holds beside that, and what waits or is left out.
    """
    from assets.pipeline_shape import shape_of
    from resources.opening import open_project_ledger

    settings = load(config)
    ledger = open_project_ledger(settings)
    require_known(settings, ledger, window=window)
    found = standings(ledger, shape_of(settings).units, window=window)
    letters = Counter(letter.kind for letter in ledger.dead_letters(window=window))
    runs = [run for run in ledger.runs(limit=10) if window is None or any(window in name for name in run.partitions)]
    is_complete = bool(found) and all(item.word == "complete" for item in found) and not letters
    if as_json:
        print_json(
            {
                "windows": [item.facts() for item in found],
                "open_dead_letters": dict(sorted(letters.items())),
                "runs": [{**_run_facts(run), "partitions": len(run.partitions)} for run in runs],
                "is_complete": is_complete,
            }
        )
    elif not found:
        which = "No window has a plan yet" if window is None else f"Window {show(window)} has no plan yet"
        typer.echo(f"{which}. `tilewright plan` shows what there is to do, `tilewright run` does it.")
    else:
        numbers = ("partitions", "settled", *_NUMBERS)
        rows = [[item.window, item.word, item.partitions, item.settled, *(item.units[n] for n in _NUMBERS)] for item in found]
        print_table("Batch windows", ["window", "standing", *numbers], rows, numbers=numbers)
        _print_runs(runs, silent_since=datetime.now(UTC) - timedelta(seconds=settings.sensors.heartbeat_timeout_s))
        if letters:
            said = ", ".join(f"{number} {kind}" for kind, number in sorted(letters.items()))
            typer.echo(f"\nOpen dead letters: {said}. `tilewright quarantine list` names them.")
    raise typer.Exit(ExitCode.COMPLETE if is_complete else ExitCode.INCOMPLETE)


def _run_facts(run: RunRow) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "asset": run.asset,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "outcome": run.outcome,
        "summary": dict(run.summary or {}),
    }


def run_standing(run: RunRow, *, silent_since: datetime) -> str:
    """How a run ended, or what is known of one that did not: a killed run says nothing any more."""
    if run.ended_at is not None:
        return show(run.outcome)
    seen = run.heartbeat_at or run.started_at
    return "running" if seen >= silent_since else f"silent since {show(seen)}"


def _print_runs(runs: list[RunRow], *, silent_since: datetime) -> None:
    numbers = ("processed", "skipped", "failed", "quarantined", "not attempted")
    rows = []
    for run in runs:
        summary = run.summary or {}
        counts = [summary.get(name.replace(" ", "_")) for name in numbers]
        rows.append([run.run_id[:8], run.asset, run.started_at, run_standing(run, silent_since=silent_since), *counts])
    if rows:
        print_table("\nLast runs", ["run", "asset", "started", "outcome", *numbers], rows, numbers=numbers)
