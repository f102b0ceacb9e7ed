"""The demo of digitization: two batches of drawn masters to JPEG 2000 copies, preservation events and PREMIS documents.

A file is damaged in transfer, another is cut short, a worker is killed by SIGKILL; then a captured master is rewritten in place,
and put back, and a copy is deleted behind the ledger's back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from assets.digitization.events import EventType
from assets.digitization.export import document_uri
from assets.digitization.report import report_uri
from assets.digitization.shape import COPIES
from pipelines.demo.masters import DemoMasters, build_masters
from pipelines.demo.telling import Stage
from resources.units import UnitState

if TYPE_CHECKING:
    from assets.digitization.project import DigitizationProject
    from assets.project import Project

_FIRST_S = 300.0
_REPAIR_S = 240.0
_CONTENTS = 8


class DigitizationStory:
    """Masters to access copies."""

    name = "digitization"
    title = "masters to access copies and preservation events"
    fault_plan = "stage.written~derivative:jp2=kill*1@4"
    """The worker that wrote the fourth copy is killed before it is safe."""

    def __init__(self) -> None:
        self._built: DemoMasters | None = None

    @contextmanager
    def prepared(self, folder: Path, *, cache: Path, console: Console) -> Iterator[Path]:  # noqa: ARG002 - nothing is fetched
        """Two batches of drawn masters."""
        built = self._built = build_masters(folder)
        number = len(list(built.folder.rglob("*.tif")))
        console.print(
            f"{number} masters, drawn for this demo, in two batches below {built.folder}: colour, grey, palette, bitonal,"
        )
        console.print("a container of three pages, one letter twice under two names.")
        console.print(f"{built.damaged.name} differs from its batch's manifest in one bit; {built.cut.name} is cut short.")
        yield built.config

    def play(self, stage: Stage) -> None:
        """First everything, with faults; then a rewritten master; then its return, and a lost copy."""
        from assets.digitization.project import DigitizationProject

        assert self._built is not None
        assert isinstance(stage.project, DigitizationProject)
        windows = [window.key for window in stage.project.calendar.windows(stage.project.ledger.clock())]
        if _first_pass(stage, stage.project, windows):
            sound = _rewritten(stage, stage.project, self._built)
            _restored(stage, stage.project, self._built, sound=sound)

    def places(self, project: Project) -> list[tuple[str, str]]:
        """A page, a copy's record, and what a change would redo."""
        root = project.config.store_dir
        pages, documents = sorted(root.glob("batch_report/*.html")), sorted(root.glob("premis_export/*/*.xml"))
        return [
            ("tilewright plan --why", "what a change would redo"),
            (str(pages[-1]) if pages else "-", "a window's page, for a browser"),
            (str(documents[0]) if documents else "-", "an object's PREMIS document"),
        ]


def _first_pass(stage: Stage, project: DigitizationProject, windows: list[str]) -> bool:
    proof, ledger = stage.proof, project.ledger
    stage.console.rule("1. The daemon takes the batches in and runs their windows")
    done = stage.settles(windows, until_s=_FIRST_S, extra=lambda: bool(stage.receiver.titles))
    proof.claim(done, "both windows are settled, with events, PREMIS documents and page, and an alert came")
    if not done:
        return False
    killed = stage.has_injected("stage.written-kill-4") == 1
    proof.claim(killed, "a worker was killed by SIGKILL between writing and making safe, and its copy was made after all")
    kinds = sorted(letter.kind for letter in ledger.dead_letters())
    proof.claim(
        kinds == ["corrupt_input", "damaged_in_transfer"],
        "the damaged and the cut file are one dead letter each and stopped no other",
    )
    copies = [row for row in ledger.units(asset=COPIES) if row.state is UnitState.COMPLETE]
    objects = sum(1 for _ in ledger.captures())
    proof.claim(
        (len(copies), objects) == (_CONTENTS, _CONTENTS + 1),
        f"{objects} objects were captured, {len(copies)} copies made: equal bytes under two names are one content",
    )
    lossless = all(row.metrics.get("lossless") for row in copies)
    proof.claim(lossless, "every copy was decoded again before it was promoted, and gave its master's pixels")
    events = [event.event_id for event in ledger.events()]
    proof.claim(len(events) == len(set(events)) == 4 * len(copies), f"{len(events)} events, four for each content, each once")
    return True


def _rewritten(stage: Stage, project: DigitizationProject, built: DemoMasters) -> bytes:
    """What the master held before."""
    proof, ledger = stage.proof, project.ledger
    stage.console.rule("2. A captured master is rewritten in place, and the day's fixity checks run")
    keys, uri = _complete(project), built.rewritten.relative_to(built.folder).as_posix()
    sound = built.rewritten.read_bytes()
    built.rewritten.write_bytes(sound + b"a note that some program added")
    stage.console.print(f"Added a note to {uri}.")
    _check_fixity(project)
    page = project.store.path(report_uri(built.first_window))
    # no window is named: the copies stay as they are, and so do their events
    done = stage.settles(
        (),
        until_s=_REPAIR_S,
        extra=lambda: any(uri in title for title in stage.receiver.titles) and "CHANGED" in page.read_text(),
    )
    proof.claim(done, "an alert came, and the window's page names it")
    proof.claim(_complete(project) == keys, "the rewritten master changed no key and no copy")
    fixity = list(ledger.events(event_type=EventType.FIXITY.value))
    failed = [one["object"] for event in fixity if event.outcome == "fail" for one in event.detail["objects"]]
    proof.claim(failed == [uri], "the fixity check named it, with the digest expected and the digest found")
    proof.claim(built.rewritten.read_bytes() != sound, "nothing was repaired by itself")
    return sound


def _restored(stage: Stage, project: DigitizationProject, built: DemoMasters, *, sound: bytes) -> None:
    stage.console.rule("3. A person puts the master back, and a copy is deleted behind the ledger's back")
    rows = [row for row in project.ledger.units(asset=COPIES) if row.state is UnitState.COMPLETE]
    keys, lost = _complete(project), next(row for row in rows if row.window == built.first_window)
    project.store.remove(lost.output_uri)
    built.rewritten.write_bytes(sound)
    stage.console.print(f"Deleted {lost.output_uri}.")
    page = project.store.path(report_uri(built.first_window))
    uri = built.rewritten.relative_to(built.folder).as_posix()
    document = project.store.path(document_uri(built.first_window, uri))

    def is_whole() -> bool:
        is_back = project.store.size(lost.output_uri) == lost.output_size
        return is_back and "CHANGED" not in page.read_text() and "fixity check" in document.read_text()

    done = stage.settles((), until_s=_REPAIR_S, extra=is_whole)
    stage.proof.claim(
        done, "the copy was made again, byte by byte; the page is clean, and the PREMIS document tells the failed check"
    )
    stage.proof.claim(_complete(project) == keys, "no other copy was touched")


def _complete(project: DigitizationProject) -> set[tuple[str, str | None]]:
    return {(row.key, row.output_digest) for row in project.ledger.units(asset=COPIES) if row.state is UnitState.COMPLETE}


def _check_fixity(project: DigitizationProject) -> None:
    """The daily run of fixity checks, now."""
    from pipelines.cli.launching import LaunchedRun, execute_runs

    period = project.fixity_calendar.window_of(project.ledger.clock())
    assert period is not None
    run = LaunchedRun("fixity_period", period.key, (period.key,))
    execute_runs([run], log=project.config.state_dir / "logs" / "fixity.log")
