"""A small real project of inspections: reports listed by tables, served by a local server or lying in a folder, and its runs."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from assets.inspections.project import InspectionsProject
from assets.inspections.records_batch import RecordsBatch
from assets.inspections.shape import RECORDS
from assets.project import open_project
from pipelines.demo.report_pdfs import report_pdf
from resources.engine import RunReport
from resources.ledger import UnitRow
from resources.ledger.facts import RecordRow
from resources.units import UnitState

WINDOW = "2026-01"
PERIOD = "2026-01"
CONFIGURATION = """
pipeline = "inspections"
[window]
start = 2026-01-01
end = 2026-03-01
every = "month"
[source]
tables = "lists/{window}.csv"
settle_s = 0
recheck_minutes = 0
[fetch]
connect_s = 2
read_s = 2
total_s = 4
[retry]
tries_in_run = 2
attempts_max = 2
base_s = 0.01
later_base_s = 0.0
later_cap_s = 0.0
[executor]
workers = 1
[store]
min_free_mb = 0
[[fields]]
name = "condition"
label = "condition"
"""


def report_bytes(site: str, *, condition: str = "good", period: str = PERIOD) -> bytes:
    """A report that is in order."""
    return report_pdf({"Site": site, "Period": period, "Condition": condition})


class ReportProject:
    """The project in a folder, and the few things that tests do with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lists = folder / "lists"
        self.files = folder / "reports"
        self.lists.mkdir(parents=True)
        self.files.mkdir()
        self.configure()
        self._runs = 0

    def configure(self, *changes: tuple[str, str], extra: str = "") -> None:
        """Write the configuration with some texts replaced."""
        text = CONFIGURATION
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = self.folder / "tilewright.toml"
        path.write_text(text + extra)
        os.utime(path, ns=(0, hash((text, extra)) % 10**15))

    def change_rules(self, *, is_refusing: bool = False) -> None:
        """Configure other rules; with `is_refusing`, ones that no report meets."""
        self.configure(('label = "condition"', 'label = "verdict"' if is_refusing else 'label = "(?:overall )?condition"'))

    @property
    def project(self) -> InspectionsProject:
        """The project as configured now."""
        found = open_project(self.folder / "tilewright.toml")
        assert isinstance(found, InspectionsProject)
        return found

    def list_reports(self, reports: Iterable[tuple[str, str]], *, window: str = WINDOW, period: str = PERIOD) -> None:
        """Write the table of a window: (site, address) each."""
        with (self.lists / f"{window}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("site", "uri", "period"))
            writer.writerows((site, uri, period) for site, uri in reports)

    def put(self, name: str, content: bytes) -> str:
        """Write a report into the folder; gives its address."""
        path = self.files / name
        path.write_bytes(content)
        return str(path)

    def run(self, *windows: str) -> RunReport:
        """Run all reports of some windows."""
        self._runs += 1
        run_id = f"run{self._runs}"
        batch = RecordsBatch(self.project, windows or (WINDOW,), run_id=run_id)
        return self.project.engine().run(batch, run_id=run_id)

    def rows(self, *states: UnitState, window: str = WINDOW) -> list[UnitRow]:
        """Units planned now, of those states or of all."""
        return [row for row in self.project.ledger.planned(RECORDS, [window]) if not states or row.state in states]

    def by_site(self, window: str = WINDOW) -> Mapping[str, UnitRow]:
        """The unit of each site."""
        return {row.spec["site"]: row for row in self.rows(window=window)}

    def records(self, window: str | None = None) -> list[RecordRow]:
        """The records that stand."""
        return list(self.project.ledger.records(window=window))

    def snapshot(self) -> tuple[list[RecordRow], dict[str, bytes]]:
        """Every record with its time, and the bytes of every output."""
        root = self.project.store.root
        found = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.*")) if path.is_file()}
        return self.records(), found
