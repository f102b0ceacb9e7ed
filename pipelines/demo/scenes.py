"""The demo of the main job: scenes of three days, one of them broken, to tiles, catalogue, statistics and report.

Nothing is simulated beside the days of the scenes: sensors start the runs, a source fails, a worker is killed by SIGKILL, a scene
is cut short, an output is deleted behind the ledger's back, a scene comes late.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from pipelines.demo.imagery import load_imagery
from pipelines.demo.scenes_project import DemoProject, build_project
from pipelines.demo.telling import Stage
from resources.units import UnitState

if TYPE_CHECKING:
    from assets.project import Project

_COMPLETE = UnitState.COMPLETE
_FIRST_S = 900.0
_REPAIR_S = 600.0


class ScenesStory:
    """Scenes to tiles."""

    name = "scenes"
    title = "scenes to tiles"
    fault_plan = "stage.open=transient*7;stage.written=kill*1@40"
    """The first seven openings of the source fail; the worker that wrote the fortieth output is killed before it is safe."""

    def __init__(self) -> None:
        self._built: DemoProject | None = None

    @contextmanager
    def prepared(self, folder: Path, *, cache: Path, console: Console) -> Iterator[Path]:
        """Scenes of three made-up days."""
        built = self._built = build_project(folder, load_imagery(cache))
        number = len(list(built.scenes.glob("*.tif")))
        console.print(built.imagery.story)
        console.print(f"{number} scenes of three days in {built.scenes}; one, {built.broken.name}, is cut short.")
        yield built.config

    def play(self, stage: Stage) -> None:
        """First everything, with faults; then a repair and a late scene."""
        assert self._built is not None
        windows = [window.key for window in stage.project.calendar.windows(stage.project.ledger.clock())]
        if _first_pass(stage, self._built, windows):
            _repair(stage, self._built, windows)

    def places(self, project: Project) -> list[tuple[str, str]]:
        """The report, and what a change would redo."""
        reports = sorted(project.config.store_dir.glob("window_report/*.html"))
        return [
            ("tilewright plan --why", "what a change would redo"),
            (str(reports[-1]) if reports else "-", "a window's report, for a browser"),
        ]


def _first_pass(stage: Stage, built: DemoProject, windows: list[str]) -> bool:
    console, proof = stage.console, stage.proof
    console.rule("1. The daemon finds scenes and runs their windows")
    console.print("On purpose: the source fails seven times, a worker is killed in the middle of a write, one scene is broken.")
    done = stage.settles(windows, until_s=_FIRST_S, extra=lambda: bool(stage.receiver.titles))
    proof.claim(done, "all three windows are settled, with catalogue, statistics and report, and an alert came")
    if not done:
        return False
    proof.claim(stage.has_injected("stage.open-") >= 7, "the source failed seven times, and its units were tried again")
    killed = stage.has_injected("stage.written-kill-40") == 1
    proof.claim(killed, "a worker was killed by SIGKILL between writing and making safe")
    letters = list(stage.project.ledger.dead_letters())
    named = [letter for letter in letters if letter.subject == "input" and built.broken.stem in letter.name]
    proof.claim(len(letters) == len(named) == 1, "the broken scene is one dead letter, however many tiles it touches")
    titles = stage.receiver.titles
    proof.claim(len(titles) == 1, f"one alert came by HTTP: {'; '.join(titles)}")
    return True


def _repair(stage: Stage, built: DemoProject, windows: list[str]) -> None:
    project, tiles, window = stage.project, stage.project.shape.units, windows[1]
    stage.console.rule("2. An output is deleted behind the ledger's back, and a late scene arrives")
    rows = [row for row in project.ledger.units(asset=tiles, window=window) if row.state is _COMPLETE]
    victim, before = rows[0], {row.key for row in rows}
    project.store.path(victim.output_uri).unlink()
    late = built.add_late_scene()
    stage.console.print(f"Deleted {victim.output_uri}; added {late.name}.")
    done = stage.settles(windows, until_s=_REPAIR_S, extra=lambda: _has_changed(project, window, before) and _is_whole(project))
    stage.proof.claim(done, "the window was woken, the deleted output was made again, and catalogue and report followed")
    rows = list(project.ledger.units(asset=tiles, window=window))
    kept = sum(1 for row in rows if row.key in before and row.state is _COMPLETE)
    fresh = sum(1 for row in rows if row.key not in before and row.state is _COMPLETE)
    stage.proof.claim(0 < fresh < kept, f"the late scene redid {fresh} tiles that it touches and left {kept} alone")


def _has_changed(project: Project, window: str, before: set[str]) -> bool:
    now = {row.key for row in project.ledger.units(asset=project.shape.units, window=window) if row.state is _COMPLETE}
    return bool(now - before)


def _is_whole(project: Project) -> bool:
    rows = project.ledger.units(asset=project.shape.units, state=_COMPLETE)
    return all(project.store.size(row.output_uri) == row.output_size for row in rows)
