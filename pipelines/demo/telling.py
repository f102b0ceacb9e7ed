"""A demo from beginning to end, whatever its pipeline: real Dagster daemon, real runs, real faults, and the proof at the end.

Belongs here: what every demo does. What one of them shows is a `Story`: `scenes`, `digitization`, `inspections` in this folder.
Nothing is simulated beside what a story says; every claim that is printed is checked, and the exit code says whether all held.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rich.console import Console

from pipelines.cli.home import WORKSPACE, enter_home
from pipelines.cli.printing import progress_of_units
from pipelines.demo.daemon import dagster_daemon
from pipelines.demo.proof import Proof, agreement, second_pass
from pipelines.demo.receiver import AlertReceiver, alert_receiver
from resources.sweep import holding_runs
from resources.units import UnitState

if TYPE_CHECKING:
    from assets.project import Project

LEFT_BY_A_DEMO = ("state", "outputs")
"""Folders of a demo's project that are removed before it begins: a story writes `state = "state"` and `uri = "outputs"`."""

_POLL_S = 0.5


@dataclass(frozen=True)
class Stage:
    """What a story is played on: the open project, its daemon at work, and where its claims go.

    `faults` is the folder in which every injected fault leaves a file, named by its point; see `resources.crashpoints`.
    """

    project: Project
    daemon: subprocess.Popen[bytes]
    receiver: AlertReceiver
    proof: Proof
    faults: Path
    log: Path

    @property
    def console(self) -> Console:
        """Where the story is told."""
        return self.proof.console

    def settles(self, windows: Sequence[str], *, until_s: float, extra: Callable[[], bool] = lambda: True) -> bool:
        """Show progress until all that is of these windows is settled and made, and `extra` holds.

        False, with the place of the daemon's words, when the time is over or the daemon died.
        """
        if _wait(self, windows, until_s=until_s, extra=extra):
            return True
        self.console.print(f"The daemon's words are in {self.log}")
        return False

    def has_injected(self, name: str) -> int:
        """How many injected faults of that beginning happened, e.g. `stage.written-kill`."""
        return len(list(self.faults.glob(f"{name}*")))


class Story(Protocol):
    """What one demo shows, in less than a minute: all of them together are to take less than three.

    `name` is the pipeline's, `title` a headline, `fault_plan` the faults of the daemon's runs as `TILEWRIGHT_FAULTS` takes them.
    """

    name: str
    title: str
    fault_plan: str

    def prepared(self, folder: Path, *, cache: Path, console: Console) -> AbstractContextManager[Path]:
        """Write the project (inputs and `tilewright.toml` with `autostart = true`, short `[retry]` pauses, `interval_s = 4`) and
        give its configuration file; whatever it needs beside (a server of reports) runs until the end of the block.

        Writing twice gives the same bytes and times. Says on `console` what is there and what is broken on purpose.
        """
        ...

    def play(self, stage: Stage) -> None:
        """Let the daemon work, break things, let it mend them, and claim what came of it by `stage.proof.claim`."""
        ...

    def places(self, project: Project) -> list[tuple[str, str]]:
        """Where a person may look afterwards: (file or command, what it shows)."""
        ...


def tell(story: Story, folder: Path, *, cache: Path, console: Console) -> bool:
    """Tell a story in `folder`; True when all that it claims was so. What an earlier demo left there is removed first."""
    from assets.project import open_project

    console.rule(f"Tilewright demo: {story.title}")
    for name in LEFT_BY_A_DEMO:
        shutil.rmtree(folder / name, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    proof = Proof(console)
    with story.prepared(folder, cache=cache, console=console) as config, alert_receiver() as receiver:
        os.environ["TILEWRIGHT_CONFIG"] = str(config)
        os.environ["TILEWRIGHT_ALERTS__URLS"] = receiver.url
        project = open_project(config)
        enter_home(project.config)
        faults = project.config.state_dir / "faults"
        log = project.config.state_dir / "logs" / "daemon.log"
        environment = {**os.environ, "TILEWRIGHT_FAULTS": story.fault_plan, "TILEWRIGHT_FAULTS_DIR": str(faults)}
        with dagster_daemon(WORKSPACE, log=log, environment=environment) as daemon:
            story.play(Stage(project, daemon, receiver, proof, faults, log))
        second_pass(project, proof)
        agreement(project, proof)
    console.rule("Where to look next")
    commands = [
        (f"export TILEWRIGHT_CONFIG={config}", "then:"),
        ("make dev", "the Dagster UI with this history, on 127.0.0.1:3000"),
        ("tilewright status", "every window; tilewright quarantine list, what was set aside"),
    ]
    for place, words in [*commands, *story.places(project)]:
        console.print(f"  {place:<30} {words}", highlight=False, soft_wrap=True)
    return proof.holds


def _wait(stage: Stage, windows: Sequence[str], *, until_s: float, extra: Callable[[], bool]) -> bool:

    ledger, shape = stage.project.ledger, stage.project.shape
    end = time.monotonic() + until_s
    with progress_of_units(stage.console) as progress:
        tasks = {window: progress.add_task(window, total=None, note="waiting for the daemon") for window in windows}
        steady = 0
        while time.monotonic() < end and stage.daemon.poll() is None:
            for window, task in tasks.items():
                counts = ledger.counts(asset=shape.units, window=window)
                made = sum(ledger.counts(asset=asset, window=window).processed > 0 for asset in shape.outputs)
                note = f"{counts.failed} failed, {counts.quarantined} quarantined, {made} of {len(shape.outputs)} window outputs"
                if counts.planned:
                    progress.update(task, completed=counts.processed + counts.quarantined, total=counts.planned, note=note)
            # several times in a row: between two looks a sensor may have started the next thing
            steady = steady + 1 if _is_settled(stage.project, windows) and extra() else 0
            if steady >= 3:
                return True
            time.sleep(_POLL_S)
    return False


def _is_settled(project: Project, windows: Sequence[str]) -> bool:
    ledger, shape = project.ledger, project.shape
    now = ledger.clock()
    assets = (shape.units, *shape.outputs)
    # by lease, not by the ledger's list of runs: one that was killed never said that it ended
    if holding_runs(ledger, project.leases) or any(ledger.due_partitions(asset, now=now) for asset in assets):
        return False
    planned = {row.window for row in ledger.partition_rows(shape.units)}
    return planned >= set(windows) and all(_has_followed(project, window) for window in windows)


def _has_followed(project: Project, window: str) -> bool:
    """Whether all that is made of the window's units was made after the last of them."""

    def last(asset: str) -> float | None:
        rows = project.ledger.units(asset=asset, window=window, state=UnitState.COMPLETE)
        return max((row.completed_at.timestamp() for row in rows if row.completed_at is not None), default=None)

    units = last(project.shape.units)
    outputs = [last(asset) for asset in project.shape.outputs]
    return units is not None and all(at is not None and at >= units for at in outputs)
