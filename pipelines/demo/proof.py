"""The proof that ends every demo: a second pass that does nothing, and outputs, rows and records that agree."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from pipelines.cli.running import FIVE, print_summary, run_and_watch, unit_runs, window_facts

if TYPE_CHECKING:
    from assets.project import Project


@dataclass(slots=True)
class Proof:
    """Claims, each with whether it held."""

    console: Console
    claims: list[tuple[bool, str]] = field(default_factory=list)

    def claim(self, holds: bool, words: str) -> None:
        """Note a claim and print it at once."""
        self.claims.append((holds, words))
        self.console.print(f"  {'[green]yes[/]' if holds else '[red]NO[/] '}  {words}", soft_wrap=True)

    @property
    def holds(self) -> bool:
        """Whether every claim held."""
        return all(holds for holds, _ in self.claims)


def second_pass(project: Project, proof: Proof) -> None:
    """Run every window once more from the command line, and claim that nothing was computed and nothing changed."""
    proof.console.rule("A second pass over everything")
    units = project.shape.units
    windows = [window.key for window in project.calendar.windows(project.ledger.clock())]
    first = [window_facts(project, name, ()) for name in windows]
    files, rows = _contents(project.config.store_dir), _rows(project)
    runs = unit_runs(project, windows)
    trouble = run_and_watch(project, runs)
    second = [window_facts(project, name, runs) for name in windows]
    proof.claim(trouble is None, "the second pass ran" + (f": {trouble.words}" if trouble else ""))
    proof.claim(all(item["processed"] == 0 for item in second), "it computed nothing")
    after = _contents(project.config.store_dir)
    changed = sorted(name for name in files.keys() | after.keys() if files.get(name) != after.get(name))
    proof.claim(not changed, f"it changed no byte and no time of {len(files)} files{f', save {changed}' if changed else ''}")
    if rows:
        proof.claim(_rows(project) == rows, f"it added and changed none of {len(rows)} rows")
    tried = [row.attempt for row in project.ledger.units(asset=units)]
    proof.console.print(f"\nFirst pass, with all that went wrong ({sum(tried)} attempts at {len(tried)} units):")
    for item in first:
        whole = project.ledger.counts(asset=units, window=item["window"])
        item.update({name: getattr(whole, name) for name in FIVE})
    print_summary(first)
    proof.console.print("\nSecond pass:")
    print_summary(second)


def agreement(project: Project, proof: Proof) -> None:
    """Claim that what is recorded complete is there, by digest, and that nothing half written is left."""
    from resources.reconciliation import reconcile
    from resources.sweep import sweep_staging

    proof.console.rule("Proof")
    ledger, store = project.ledger, project.store
    found = []
    for asset in (*project.shape.window_assets, *project.shape.more):
        names = [row.partition for row in ledger.partition_rows(asset)]
        found.append(reconcile(ledger, store, asset=asset, partitions=names, deep=True))
    complete = sum(item.complete for item in found)
    proof.claim(
        all(item.agrees for item in found),
        f"{complete} units recorded complete == {sum(item.outputs for item in found)} outputs, by digest",
    )
    list(sweep_staging(ledger, store, living_runs=(), older_than_s=0, dry_run=False))
    proof.claim(not list(store.staged_files()), "no staged file is left after the sweep")


def _rows(project: Project) -> list[tuple[object, ...]]:
    """Events and records as they are in the ledger, with the time at which they were written."""
    return [("event", row) for row in project.ledger.events()] + [("record", row) for row in project.ledger.records()]


def _contents(folder: Path) -> dict[str, tuple[str, int]]:
    def files() -> Iterator[Path]:
        yield from (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))

    return {
        path.relative_to(folder).as_posix(): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in files()
    }
