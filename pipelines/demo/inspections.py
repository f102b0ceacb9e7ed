"""The demo of inspections: reports of towers, listed by a table and served by a web server that fails, to compliance records.

One report is scanned, one is of a site that nobody knows, two claim one site and period; a worker is killed by SIGKILL. Then the
scanned one is delivered again with its text, and another is corrected under its address.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from assets.inspections.shape import RECORDS
from pipelines.demo.report_server import ReportServer, report_server
from pipelines.demo.reports import DemoReports, build_reports
from pipelines.demo.telling import Stage
from resources.errors import ErrorKind
from resources.units import UnitState

if TYPE_CHECKING:
    from assets.project import Project

_FIRST_S = 240.0
_REPAIR_S = 120.0
_BUSY, _CUT_SHORT = 5, 2


class InspectionsStory:
    """Reports to records."""

    name = "inspections"
    title = "inspection reports to compliance records"
    fault_plan = "stage.written=kill*1@7"
    """The worker that read the seventh report is killed before its record is safe."""

    def __init__(self) -> None:
        self._built: DemoReports | None = None
        self._server: ReportServer | None = None

    @contextmanager
    def prepared(self, folder: Path, *, cache: Path, console: Console) -> Iterator[Path]:  # noqa: ARG002 - nothing is fetched
        """Reports of a month, and the server that has them."""
        served = folder / "served"
        served.mkdir(parents=True, exist_ok=True)
        with report_server(served, busy=_BUSY, cut_short=_CUT_SHORT) as server:
            built = self._built = build_reports(folder, served=served, url=server.url)
            self._server = server
            console.print(
                f"{built.number} reports of a month, made for this demo, behind {server.url} and listed in {built.lists}."
            )
            console.print(
                f"{built.scanned.name} is scanned, {built.stranger.name} is of a site that is in no registry, and two reports "
                "are of one site and period."
            )
            yield built.config

    def play(self, stage: Stage) -> None:
        """First everything, with faults; then a report with its text, and a correction."""
        assert self._built is not None
        assert self._server is not None
        windows = [window.key for window in stage.project.calendar.windows(stage.project.ledger.clock())]
        if _first_pass(stage, self._built, self._server, windows):
            _corrections(stage, self._built, windows)

    def places(self, project: Project) -> list[tuple[str, str]]:
        """A page, a table, the dead letters."""
        root = project.config.store_dir
        pages, tables = sorted(root.glob("inspection_page/*.html")), sorted(root.glob("inspection_table/*.parquet"))
        return [
            (str(pages[-1]) if pages else "-", "a window's page, for a browser"),
            (str(tables[-1]) if tables else "-", "a window's records"),
        ]


def _first_pass(stage: Stage, built: DemoReports, server: ReportServer, windows: list[str]) -> bool:
    proof, ledger = stage.proof, stage.project.ledger
    stage.console.rule("1. The daemon reads the table, takes the reports and records them")
    stage.console.print(
        f"On purpose: the server is busy {_BUSY} times and cuts {_CUT_SHORT} bodies short, a worker is killed at work."
    )
    done = stage.settles(windows, until_s=_FIRST_S, extra=lambda: bool(stage.receiver.titles))
    proof.claim(done, "the window is settled, with table and page, and an alert came")
    if not done:
        return False
    proof.claim(
        server.failures_left == 0, f"the server failed {_BUSY + _CUT_SHORT} times, and its reports were taken all the same"
    )
    killed = stage.has_injected("stage.written-kill-7") == 1
    proof.claim(killed, "a worker was killed by SIGKILL between reading and recording, and its report was recorded once")
    kinds = {letter.kind for letter in ledger.dead_letters()}
    expected = {ErrorKind.NO_TEXT, ErrorKind.UNKNOWN_SITE, ErrorKind.DUPLICATE_KEY}
    proof.claim(
        kinds == expected, f"three dead letters, each with its reason: {', '.join(sorted(kinds))}; they stopped no other report"
    )
    records = list(ledger.records())
    pairs = {(record.site, record.period) for record in records}
    proof.claim(len(records) == len(pairs) == built.number - 3, f"{len(records)} records, one for each site and period")
    return True


def _corrections(stage: Stage, built: DemoReports, windows: list[str]) -> None:
    proof, ledger = stage.proof, stage.project.ledger
    stage.console.rule("2. The scanned report comes with its text, and another is corrected under its address")
    before = {record.source_uri: record for record in ledger.records()}
    letters = {letter.kind: letter.subject_key for letter in ledger.dead_letters()}
    mended, corrected = letters[ErrorKind.NO_TEXT], built.correct()
    stage.console.print(f"Delivered {built.scanned.name} and {built.corrected.name} again; the server tells by their ETags.")

    def is_taken() -> bool:
        now = {record.unit_key: record for record in ledger.records()}
        old = before[corrected]
        return mended in now and now[old.unit_key].content_digest != old.content_digest

    done = stage.settles(windows, until_s=_REPAIR_S, extra=is_taken)
    proof.claim(done, "the sensor saw both, and the window was run again by itself")
    if not done:
        return
    old = before[corrected]
    past = ledger.record_history(old.unit_key)
    proof.claim(
        [one.content_digest for one in past] == [old.content_digest], "the corrected record is in place, the old one in history"
    )
    kinds = sorted(letter.kind for letter in ledger.dead_letters())
    proof.claim(kinds == sorted([ErrorKind.UNKNOWN_SITE, ErrorKind.DUPLICATE_KEY]), "the mended report's dead letter is closed")
    others = [record for record in ledger.records() if record.source_uri not in (corrected, _uri(stage, mended))]
    proof.claim(all(before[record.source_uri] == record for record in others), "no other record was touched")


def _uri(stage: Stage, key: str) -> str:
    (row,) = stage.project.ledger.units(asset=RECORDS, keys=[key], state=UnitState.COMPLETE)
    return str(row.spec["uri"])
