"""A project of inspections: what it has beside what every project has."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from assets.outlook import Outlook
from assets.project import Project
from assets.survey import Survey
from resources.config_inspections import InspectionsConfig


class InspectionsProject(Project):
    """A project whose units are reports: a partition is a batch window."""

    config: InspectionsConfig

    def survey(self, *, now: datetime) -> Survey:  # noqa: ARG002 - filled in with the listing of reports
        """List the reports. Raises `EnvironmentUnfit` when the source is not there."""
        return Survey()

    def outlook(self, windows: Sequence[str], *, window: str | None) -> Outlook:  # noqa: ARG002 - filled in with the plan
        """What would be planned now."""
        return Outlook((), lambda unit: unit.key, lambda _old, _new: "its key's ingredients changed", lambda _unit: 0.0)
