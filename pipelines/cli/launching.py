"""Runs launched from the command line: which ones, in a child process of their own, watched through the ledger."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from assets.pipeline_shape import OUTPUTS_JOB
from pipelines.cli.home import ROOT

if TYPE_CHECKING:
    from assets.project import Project

_POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class LaunchedRun:
    """One Dagster run to be executed: a job over a range of partitions, all of which are wanted."""

    job: str
    window: str
    partitions: tuple[str, ...]
    run_id: str = field(default_factory=lambda: str(uuid4()))

    def request(self) -> dict[str, Any]:
        """What the child process is told."""
        return {
            "run_id": self.run_id,
            "job": self.job,
            "start": self.partitions[0],
            "end": self.partitions[-1],
            "tags": {"tilewright/batch_window": self.window, "tilewright/requested_by": "command line"},
        }


def window_runs(project: Project, window: str, *, tiles: Collection[str] | None = None) -> list[LaunchedRun]:
    """Runs over all partitions of a window, or those of `tiles`: neighbours in one run, up to `sensors.partitions_per_run`."""
    names = project.partitions_of(window)
    return _in_ranges(project, [name for name in names if tiles is None or name.partition("|")[2] in tiles])


def unsettled_runs(project: Project, *, windows: Collection[str], tiles: Collection[str] | None = None) -> list[LaunchedRun]:
    """Runs over exactly the planned partitions that hold unsettled units, whether they are due already or not."""
    due = project.ledger.due_partitions(project.shape.units, now=project.ledger.clock())
    wanted = [row.partition for row in due if row.window in windows and (tiles is None or row.tile in tiles)]
    return _in_ranges(project, wanted)


def unsettled_windows(project: Project) -> set[str]:
    """Windows of which an output, that is made of their units, is planned and not settled."""
    now = project.ledger.clock()
    return {
        row.window
        for name in project.shape.outputs
        for row in project.ledger.due_partitions(name, now=now)
        if row.window is not None
    }


def downstream_run(project: Project, windows: Sequence[str]) -> list[LaunchedRun]:
    """One run of what is made of whole windows, for each stretch of windows that follow on each other."""
    begun = project.calendar.begun(project.ledger.clock())
    order = {window.key: number for number, window in enumerate(begun)}
    return [
        LaunchedRun(OUTPUTS_JOB, names[0], tuple(names))
        for names in _stretches([name for name in windows if name in order], order)
    ]


def _in_ranges(project: Project, names: Iterable[str]) -> list[LaunchedRun]:
    by_window: dict[str, set[str]] = {}
    for name in names:
        by_window.setdefault(name.partition("|")[0], set()).add(name)
    bound = project.config.sensors.partitions_per_run
    runs = []
    for window, mine in sorted(by_window.items()):
        order = {name: number for number, name in enumerate(project.partitions_of(window))}
        for stretch in _stretches([name for name in order if name in mine], order):
            runs += [
                LaunchedRun(project.shape.units_job, window, tuple(stretch[at : at + bound]))
                for at in range(0, len(stretch), bound)
            ]
    return runs


def _stretches(names: Sequence[str], order: dict[str, int]) -> Iterator[list[str]]:
    stretch: list[str] = []
    for name in names:
        if stretch and order[name] != order[stretch[-1]] + 1:
            yield stretch
            stretch = []
        stretch.append(name)
    if stretch:
        yield stretch


def failed_runs(log: Path) -> set[str]:
    """Ids of the runs of which the child process said, in its log, that they failed."""
    failed = set()
    with log.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if line.startswith('{"run_id"'):
                said = json.loads(line)
                if not said["succeeded"]:
                    failed.add(said["run_id"])
    return failed


def execute_runs(
    runs: Sequence[LaunchedRun],
    *,
    log: Path,
    on_tick: Callable[[], None] = lambda: None,
    environment: dict[str, str] | None = None,
) -> int:
    """Execute runs in one child process and wait; returns the child's exit code (0 also when runs failed, negative when killed).

    The child's own words go to `log`. After a crash of this process: the child is killed by the system, and the next run goes on.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        child = subprocess.Popen(
            [sys.executable, "-m", "pipelines.run_worker"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=stream,
            stderr=subprocess.STDOUT,
            text=True,
        )
        ended = threading.Event()
        try:
            assert child.stdin is not None
            try:
                child.stdin.writelines(json.dumps(run.request()) + "\n" for run in runs)
                child.stdin.close()
            except BrokenPipeError:
                pass  # it died at its start; its exit code and log say why
            while child.poll() is None:
                on_tick()
                ended.wait(_POLL_S)
            on_tick()
            return child.returncode
        except BaseException:
            child.terminate()
            child.wait()
            raise
