"""What a project of scenes can set: where they are found, the grid, the products, the zones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from resources.config import Config, Document, Section
from resources.errors import ConfigurationError

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")]
Resampling = Literal["nearest", "bilinear", "cubic", "cubic_spline", "lanczos", "average", "mode"]
Dtype = Literal["uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64"]


class SourceConfig(Section):
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


class GridConfig(Section):
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


class MaskConfig(Section):
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


class ProductConfig(Section):
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


class ZonesConfig(Section):
    """Polygons for zonal statistics."""

    path: str = Field(..., description="vector file of polygons; relative to the configuration file")
    id_field: str = Field(..., description="field that names a zone; values must be unique")
    layer: str | None = Field(None, description="layer of the file; default: its first")
    statistics: tuple[Literal["count", "mean", "min", "max", "sum", "stdev", "median", "majority", "minority"], ...] = Field(
        ("count", "mean", "min", "max"), description="what is computed of each zone, product and band"
    )


class ScenesDocument(Document):
    """The file of a project of scenes, as written."""

    source: SourceConfig = SourceConfig()
    grid: GridConfig
    products: tuple[ProductConfig, ...] = Field(..., min_length=1)
    zones: ZonesConfig | None = None

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


class ScenesConfig(Config):
    """A loaded configuration of a project of scenes."""

    document = ScenesDocument

    def __init__(self, path: Path, document: ScenesDocument) -> None:
        super().__init__(path, document)
        self.source = document.source
        self.grid = document.grid
        self.products = document.products
        self.zones = document.zones

    @property
    def source_dir(self) -> Path:
        """Folder in which scenes are found."""
        return self.resolve(self.source.uri)

    @property
    def input_dirs(self) -> list[Path]:
        """The folder of scenes."""
        return [self.source_dir]

    def product(self, name: str) -> ProductConfig:
        """The product of that name. Raises `ConfigurationError` naming those there are."""
        for product in self.products:
            if product.name == name:
                return product
        raise ConfigurationError(f"no product {name!r}; there are {[item.name for item in self.products]}")
