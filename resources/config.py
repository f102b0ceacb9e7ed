"""The configuration: one TOML file, every key overridable by `TILEWRIGHT_...` environment variables.

Belongs here: what can be set, its defaults and its bounds. Bad configuration stops at load with the key's name, what was found
and what is allowed. All state (ledger, outputs, Dagster home) follows from the file's place, so two projects do not meet.
"""

from __future__ import annotations

import os
import tomllib
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from resources.config_reading import Environment, explain
from resources.errors import ConfigurationError

CONFIG_VARIABLE = "TILEWRIGHT_CONFIG"
DEFAULT_CONFIG_NAME = "tilewright.toml"
DEFAULT_SCHEMA = "tilewright_ledger"
"""Not a likely user name: PostgreSQL puts other programs' tables into a schema named like the user."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")]
Resampling = Literal["nearest", "bilinear", "cubic", "cubic_spline", "lanczos", "average", "mode"]
Dtype = Literal["uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _as_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


UtcTime = Annotated[datetime, AfterValidator(_as_utc)]


class SourceConfig(_Section):
    """Where scenes are found and how their names are read."""

    uri: str = Field("scenes", description="folder of scenes; relative to the configuration file")
    patterns: tuple[str, ...] = Field(
        ("{scene}.tif", "{scene}.tiff", "{scene}.TIF"),
        description="file names with named parts {scene}, {band}, {date:%Y%m%d}; {anything_else} is matched and forgotten",
    )
    ignore: tuple[str, ...] = Field(
        (), description="names (with * and ?) of files that lie beside scenes and are none: not reported as left out"
    )
    recursive: bool = Field(True, description="look into folders below the source folder too")
    bands: tuple[Name, ...] = Field((), description="names of the bands of a many-band file, in order; empty: b1, b2, ...")
    acquired: Literal["name", "tag", "item"] = Field("name", description="where the acquisition time is read")
    acquired_tag: str = Field("TIFFTAG_DATETIME", description='TIFF tag that holds the time, for acquired = "tag"')
    settle_s: float = Field(5.0, ge=0, le=86_400, description="size and time of a file must stand still this long")
    done_marker: str | None = Field(None, description="companion file that says a scene is whole, e.g. '{scene}.done'")
    drivers: tuple[str, ...] = Field(("GTiff", "JP2OpenJPEG"), min_length=1, description="GDAL drivers that may open a scene")
    max_pixels: int = Field(200_000_000_000, gt=0, description="declared width x height of one band")
    max_bands: int = Field(512, gt=0, description="bands that one file may declare")
    max_expansion: float = Field(
        5_000.0, gt=1, description="declared bytes over bytes on disk; beyond it a header is taken for a bomb"
    )


class WindowConfig(_Section):
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


class GridConfig(_Section):
    """The tile grid: a named tile matrix set with a zoom, or a CRS with a resolution."""

    tms: str | None = Field(None, description="a morecantile tile matrix set, e.g. WebMercatorQuad")
    zoom: int | None = Field(None, ge=0, le=30, description="zoom of the tile matrix set")
    crs: str | None = Field(None, description="custom grid: any CRS PROJ knows, e.g. EPSG:32632")
    resolution: float | None = Field(None, gt=0, description="custom grid: pixel size in units of the CRS")
    origin: tuple[float, float] | None = Field(
        None, description="custom grid: (left, top) that tile 0/0 hangs from; default (-180, 90) or (0, 10 000 000)"
    )
    tile_px: int = Field(256, ge=16, le=8192, multiple_of=16, description="tile width and height in pixels")
    metatile: int = Field(4, ge=1, le=64, description="output tiles along one side of a partition")
    area: str = Field(..., description="area of interest: a vector file, or 'left,bottom,right,top' in WGS 84 degrees")

    @model_validator(mode="after")
    def _one_kind(self) -> GridConfig:
        named = self.tms is not None
        custom = self.crs is not None
        if named == custom:
            raise ValueError("give either tms and zoom, or crs and resolution")
        if named and self.zoom is None:
            raise ValueError("tms needs zoom")
        if named and (self.resolution is not None or self.origin is not None):
            raise ValueError("resolution and origin belong to a custom grid (crs); a tms has its own")
        if custom and self.resolution is None:
            raise ValueError("crs needs resolution, in units of the CRS")
        if custom and self.zoom is not None:
            raise ValueError("zoom belongs to a tms; a custom grid (crs) has a resolution instead")
        return self


class MaskConfig(_Section):
    """Pixels of a QA band that are left out: any of `bits` set, or equal to any of `values`."""

    band: str = Field(..., description="name of the QA band; read by nearest, from full resolution")
    bits: tuple[int, ...] = Field((), description="bit numbers; a pixel with any of them set is left out")
    values: tuple[int, ...] = Field((), description="pixel values that are left out")

    @model_validator(mode="after")
    def _masks_something(self) -> MaskConfig:
        if not self.bits and not self.values:
            raise ValueError("give bits (list of bit numbers) or values (list of pixel values)")
        if any(bit < 0 or bit > 63 for bit in self.bits):
            raise ValueError(f"bits must lie in 0..63, found {list(self.bits)}")
        return self


class ProductConfig(_Section):
    """What one output tile holds. Every field here is part of the unit key, save the name of nothing."""

    name: Name = Field(..., description="folder and column name; letters, digits, _ and -")
    version: str = Field("1", description="raise it to have the product made again; part of every unit key")
    bands: tuple[str, ...] = Field((), description="source bands, in output order")
    expression: str | None = Field(None, description="one formula over band names; several outputs are split by ';'")
    masks: tuple[MaskConfig, ...] = Field((), description="QA bands whose flagged pixels are left out")
    resampling: Resampling = Field("bilinear", description="how source pixels become tile pixels")
    compositing: Literal["first", "last", "mean", "median", "min", "max", "highest", "lowest"] = Field(
        "first", description="how scenes that overlap in a window become one"
    )
    order: Literal["newest", "oldest", "name"] = Field("newest", description="which scene comes first where scenes overlap")
    by_band: str | None = Field(None, description="band that highest and lowest compare")
    dtype: Dtype = Field("uint16", description="type of the pixels written")
    nodata: float | Literal["nan"] | None = Field(None, description="None: an internal mask marks what is absent")
    rescale: tuple[float, float] | None = Field(None, description="source values mapped linearly onto the whole dtype")
    apply_scale: bool = Field(False, description="apply the source's own scale and offset tags before anything else")
    compression: Literal["deflate", "zstd", "lzw", "webp", "jpeg", "lerc", "none"] = Field(
        "deflate", description="of the tile file"
    )
    on_rejected_scene: Literal["compose_without", "hold"] = Field(
        "compose_without", description="make a tile without a scene that is unfit, or hold it until that is solved"
    )

    @model_validator(mode="after")
    def _consistent(self) -> ProductConfig:
        if bool(self.bands) == bool(self.expression):
            raise ValueError("give either bands or expression")
        if self.compositing in ("highest", "lowest") and self.by_band is None:
            raise ValueError(f"compositing = {self.compositing!r} needs by_band")
        if self.compositing not in ("highest", "lowest") and self.by_band is not None:
            raise ValueError("by_band belongs to compositing highest or lowest")
        kind = np.dtype(self.dtype)
        if self.nodata == "nan" and kind.kind != "f":
            raise ValueError(f"nodata = nan does not fit dtype {self.dtype}; allowed: a whole number of that dtype")
        if isinstance(self.nodata, int | float) and kind.kind in "iu":
            bounds = np.iinfo(kind)
            if self.nodata != int(self.nodata) or not bounds.min <= self.nodata <= bounds.max:
                raise ValueError(f"nodata = {self.nodata} does not fit dtype {self.dtype}; allowed: {bounds.min}..{bounds.max}")
        if self.rescale is not None and self.rescale[0] >= self.rescale[1]:
            raise ValueError(f"rescale = {list(self.rescale)} must rise: [low, high]")
        if self.rescale is not None and kind.kind == "f":
            raise ValueError("rescale maps onto a whole-number dtype; for float32 and float64 leave it out")
        if self.compression == "jpeg" and (self.dtype != "uint8" or self.nodata is not None):
            raise ValueError("compression = jpeg needs dtype uint8 and no nodata (an internal mask marks what is absent)")
        if self.compression == "webp" and self.dtype != "uint8":
            raise ValueError("compression = webp needs dtype uint8")
        return self


class ZonesConfig(_Section):
    """Polygons for zonal statistics."""

    path: str = Field(..., description="vector file of polygons; relative to the configuration file")
    id_field: str = Field(..., description="field that names a zone; values must be unique")
    layer: str | None = Field(None, description="layer of the file; default: its first")
    statistics: tuple[Literal["count", "mean", "min", "max", "sum", "stdev", "median", "majority", "minority"], ...] = Field(
        ("count", "mean", "min", "max"), description="what is computed of each zone, product and band"
    )


class StoreConfig(_Section):
    """Where finished outputs live."""

    uri: str = Field("outputs", description="folder of finished outputs; relative to the configuration file")
    min_free_mb: int = Field(256, ge=0, description="the run stops before the disk has less than this left")


class LedgerConfig(_Section):
    """The durable record. Default: SQLite in the state folder."""

    url: str | None = Field(None, description="SQLAlchemy URL; sqlite:///... or postgresql+psycopg2://...")
    schema_name: str = Field(
        DEFAULT_SCHEMA, pattern=r"^[a-z_][a-z0-9_]*$", description="schema on PostgreSQL; not the one Dagster uses"
    )


class RetryConfig(_Section):
    """How often transient failures are tried again."""

    tries_in_run: int = Field(3, ge=1, le=20, description="tries at a unit within one run, for transient failures")
    base_s: float = Field(0.5, ge=0, description="first pause between tries within a run; doubled, with full jitter")
    cap_s: float = Field(30.0, ge=0, description="longest pause between tries within a run")
    attempts_max: int = Field(5, ge=1, le=100, description="counted attempts over all runs, then quarantine")
    later_base_s: float = Field(120.0, ge=0, description="shortest pause before a later run tries again")
    later_cap_s: float = Field(6 * 3600.0, ge=0, description="longest pause before a later run tries again")
    breaker_units: int = Field(5, ge=1, description="units in a row that exhaust their tries before a source counts as unwell")


class ExecutorConfig(_Section):
    """How units are computed on this machine."""

    workers: int = Field(2, ge=1, le=256, description="worker processes")
    unit_time_s: float = Field(300.0, gt=0, description="a unit that takes longer is ended")
    unit_memory_mb: int = Field(4096, ge=256, description="memory that a worker may take")
    gdal_cache_mb: int = Field(64, ge=8, description="GDAL's block cache of each worker")


class AlertsConfig(_Section):
    """Where facts that a person must know are sent. Put URLs with secrets into `TILEWRIGHT_ALERTS__URLS`."""

    urls: tuple[str, ...] = Field((), description="Apprise URLs; in the environment a JSON list, or one URL as it is")
    repeat_hours: float = Field(24.0, gt=0, description="how often a standing quarantine is said again")

    @field_validator("urls", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) and value else value


class SensorConfig(_Section):
    """Bounds of the sensors' ticks."""

    interval_s: int = Field(30, ge=4, description="pause between ticks")
    partitions_per_run: int = Field(256, ge=1, le=1000, description="most partitions of one run")
    requests_per_tick: int = Field(20, ge=1, le=500, description="most runs that one tick asks for")
    heals_per_tick: int = Field(200, ge=1, le=2000, description="most settled partitions that one tick shows green again")
    request_timeout_s: float = Field(600.0, gt=0, description="a request without a run this long after is asked again")
    heartbeat_timeout_s: float = Field(300.0, gt=0, description="a run silent this long, whose lease is free, is dead")
    max_runtime_s: int = Field(6 * 3600, gt=0, description="a run is ended after this long")


class RetentionConfig(_Section):
    """How long what is over is kept."""

    superseded_days: float = Field(30.0, ge=0, description="outputs of superseded units are kept this long")
    staging_hours: float = Field(24.0, ge=0, description="an abandoned staging file younger than this is left alone")


class Document(BaseSettings):
    """The whole file, as written."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix="TILEWRIGHT_", env_nested_delimiter="__", nested_model_default_partial_update=True
    )

    source: SourceConfig = SourceConfig()
    window: WindowConfig
    grid: GridConfig
    products: tuple[ProductConfig, ...] = Field(..., min_length=1)
    zones: ZonesConfig | None = None
    store: StoreConfig = StoreConfig()
    ledger: LedgerConfig = LedgerConfig()
    retry: RetryConfig = RetryConfig()
    executor: ExecutorConfig = ExecutorConfig()
    alerts: AlertsConfig = AlertsConfig()
    sensors: SensorConfig = SensorConfig()
    retention: RetentionConfig = RetentionConfig()
    state: str = Field(".tilewright", description="folder of ledger, leases and Dagster home; relative to this file")
    autostart: bool = Field(False, description="window schedule, scene arrivals, sweep and deep verification run unasked")
    replay_schedule: bool = Field(False, description="replay exhausted retries by schedule")

    @field_validator("products")
    @classmethod
    def _names_are_unique(cls, products: tuple[ProductConfig, ...]) -> tuple[ProductConfig, ...]:
        seen: dict[str, str] = {}
        for product in products:
            folded = product.name.casefold()
            if folded in seen:
                raise ValueError(
                    f"two products are named {seen[folded]!r} and {product.name!r}; names must differ, also in letter case"
                )
            seen[folded] = product.name
        return products

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

    def __init__(self, path: Path, document: Document) -> None:
        self.path = path
        self.root = path.parent
        self.source = document.source
        self.window = document.window
        self.grid = document.grid
        self.products = document.products
        self.zones = document.zones
        self.store = document.store
        self.ledger = document.ledger
        self.retry = document.retry
        self.executor = document.executor
        self.alerts = document.alerts
        self.sensors = document.sensors
        self.retention = document.retention
        self.autostart = document.autostart
        self.replay_schedule = document.replay_schedule
        self.state_dir = self.resolve(document.state)

    def resolve(self, uri: str) -> Path:
        """An absolute local path for `uri`, relative ones hanging from the configuration file's folder."""
        return (self.root / Path(uri).expanduser()).absolute()

    @property
    def source_dir(self) -> Path:
        """Folder in which scenes are found."""
        return self.resolve(self.source.uri)

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

    def product(self, name: str) -> ProductConfig:
        """The product of that name. Raises `ConfigurationError` naming those there are."""
        for product in self.products:
            if product.name == name:
                return product
        raise ConfigurationError(f"no product {name!r}; there are {[item.name for item in self.products]}")


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
    try:
        document = Document(**values)
    except ValidationError as error:
        raise ConfigurationError(explain(path, error, Document)) from None
    return Config(path, document)
