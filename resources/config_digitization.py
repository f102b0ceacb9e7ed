"""What a project of digitization can set: where masters are found, the copies made of them, their preservation record, fixity."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from resources.config import Config, Document, ExecutorConfig, Section
from resources.schemes import STORES, is_object_address


class SourceConfig(Section):
    """Where masters are found, and when a batch of them is whole."""

    uri: str = Field(
        "masters",
        description="folder that holds a folder for each batch, relative to the configuration file; "
        "or a prefix in an object store (s3://, gs://, az://)",
    )
    patterns: tuple[str, ...] = Field(
        ("*.tif", "*.tiff"), min_length=1, description="names (with * and ?, any letter case) of the files that are masters"
    )
    ignore: tuple[str, ...] = Field(
        ("Thumbs.db", "desktop.ini"), description="names of files beside masters that are none: not reported as left out"
    )
    settle_s: float = Field(30.0, ge=0, le=7 * 86_400, description="a batch is whole when no file of it changed for so long")
    done_marker: str | None = Field(None, description="file in a batch's folder that says that it is whole, e.g. 'batch.done'")
    window_by: Literal["arrival", "manifest"] = Field(
        "arrival",
        description="a batch's window: by the time of its done marker or newest file, or by the date in its manifest",
    )
    manifest: Literal["optional", "required"] = Field(
        "optional", description="whether a batch must come with a manifest: manifest.csv, or BagIt's manifest-sha256.txt"
    )

    @field_validator("uri")
    @classmethod
    def _is_known_place(cls, uri: str) -> str:
        if "://" in uri and not is_object_address(uri):
            known = ", ".join(f"{name}://" for name in STORES)
            raise ValueError(f"allowed: the path of a folder, or a prefix that begins with one of {known}")
        return uri


class LimitsConfig(Section):
    """What a master may declare; checked before anything is decoded."""

    max_pixels: int = Field(4_000_000_000, gt=0, description="width x height of one page")
    max_pages: int = Field(2_000, gt=0, description="pages of one file")
    max_expansion: float = Field(
        5_000.0, gt=1, description="declared bytes over bytes on disk; beyond it a header is taken for a bomb"
    )


class DerivativeConfig(Section):
    """How access copies are made. Every field here is part of the unit key."""

    compression: Literal["lossless", "ratio", "psnr"] = Field("lossless", description="of the JPEG 2000 copy")
    ratio: float | None = Field(None, gt=1, le=1000, description="for compression = ratio: uncompressed over compressed bytes")
    psnr_db: float | None = Field(None, ge=20, le=100, description="for compression = psnr: least decibels over the whole page")
    tile_px: int = Field(1024, ge=128, le=4096, multiple_of=128, description="tile width and height in pixels")
    cmyk_profile: str | None = Field(
        None, description="ICC profile for CMYK masters that have none of their own; relative to the configuration file"
    )

    @model_validator(mode="after")
    def _says_how_much(self) -> DerivativeConfig:
        for kind, value in (("ratio", self.ratio), ("psnr", self.psnr_db)):
            name = "psnr_db" if kind == "psnr" else kind
            if self.compression == kind and value is None:
                raise ValueError(f"compression = {kind!r} needs {name}")
            if self.compression != kind and value is not None:
                raise ValueError(f"{name} belongs to compression = {kind!r}")
        return self


class RightsConfig(Section):
    """The rights statement of every exported object."""

    basis: Literal["copyright", "license", "statute", "other"] = Field("other", description="PREMIS rights basis")
    status: str | None = Field(None, description="for copyright: its status, e.g. 'public domain'")
    jurisdiction: str | None = Field(None, description="for copyright and statute: ISO 3166 country, e.g. 'de'")
    terms: str | None = Field(None, description="licence terms, the statute's citation, or the other basis in words")
    note: str | None = Field(None, description="anything a reader must know")
    acts: tuple[str, ...] = Field((), description="acts that are granted, e.g. 'disseminate'")


class FixityConfig(Section):
    """How often masters and copies are read again."""

    every: Literal["week", "month", "year"] = Field("month", description="period within which every content is read once")
    scope: Literal["masters", "copies", "both"] = Field("both", description="what is read again")
    schedule: bool = Field(False, description="read a day's share by schedule, also without autostart")


class DigitizationExecutorConfig(ExecutorConfig):
    """How units are computed on this machine; a master of some gigabytes takes minutes."""

    unit_time_s: float = Field(1800.0, gt=0, description="a unit that takes longer is ended")


class DigitizationDocument(Document):
    """The file of a project of digitization, as written."""

    source: SourceConfig = SourceConfig()
    limits: LimitsConfig = LimitsConfig()
    derivative: DerivativeConfig = DerivativeConfig()
    rights: RightsConfig | None = None
    fixity: FixityConfig = FixityConfig()
    executor: DigitizationExecutorConfig = DigitizationExecutorConfig()


class DigitizationConfig(Config):
    """A loaded configuration of a project of digitization."""

    document = DigitizationDocument

    def __init__(self, path: Path, document: DigitizationDocument) -> None:
        super().__init__(path, document)
        self.source = document.source
        self.limits = document.limits
        self.derivative = document.derivative
        self.rights = document.rights
        self.fixity = document.fixity

    @property
    def source_prefix(self) -> str | None:
        """Prefix in an object store below which masters are found; None where they lie in a folder."""
        return self.source.uri if is_object_address(self.source.uri) else None

    @property
    def source_dir(self) -> Path:
        """Folder in which masters are found, where they lie in one."""
        return self.resolve(self.source.uri)

    @property
    def cmyk_profile(self) -> Path | None:
        """Profile for CMYK masters without one."""
        return None if self.derivative.cmyk_profile is None else self.resolve(self.derivative.cmyk_profile)

    @property
    def input_dirs(self) -> list[Path]:
        """The folder of masters; none where they lie in an object store."""
        return [] if self.source_prefix is not None else [self.source_dir]
