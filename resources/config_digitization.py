"""What a project of digitization can set: where masters are found."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from resources.config import Config, Document, Section


class SourceConfig(Section):
    """Where masters are found."""

    uri: str = Field("masters", description="folder of masters; relative to the configuration file")


class DigitizationDocument(Document):
    """The file of a project of digitization, as written."""

    source: SourceConfig = SourceConfig()


class DigitizationConfig(Config):
    """A loaded configuration of a project of digitization."""

    document = DigitizationDocument

    def __init__(self, path: Path, document: DigitizationDocument) -> None:
        super().__init__(path, document)
        self.source = document.source

    @property
    def source_dir(self) -> Path:
        """Folder in which masters are found."""
        return self.resolve(self.source.uri)

    @property
    def input_dirs(self) -> list[Path]:
        """The folder of masters."""
        return [self.source_dir]
