"""The reports of a run: planned from the source as it is now, handed to the engine lazily."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from assets.inspections.records import ReportTask, record_report
from assets.inspections.shape import RECORDS
from assets.inspections.stock import WindowStock, take_stock
from assets.partition_batch import StockedBatch
from resources.ledger import UnitRow
from resources.row_tables import nothing_to_validate
from resources.units import UnitOfWork

if TYPE_CHECKING:
    from assets.inspections.project import InspectionsProject


class RecordsBatch(StockedBatch[WindowStock]):
    """Partitions of inspection records are batch windows."""

    asset = RECORDS

    def __init__(self, project: InspectionsProject, windows: Sequence[str], *, run_id: str) -> None:
        super().__init__(windows, take_stock(project, windows, run_id=run_id))
        self._project = project
        self._rules = project.rules

    def work(self, rows: Sequence[UnitRow]) -> Iterable[UnitOfWork]:
        """Work of planned units. One that the source lists no more, or elsewhere, is left out: the plan has moved on."""
        keeps = self._project.config.source.same_uri == "keep"
        for row in rows:
            stock = self.stock[row.window]
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
