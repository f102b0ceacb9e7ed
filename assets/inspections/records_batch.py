"""The reports of a run: planned from the source as it is now, handed to the engine lazily."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from assets.inspections.records import ReportTask, nothing_to_validate, record_report
from assets.inspections.shape import RECORDS
from assets.inspections.stock import WindowStock, take_stock
from resources.ledger import UnitRow
from resources.units import UnitOfWork

if TYPE_CHECKING:
    from assets.inspections.project import InspectionsProject


class RecordsBatch:
    """Partitions of inspection records are batch windows."""

    def __init__(self, project: InspectionsProject, windows: Sequence[str], *, run_id: str) -> None:
        self._project = project
        self._windows = tuple(windows)
        self._rules = project.rules
        self._stock = take_stock(project, windows, run_id=run_id)

    @property
    def asset(self) -> str:
        """Name of the asset in the ledger."""
        return RECORDS

    @property
    def partitions(self) -> Sequence[str]:
        """Window keys of this run."""
        return self._windows

    @property
    def replaces(self) -> bool:
        """A row is confirmed by asking the ledger."""
        return False

    @property
    def stock(self) -> dict[str, WindowStock]:
        """What each window of the run holds."""
        return self._stock

    @property
    def refreshed(self) -> list[str]:
        """Windows whose list was written anew when stock was taken."""
        return [window for window, stock in self._stock.items() if stock.is_list_made]

    def work(self, rows: Sequence[UnitRow]) -> Iterable[UnitOfWork]:
        """Work of planned units. One that the source lists no more, or elsewhere, is left out: the plan has moved on."""
        keeps = self._project.config.source.same_uri == "keep"
        for row in rows:
            stock = self._stock[row.window]
            report = stock.reports.get(row.key)
            if report is None:
                continue
            known = stock.known[row.key]
            stood = known.is_complete and known.observed is not None
            task = ReportTask(
                report=report,
                rules=self._rules,
                limits=self._project.limits,
                slots=self._project.slots,
                token=row.spec.get("token"),
                kept_digest=known.observed.digest if keeps and stood and known.observed is not None else None,
            )
            yield UnitOfWork(row.as_planned(), partial(record_report, task), nothing_to_validate)

    def replan(self) -> None:
        """A record has one report; no other can be made without it."""
