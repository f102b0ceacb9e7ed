"""What a project of inspections can set: where reports are found."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from resources.config import Config, Document, Section


class SourceConfig(Section):
    """Where reports are found."""

    uri: str = Field("reports", description="folder of reports; relative to the configuration file")


class InspectionsDocument(Document):
    """The file of a project of inspections, as written."""

    source: SourceConfig = SourceConfig()
    replay_schedule: bool = Field(True, description="replay exhausted retries by schedule")
    replay_every: Literal["hour", "day"] = Field("hour", description="how often that schedule replays")


class InspectionsConfig(Config):
    """A loaded configuration of a project of inspections."""

    document = InspectionsDocument

    def __init__(self, path: Path, document: InspectionsDocument) -> None:
        super().__init__(path, document)
        self.source = document.source

    @property
    def source_dir(self) -> Path:
        """Folder in which reports are found."""
        return self.resolve(self.source.uri)

    @property
    def input_dirs(self) -> list[Path]:
        """The folder of reports."""
        return [self.source_dir]
