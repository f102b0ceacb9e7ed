"""The configuration: one TOML file, every key overridable by `TILEWRIGHT_...` environment variables.

Belongs here: what can be set whatever the pipeline, its defaults and its bounds; the sections of one pipeline are in
`config_scenes`, `config_digitization` and `config_inspections`. Bad configuration stops at load with the key's name, what was
found and what is allowed. All state (ledger, outputs, Dagster home) follows from the file's place, so two projects do not meet.
"""

from __future__ import annotations

import os
import tomllib
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from resources.config_reading import Environment, explain, top_level
from resources.errors import ConfigurationError

CONFIG_VARIABLE = "TILEWRIGHT_CONFIG"
DEFAULT_CONFIG_NAME = "tilewright.toml"
DEFAULT_SCHEMA = "tilewright_ledger"
"""Not a likely user name: PostgreSQL puts other programs' tables into a schema named like the user."""

Pipeline = Literal["scenes", "digitization", "inspections"]
PIPELINES: tuple[Pipeline, ...] = get_args(Pipeline)


class Section(BaseModel):
    """A table of the file. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _as_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


UtcTime = Annotated[datetime, AfterValidator(_as_utc)]


class WindowConfig(Section):
    """Batch windows: half-open UTC intervals `[start, end)`."""

    start: UtcTime = Field(..., description="first window begins here (floored to its kind); a time without a zone is UTC")
    end: UtcTime | None = Field(None, description="no window begins at or after this time; default: windows up to now")
    every: Literal["hour", "day", "week", "month", "year"] = Field("day", description="length of a window")
    delay_minutes: int = Field(30, ge=0, le=7 * 24 * 60, description="how long after a window's end its scheduled run starts")
    deadline_hours: float = Field(
        24.0, gt=0, description="a window not settled this long after it was to begin is said to be late"
    )

    @field_validator("start", "end", mode="before")
    @classmethod
    def _date_is_midnight(cls, value: Any) -> Any:
        if isinstance(value, int | float):
            raise ValueError("must be a date or a time, e.g. 2024-06-01 or 2024-06-01T00:00:00Z")
        if isinstance(value, date) and not isinstance(value, datetime):
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        return value

    @model_validator(mode="after")
    def _ends_after_start(self) -> WindowConfig:
        if self.end is not None and self.end <= self.start:
            raise ValueError(f"end ({self.end.isoformat()}) must be after start ({self.start.isoformat()})")
        return self


class StoreConfig(Section):
    """Where finished outputs live."""

    uri: str = Field("outputs", description="folder of finished outputs; relative to the configuration file")
    min_free_mb: int = Field(256, ge=0, description="the run stops before the disk has less than this left")


class LedgerConfig(Section):
    """The durable record. Default: SQLite in the state folder."""

    url: str | None = Field(None, description="SQLAlchemy URL; sqlite:///... or postgresql+psycopg2://...")
    schema_name: str = Field(
        DEFAULT_SCHEMA, pattern=r"^[a-z_][a-z0-9_]*$", description="schema on PostgreSQL; not the one Dagster uses"
    )


class RetryConfig(Section):
    """How often transient failures are tried again."""

    tries_in_run: int = Field(3, ge=1, le=20, description="tries at a unit within one run, for transient failures")
    base_s: float = Field(0.5, ge=0, description="first pause between tries within a run; doubled, with full jitter")
    cap_s: float = Field(30.0, ge=0, description="longest pause between tries within a run")
    attempts_max: int = Field(5, ge=1, le=100, description="counted attempts over all runs, then quarantine")
    later_base_s: float = Field(120.0, ge=0, description="shortest pause before a later run tries again")
    later_cap_s: float = Field(6 * 3600.0, ge=0, description="longest pause before a later run tries again")
    breaker_units: int = Field(5, ge=1, description="units in a row that exhaust their tries before a source counts as unwell")


class ExecutorConfig(Section):
    """How units are computed on this machine."""

    workers: int = Field(2, ge=1, le=256, description="worker processes")
    unit_time_s: float = Field(300.0, gt=0, description="a unit that takes longer is ended")
    unit_memory_mb: int = Field(4096, ge=256, description="memory that a worker may take")
    gdal_cache_mb: int = Field(64, ge=8, description="GDAL's block cache of each worker")


class AlertsConfig(Section):
    """Where facts that a person must know are sent. Put URLs with secrets into `TILEWRIGHT_ALERTS__URLS`."""

    urls: tuple[str, ...] = Field((), description="Apprise URLs; in the environment a JSON list, or one URL as it is")
    repeat_hours: float = Field(24.0, gt=0, description="how often a standing quarantine is said again")
    letter_deadline_hours: float | None = Field(
        None, gt=0, description="a dead letter open for longer fails the check no_overdue_dead_letter; none: no deadline"
    )

    @field_validator("urls", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) and value else value


class SensorConfig(Section):
    """Bounds of the sensors' ticks."""

    interval_s: int = Field(30, ge=4, description="pause between ticks")
    partitions_per_run: int = Field(256, ge=1, le=1000, description="most partitions of one run")
    requests_per_tick: int = Field(20, ge=1, le=500, description="most runs that one tick asks for")
    heals_per_tick: int = Field(200, ge=1, le=2000, description="most settled partitions that one tick shows green again")
    request_timeout_s: float = Field(600.0, gt=0, description="a request without a run this long after is asked again")
    heartbeat_timeout_s: float = Field(300.0, gt=0, description="a run silent this long, whose lease is free, is dead")
    max_runtime_s: int = Field(6 * 3600, gt=0, description="a run is ended after this long")


class RetentionConfig(Section):
    """How long what is over is kept."""

    superseded_days: float = Field(30.0, ge=0, description="outputs of superseded units are kept this long")
    staging_hours: float = Field(24.0, ge=0, description="an abandoned staging file younger than this is left alone")


class Document(BaseSettings):
    """What every file may hold, as written. A pipeline adds its own sections."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix="TILEWRIGHT_", env_nested_delimiter="__", nested_model_default_partial_update=True
    )

    pipeline: Pipeline = Field("scenes", description="what is made of what; decides which sections the file has")
    window: WindowConfig
    store: StoreConfig = StoreConfig()
    ledger: LedgerConfig = LedgerConfig()
    retry: RetryConfig = RetryConfig()
    executor: ExecutorConfig = ExecutorConfig()
    alerts: AlertsConfig = AlertsConfig()
    sensors: SensorConfig = SensorConfig()
    retention: RetentionConfig = RetentionConfig()
    state: str = Field(".tilewright", description="folder of ledger, leases and Dagster home; relative to this file")
    autostart: bool = Field(False, description="window schedule, arrivals, sweep and deep verification run unasked")
    replay_schedule: bool = Field(False, description="replay exhausted retries by schedule")
    replay_every: Literal["hour", "day"] = Field("day", description="how often that schedule replays")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic passes it by name
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic passes it by name
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic passes it by name
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        written = init_settings() if callable(init_settings) else {}
        return Environment(settings_cls, written), init_settings


class Config:
    """A loaded configuration with its paths resolved against the file it came from."""

    document: ClassVar[type[Document]] = Document

    def __init__(self, path: Path, document: Document) -> None:
        self.path = path
        self.root = path.parent
        self.pipeline = document.pipeline
        self.window = document.window
        self.store = document.store
        self.ledger = document.ledger
        self.retry = document.retry
        self.executor = document.executor
        self.alerts = document.alerts
        self.sensors = document.sensors
        self.retention = document.retention
        self.autostart = document.autostart
        self.replay_schedule = document.replay_schedule
        self.replay_every = document.replay_every
        self.state_dir = self.resolve(document.state)

    def resolve(self, uri: str) -> Path:
        """An absolute local path for `uri`, relative ones hanging from the configuration file's folder."""
        return (self.root / Path(uri).expanduser()).absolute()

    @property
    def input_dirs(self) -> list[Path]:
        """Local folders that the source is in: without them no run begins."""
        return []

    @property
    def source_key(self) -> str:
        """The key that names those folders, for messages."""
        return "source.uri"

    @property
    def store_dir(self) -> Path:
        """Root of finished outputs."""
        return self.resolve(self.store.uri)

    @property
    def dagster_home(self) -> Path:
        """Dagster's home for this project."""
        return self.state_dir / "dagster"

    @property
    def ledger_url(self) -> str:
        """SQLAlchemy URL of the ledger."""
        return self.ledger.url or f"sqlite:///{self.state_dir / 'ledger.sqlite'}"


def config_path(given: str | os.PathLike[str] | None = None) -> Path:
    """The configuration file in use: `given`, else `$TILEWRIGHT_CONFIG`, else `tilewright.toml` here."""
    return Path(given or os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG_NAME).absolute()


def load_config(given: str | os.PathLike[str] | None = None) -> Config:
    """Read and check the configuration. Raises `ConfigurationError`: file, key, what was found, what is allowed."""
    path = config_path(given)
    try:
        with open(path, "rb") as stream:
            values = tomllib.load(stream)
    except FileNotFoundError:
        raise ConfigurationError(
            f"{path}: no such configuration file; name one with --config or {CONFIG_VARIABLE}, or write a tilewright.toml"
        ) from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read as TOML: {error}") from error
    loaded = configuration_of(path, top_level("pipeline", values, default="scenes"))
    try:
        document = loaded.document(**values)
    except ValidationError as error:
        raise ConfigurationError(explain(path, error, loaded.document, values)) from None
    return loaded(path, document)


def configuration_of(path: Path, pipeline: Any) -> type[Config]:
    """The configuration of a pipeline. Raises `ConfigurationError` when there is none of that name.

    Only the sections of that one are imported: who works for one pipeline pays for no other.
    """
    if pipeline == "scenes":
        from resources.config_scenes import ScenesConfig

        return ScenesConfig
    if pipeline == "digitization":
        from resources.config_digitization import DigitizationConfig

        return DigitizationConfig
    if pipeline == "inspections":
        from resources.config_inspections import InspectionsConfig

        return InspectionsConfig
    raise ConfigurationError(
        f"{path}: the configuration cannot be used:\n  pipeline: must be one of {', '.join(PIPELINES)} (found {pipeline!r})"
    )
