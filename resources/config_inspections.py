"""What a project of inspections can set: where reports are listed, how they are fetched, what is read from them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from resources.config import Config, Document, Section

ENGLISH_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)

_NAME = r"^[a-z][a-z0-9_]{0,62}$"
_DATE_TOKEN = re.compile(r"YYYY|MMMM|MMM|MM|M|DD|D")
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def _as_pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"must be a regular expression: {error}") from None
    return value


Pattern = Annotated[str, AfterValidator(_as_pattern)]


DEFAULT_TABLES = "lists/{window}.csv"


class ColumnsConfig(Section):
    """What the tables call their columns; letter case does not matter."""

    site: str = Field("site", min_length=1, description="column of the site's name")
    uri: str = Field("uri", min_length=1, description="column of the report's address")
    period: str = Field("period", min_length=1, description="column of the period that the report is for")
    window: str = Field("window", min_length=1, description="column of the batch window, where the table's name does not say it")


class SourceConfig(Section):
    """Where reports are listed: tables, or a listing of a folder, an object prefix or a web index. One of the two."""

    tables: str | None = Field(
        None,
        description="CSV files that list reports; {window} in the name stands for the batch window, * for anything; "
        "default, where there is no listing: lists/{window}.csv",
    )
    listing: str | None = Field(None, description="folder, object prefix or web index whose files are the reports")
    pattern: str | None = Field(
        None,
        description="names of the files in a listing, with {site}, {period} and perhaps {window}, e.g. '{site}_{period}.pdf'",
    )
    columns: ColumnsConfig = Field(ColumnsConfig(), description="what the tables call their columns")
    settle_s: float = Field(30.0, ge=0, le=7 * 86_400, description="a table is read when it did not change for so long")
    same_uri: Literal["replace", "keep"] = Field(
        "replace",
        description="a corrected report under its address: replace its record and keep the old one as history, or keep it",
    )
    recheck_minutes: float = Field(
        60.0, ge=0, le=30 * 24 * 60, description="how long a source's version token is believed before sensors ask for it again"
    )

    @field_validator("tables")
    @classmethod
    def _name_varies_only(cls, value: str | None) -> str | None:
        if value is not None and any(sign in str(Path(value).parent) for sign in "*?{"):
            raise ValueError("may have {window}, * and ? in the name of the file only, not in its folder")
        return value

    @model_validator(mode="after")
    def _is_one_of_two(self) -> SourceConfig:
        if self.tables is not None and self.listing is not None:
            raise ValueError("set tables or listing, not both")
        if (self.listing is None) != (self.pattern is None):
            raise ValueError("listing and pattern go together: set both or none")
        for part in ("{site}", "{period}"):
            if self.pattern is not None and self.pattern.count(part) != 1:
                raise ValueError(f"pattern must hold {part} once")
        return self

    @property
    def table_names(self) -> str | None:
        """The tables to read; None where a listing takes their place."""
        # no default of the field: settings are laid over defaults, and a listing would then stand beside it
        return self.tables or (DEFAULT_TABLES if self.listing is None else None)


class FetchConfig(Section):
    """How long, how much and from where content is taken."""

    connect_s: float = Field(10.0, gt=0, le=600, description="name lookup, connection and TLS together")
    read_s: float = Field(30.0, gt=0, le=3600, description="longest silence while content comes")
    total_s: float = Field(240.0, gt=0, le=86_400, description="everything from the first request to the last byte")
    max_mb: float = Field(200.0, gt=0, le=100_000, description="a larger report is set aside")
    per_host: int = Field(4, ge=1, le=64, description="requests at once to one host, over all processes of the project")
    redirects: int = Field(5, ge=0, le=20, description="most redirects of one address")
    retry_after_max_s: float = Field(86_400.0, gt=0, description="longest pause that a server may ask for")
    folders: tuple[str, ...] = Field(
        (), description="local folders that reports may come from; relative to the configuration file; none: any"
    )


class RegistryConfig(Section):
    """The file that says which sites there are."""

    file: str | None = Field(None, description="CSV of sites; relative to the configuration file; none: any site is taken")
    column: str = Field("site", min_length=1, description="its column of sites; letter case does not matter")


class ExtractionConfig(Section):
    """What every report must show. Labels are regular expressions, letter case does not matter; empty: not looked for."""

    site_label: Pattern = Field(r"site(?: id)?", description="label of the site; it must be the listed one")
    period_label: Pattern = Field(
        r"(?:reporting |inspection )?period", description="label of the period; it must be the listed one"
    )
    max_pages: int = Field(2_000, ge=1, description="a report with more is set aside")
    max_chars: int = Field(2_000_000, ge=1, description="characters of text; a report with more is set aside")
    max_stream_mb: int = Field(
        128, ge=1, le=4096, description="a stream that inflates to more is taken for a bomb, and the report set aside"
    )
    min_text_chars: int = Field(
        20, ge=1, description="a report with fewer characters, spaces not counted, has no text: it is scanned, or blank"
    )
    months: tuple[str, ...] = Field(
        ENGLISH_MONTHS,
        min_length=12,
        max_length=12,
        description="names of months in dates and periods; their first three letters are the short ones",
    )


class FieldConfig(Section):
    """One field that is read from every report."""

    name: str = Field(..., pattern=_NAME, description="its name in the record")
    label: Pattern = Field(..., min_length=1, description="regular expression of its label; letter case does not matter")
    type: Literal["text", "number", "date", "choice"] = Field("text", description="what its value is")
    required: bool = Field(True, description="a report without it is set aside")
    date_formats: tuple[str, ...] = Field(
        ("YYYY-MM-DD",), min_length=1, description="of YYYY, MM, M, MMMM, MMM (names), DD, D and signs, tried in order"
    )
    decimal: Literal[".", ","] = Field(".", description="decimal sign of numbers; the other one may group thousands")
    unit: str | None = Field(None, description="unit in which a number is recorded; one without a unit is taken to be in it")
    units: dict[str, float] = Field({}, description="other units that may be written, and what one of them is in `unit`")
    min: float | None = Field(None, description="least number allowed, in `unit`")
    max: float | None = Field(None, description="greatest number allowed, in `unit`")
    choices: tuple[str, ...] = Field((), description="values allowed of a choice; letter case does not matter")

    @field_validator("date_formats")
    @classmethod
    def _formats_name_a_day(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            tokens = sorted(token[0] for token in _DATE_TOKEN.findall(text))
            if tokens != ["D", "M", "Y"] or re.search(r"[A-Za-z0-9]", _DATE_TOKEN.sub("", text)):
                raise ValueError(f"must hold year, month and day once each, e.g. YYYY-MM-DD or D MMMM YYYY; found {text!r}")
        return value

    @model_validator(mode="after")
    def _belongs_together(self) -> FieldConfig:
        if (self.type == "choice") != bool(self.choices):
            raise ValueError("choices belong to type = 'choice', which needs them")
        if self.type != "number" and (self.unit or self.units or self.min is not None or self.max is not None):
            raise ValueError("unit, units, min and max belong to type = 'number'")
        if self.units and not self.unit:
            raise ValueError("units need unit: the one in which numbers are recorded")
        if any(not factor > 0 or factor == float("inf") for factor in self.units.values()):
            raise ValueError("units must be greater than 0")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min ({self.min}) must not be above max ({self.max})")
        return self


class FindingsConfig(Section):
    """A table of findings: its columns, by the headers over them in the report."""

    columns: dict[str, str] = Field(
        ..., min_length=2, description="name in the record = header in the report; letter case does not matter"
    )
    required: bool = Field(False, description="a report without this table is set aside")

    @field_validator("columns")
    @classmethod
    def _names_are_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name, header in value.items():
            if re.fullmatch(_NAME, name) is None or not header.strip():
                raise ValueError(f"names must fit {_NAME} and headers must not be empty; found {name!r} = {header!r}")
        if len({" ".join(header.casefold().split()) for header in value.values()}) < len(value):
            raise ValueError("two columns have one header")
        return value


class InspectionsDocument(Document):
    """The file of a project of inspections, as written."""

    source: SourceConfig = SourceConfig()
    fetch: FetchConfig = FetchConfig()
    registry: RegistryConfig = RegistryConfig()
    extraction: ExtractionConfig = ExtractionConfig()
    fields: tuple[FieldConfig, ...] = ()
    findings: FindingsConfig | None = None
    replay_schedule: bool = Field(True, description="replay exhausted retries by schedule")
    replay_every: Literal["hour", "day"] = Field("hour", description="how often that schedule replays")

    @field_validator("fields")
    @classmethod
    def _names_differ(cls, value: tuple[FieldConfig, ...]) -> tuple[FieldConfig, ...]:
        names = [one.name for one in value]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two fields are named {', '.join(twice)}")
        return value


class InspectionsConfig(Config):
    """A loaded configuration of a project of inspections."""

    document = InspectionsDocument

    def __init__(self, path: Path, document: InspectionsDocument) -> None:
        super().__init__(path, document)
        self.source = document.source
        self.fetch = document.fetch
        self.registry = document.registry
        self.extraction = document.extraction
        self.fields = document.fields
        self.findings = document.findings

    @property
    def registry_file(self) -> Path | None:
        """The file of sites, if there is one."""
        return None if self.registry.file is None else self.resolve(self.registry.file)

    @property
    def input_dirs(self) -> list[Path]:
        """The folder of tables, or the listed folder where it is local."""
        if self.source.table_names is not None:
            return [self.resolve(self.source.table_names).parent]
        where = self.source.listing or ""
        return [] if _REMOTE.match(where) else [self.resolve(where)]

    @property
    def source_key(self) -> str:
        """Tables, or the listing that takes their place."""
        return "source.listing" if self.source.table_names is None else "source.tables"
