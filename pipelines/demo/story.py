"""The demo from beginning to end: real Dagster daemon, real runs, real faults, and the proof at the end.

Nothing is simulated beside the days of the scenes: sensors start the runs, a worker is killed by SIGKILL, a scene is cut short,
an output is deleted behind the ledger's back. Every claim that is printed is checked, and the exit code says whether all held.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from pipelines.cli.home import WORKSPACE, enter_home
from pipelines.cli.running import FIVE, print_summary, run_and_watch, unit_runs, window_facts
from pipelines.demo.daemon import dagster_daemon
from pipelines.demo.imagery import load_imagery
from pipelines.demo.project import DemoProject, build_project
from pipelines.demo.receiver import AlertReceiver, alert_receiver
from resources.units import UnitState

if TYPE_CHECKING:
    from assets.project import Project

TILES = "tiles"
_COMPLETE = UnitState.COMPLETE
OUTPUTS = ("tile_catalogue", "zone_statistics", "window_report")
FAULTS = "stage.open=transient*7;stage.written=kill*1@40"
"""The first seven openings of the source fail; the worker that wrote the fortieth output is killed before it is safe."""

_FIRST_S = 900.0
_REPAIR_S = 600.0
_POLL_S = 0.5


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


def tell(folder: Path, *, cache: Path, console: Console) -> bool:
    """Run the demo in `folder`; True when everything that it claims was so. What an earlier demo left there is removed first."""
    from assets.project import open_project

    console.rule("Tilewright demo")
    for name in ("state", "outputs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    built = build_project(folder, load_imagery(cache))
    console.print(built.imagery.story)
    console.print(
        f"{len(list(built.scenes.glob('*.tif')))} scenes of three days in {built.scenes}; one, {built.broken.name}, is cut short."
    )
    os.environ["TILEWRIGHT_CONFIG"] = str(built.config)
    proof = Proof(console)
    with alert_receiver() as receiver:
        os.environ["TILEWRIGHT_ALERTS__URLS"] = receiver.url
        project = open_project(built.config)
        enter_home(project.config)
        _with_the_daemon(project, built, receiver, proof)
    _second_pass(project, proof)
    _last_words(project, proof)
    return proof.holds


def _with_the_daemon(project: Project, built: DemoProject, receiver: AlertReceiver, proof: Proof) -> None:
    console, ledger = proof.console, project.ledger
    windows = [window.key for window in project.calendar.windows(ledger.clock())]
    counts = project.config.state_dir / "faults"
    environment = {**os.environ, "TILEWRIGHT_FAULTS": FAULTS, "TILEWRIGHT_FAULTS_DIR": str(counts)}
    log = project.config.state_dir / "logs" / "daemon.log"
    console.rule("1. The daemon finds scenes and runs their windows")
    console.print("On purpose: the source fails seven times, a worker is killed in the middle of a write, one scene is broken.")
    with dagster_daemon(WORKSPACE, log=log, environment=environment) as daemon:
        done = _wait(
            project, windows, console, until_s=_FIRST_S, extra=lambda: bool(receiver.titles), alive=lambda: daemon.poll() is None
        )
        proof.claim(done, "all three windows are settled, with catalogue, statistics and report, and an alert came")
        if not done:
            console.print(f"The daemon's words are in {log}")
            return
        proof.claim(len(list(counts.glob("stage.open-*"))) >= 7, "the source failed seven times, and its units were tried again")
        proof.claim((counts / "stage.written-kill-40").exists(), "a worker was killed by SIGKILL between writing and making safe")
        letters = list(ledger.dead_letters())
        named = [letter for letter in letters if letter.subject == "input" and built.broken.stem in letter.name]
        proof.claim(len(letters) == len(named) == 1, "the broken scene is one dead letter, however many tiles it touches")
        proof.claim(len(receiver.titles) == 1, f"one alert came by HTTP: {'; '.join(receiver.titles)}")

        console.rule("2. An output is deleted behind the ledger's back, and a late scene arrives")
        victim = next(row for row in ledger.units(asset=TILES, window=windows[1]) if row.state is _COMPLETE)
        project.store.path(victim.output_uri).unlink()
        before = {row.key for row in ledger.units(asset=TILES, window=windows[1]) if row.state is _COMPLETE}
        late = built.add_late_scene()
        console.print(f"Deleted {victim.output_uri}; added {late.name}.")
        done = _wait(
            project,
            windows,
            console,
            until_s=_REPAIR_S,
            extra=lambda: _has_changed(project, windows[1], before) and _is_whole(project),
            alive=lambda: daemon.poll() is None,
        )
        proof.claim(done, "the window was woken, the deleted output was made again, and catalogue and report followed")
        rows = list(ledger.units(asset=TILES, window=windows[1]))
        kept = sum(1 for row in rows if row.key in before and row.state is _COMPLETE)
        fresh = sum(1 for row in rows if row.key not in before and row.state is _COMPLETE)
        proof.claim(0 < fresh < kept, f"the late scene redid {fresh} tiles that it touches and left {kept} alone")


def _second_pass(project: Project, proof: Proof) -> None:
    proof.console.rule("3. A second pass over everything")
    windows = [window.key for window in project.calendar.windows(project.ledger.clock())]
    first = [window_facts(project, name, ()) for name in windows]
    before = _contents(project.config.store_dir)
    runs = unit_runs(project, windows)
    trouble = run_and_watch(project, runs)
    second = [window_facts(project, name, runs) for name in windows]
    proof.claim(trouble is None, "the second pass ran" + (f": {trouble.words}" if trouble else ""))
    proof.claim(all(item["processed"] == 0 for item in second), "it computed nothing")
    after = _contents(project.config.store_dir)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    proof.claim(not changed, f"it changed no byte and no time of {len(before)} files{f', save {changed}' if changed else ''}")
    tried = [row.attempt for row in project.ledger.units(asset=TILES)]
    proof.console.print(f"\nFirst pass, with all that went wrong ({sum(tried)} attempts at {len(tried)} units):")
    for item in first:
        whole = project.ledger.counts(asset=TILES, window=item["window"])
        item.update({name: getattr(whole, name) for name in FIVE})
    print_summary(first)
    proof.console.print("\nSecond pass:")
    print_summary(second)


def _last_words(project: Project, proof: Proof) -> None:
    from resources.reconciliation import reconcile
    from resources.sweep import sweep_staging

    console, ledger, store = proof.console, project.ledger, project.store
    console.rule("4. Proof")
    found = []
    for asset in (TILES, *OUTPUTS):
        names = [row.partition for row in ledger.partition_rows(asset)]
        found.append(reconcile(ledger, store, asset=asset, partitions=names, deep=True))
    complete = sum(item.complete for item in found)
    proof.claim(
        all(item.agrees for item in found),
        f"{complete} units recorded complete == {sum(item.outputs for item in found)} outputs, by digest",
    )
    list(sweep_staging(ledger, store, living_runs=(), older_than_s=0, dry_run=False))
    proof.claim(not list(store.staged_files()), "no staged file is left after the sweep")
    console.rule("Where to look next")
    reports = sorted(project.config.store_dir.glob("window_report/*.html"))
    for line in (
        "make dev                      the Dagster UI with this history, on 127.0.0.1:3000",
        f"{reports[-1] if reports else '-'}  a window's report, for a browser",
        f"export TILEWRIGHT_CONFIG={project.config.path}",
        "tilewright status             every window; tilewright quarantine list, what was set aside",
        "tilewright plan --why         what a change would redo",
    ):
        console.print(f"  {line}", highlight=False, soft_wrap=True)


def _wait(
    project: Project,
    windows: list[str],
    console: Console,
    *,
    until_s: float,
    extra: Callable[[], bool],
    alive: Callable[[], bool],
) -> bool:
    """Show progress until everything is settled and `extra` holds; False when the time is over or the daemon died."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    end = time.monotonic() + until_s
    with Progress(*columns, console=console) as progress:
        tasks = {window: progress.add_task(window, total=None, note="waiting for the daemon") for window in windows}
        steady = 0
        while time.monotonic() < end and alive():
            for window, task in tasks.items():
                counts = project.ledger.counts(asset=TILES, window=window)
                made = sum(project.ledger.counts(asset=asset, window=window).processed > 0 for asset in OUTPUTS)
                note = f"{counts.failed} failed, {counts.quarantined} quarantined, {made} of {len(OUTPUTS)} window outputs"
                if counts.planned:
                    progress.update(task, completed=counts.processed + counts.quarantined, total=counts.planned, note=note)
            # twice in a row: between two looks a sensor may have started the next thing
            steady = steady + 1 if _is_settled(project, windows) and extra() else 0
            if steady >= 3:
                return True
            time.sleep(_POLL_S)
    return False


def _is_settled(project: Project, windows: list[str]) -> bool:
    ledger = project.ledger
    now = ledger.clock()
    if ledger.runs(unended=True, limit=1) or any(ledger.due_partitions(asset, now=now) for asset in (TILES, *OUTPUTS)):
        return False
    planned = {row.window for row in ledger.partition_rows(TILES)}
    return planned >= set(windows) and all(_has_followed(project, window) for window in windows)


def _has_followed(project: Project, window: str) -> bool:
    """Whether catalogue, statistics and report were made after the window's last tile."""
    done = {
        asset: [row.completed_at for row in project.ledger.units(asset=asset, window=window, state=_COMPLETE)]
        for asset in (TILES, *OUTPUTS)
    }
    times = {asset: [at for at in found if at is not None] for asset, found in done.items()}
    return all(times.values()) and all(max(times[asset]) >= max(times[TILES]) for asset in OUTPUTS)


def _has_changed(project: Project, window: str, before: set[str]) -> bool:
    now = {row.key for row in project.ledger.units(asset=TILES, window=window) if row.state is _COMPLETE}
    return bool(now - before)


def _is_whole(project: Project) -> bool:
    rows = project.ledger.units(asset=TILES, state=_COMPLETE)
    return all(project.store.size(row.output_uri) == row.output_size for row in rows)


def _contents(folder: Path) -> dict[str, tuple[str, int]]:
    def files() -> Iterator[Path]:
        yield from (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))

    return {
        path.relative_to(folder).as_posix(): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in files()
    }
