"""A project of digitization: what it has beside what every project has."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property

from assets.digitization.batches import source_of
from assets.digitization.copies import copy_settings
from assets.digitization.derivation import CopySettings
from assets.outlook import Outlook
from assets.project import Project
from assets.sources.source import Source
from assets.survey import Survey
from resources.config import WindowConfig
from resources.config_digitization import DigitizationConfig
from resources.windows import WindowCalendar


class DigitizationProject(Project):
    """A project whose units are masters: a partition is a batch window."""

    worker_preload = ("assets.digitization.derivation",)
    config: DigitizationConfig

    @cached_property
    def copy_settings(self) -> CopySettings:
        """What decides copies besides masters. Raises `ConfigurationError` when the CMYK profile cannot be read."""
        return copy_settings(self.config)

    @cached_property
    def source(self) -> Source:
        """Where masters lie."""
        return source_of(self.config)

    @cached_property
    def fixity_calendar(self) -> WindowCalendar:
        """The periods within which every content is read again; the first begins with the first batch window, floored."""
        return WindowCalendar(WindowConfig(start=self.config.window.start, every=self.config.fixity.every))

    def survey(self, *, now: datetime) -> Survey:
        """List the masters. Raises `EnvironmentUnfit` (SOURCE_MISSING) when their folder is not there."""
        from assets.digitization.capturing import list_masters
        from assets.digitization.master_survey import survey_of

        return survey_of(list_masters(self, now=now))

    def outlook(self, windows: Sequence[str], *, window: str | None) -> Outlook:
        """The copies that would be planned now."""
        from assets.digitization.master_survey import copies_outlook

        return copies_outlook(self, windows, window=window)
