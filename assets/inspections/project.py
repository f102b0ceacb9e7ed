"""A project of inspections: what it has beside what every project has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from assets.fetch.host_slots import HostSlots
from assets.fetch.model import FetchLimits
from assets.inspections.fetch_limits import limits_of
from assets.inspections.shape import RECORDS
from assets.outlook import Outlook
from assets.project import Project
from assets.survey import Survey
from resources.config_inspections import InspectionsConfig
from resources.errors import EnvironmentUnfit, ErrorKind, TransientError

if TYPE_CHECKING:
    from assets.inspections.listing import ReportListing
    from assets.inspections.record import ExtractionRules
    from assets.inspections.token_memory import TokenMemory


class InspectionsProject(Project):
    """A project whose units are reports: a partition is a batch window."""

    worker_preload = ("assets.inspections.records",)
    config: InspectionsConfig

    @property
    def rules(self) -> ExtractionRules:
        """What is read from a report, with the registry as it is now. Raises `ConfigurationError` when it cannot be read."""
        from assets.inspections.record import rules_of

        return rules_of(self.config)

    @property
    def limits(self) -> FetchLimits:
        """How much, how long and from where content is taken."""
        return limits_of(self.config)

    @property
    def slots(self) -> HostSlots:
        """At most so many requests at once to one host, over all processes of the project."""
        return HostSlots(self.config.state_dir / "host-slots", self.config.fetch.per_host)

    @cached_property
    def tokens(self) -> TokenMemory:
        """Version tokens as they were last asked for by this process."""
        from assets.inspections.token_memory import TokenMemory

        return TokenMemory(self)

    def list_reports(self, *, now: datetime) -> ReportListing:
        """List the source. Raises `EnvironmentUnfit` (SOURCE_MISSING) when it is not there, or empty where it was not before."""
        from assets.inspections.listing import NO_REPORT, list_reports

        homes = {row.key: row.window for row in self.ledger.units(asset=RECORDS)}
        try:
            listing = list_reports(self.config, self.calendar, homes=homes, limits=self.limits, now=now)
        except TransientError as error:
            # without the list nothing can be planned; what is planned is done all the same when the list is back
            raise EnvironmentUnfit(f"the list of reports cannot be had: {error.message}", kind=error.kind) from error
        is_empty = not listing.reports and all(one.verdict == NO_REPORT for one in listing.left_out)
        if is_empty and any(row.units for row in self.ledger.partition_rows(RECORDS)):
            # an unmounted disk is an empty folder, or one with a note that it is not mounted
            raise EnvironmentUnfit(
                "the source lists no report at all, and there are reports on record; mount it, or mend [source]",
                kind=ErrorKind.SOURCE_MISSING,
            )
        return listing

    def survey(self, *, now: datetime) -> Survey:
        """List the reports. Raises `EnvironmentUnfit` when the source is not there."""
        from assets.inspections.survey import survey_of

        return survey_of(self, now=now)

    def outlook(self, windows: Sequence[str], *, window: str | None) -> Outlook:
        """The records that would be planned now."""
        from assets.inspections.survey import records_outlook

        return records_outlook(self, windows, window=window)

    def plan_again(self, windows: Iterable[str], *, run_id: str) -> None:
        """Plan windows from their reports as they are now: one that was rejected and has changed is PENDING again."""
        from assets.inspections.stock import take_stock

        take_stock(self, windows, run_id=run_id)
