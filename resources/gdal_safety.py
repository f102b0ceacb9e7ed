"""GDAL, hardened: which drivers exist, what they may reach, and what their errors mean.

Rasters come from outside. By default a VRT named `.tif` reads any file of this machine into pixels, and another sends HTTP
requests. Everything that opens a raster goes through `safe_env` and `open_raster`. Three doors are shut, because each alone was
seen to leak: drivers that follow names to other files or to the network are never registered; the driver is named when opening
(a `WarpedVRT` registers the VRT driver again behind our back); and GDAL's own HTTP is given no host to talk to.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import rasterio
import rasterio.env
import rasterio.errors
from rasterio._err import CPLE_BaseError, CPLE_OutOfMemoryError, CPLE_UserInterruptError
from rasterio.io import DatasetReader

from resources.errors import EnvironmentUnfit, ErrorKind, InputRejected, TransientError, UnitRejected

SAFE_DRIVERS = ("GTiff", "COG", "MEM", "JP2OpenJPEG", "PNG", "JPEG", "WEBP", "BMP", "AAIGrid", "SRTMHGT", "GRIB")
"""Drivers that read one file (and its sidecars) and nothing that the file names. The only ones that are registered."""

_SKIPPED = (
    "ACE2,ADRG,AIG,AirSAR,AmigoCloud,AVCBin,AVCE00,AVIF,BAG,BIGGIF,BLX,BSB,BT,BYN,CAD,CALS,Carto,CEOS,COASP,COSAR,CPG,CSV,"
    "CSW,CTable2,CTG,DAAS,DERIVED,DGN,DIMAP,DIPEx,DOQ1,DOQ2,DTED,DXF,ECRGTOC,EDIGEO,EEDA,EEDAI,EHdr,EIR,ELAS,Elasticsearch,"
    "ENVI,ERS,ESAT,ESRI Shapefile,ESRIC,ESRIJSON,FAST,FIT,FITS,FlatGeobuf,GenBin,GeoJSON,GeoJSONSeq,GeoRSS,GFF,GIF,GML,"
    "GMLAS,GMT,GNMDatabase,GNMFile,GPKG,GPSBabel,GPX,GRASSASCIIGrid,GS7BG,GSAG,GSBG,GSC,GTFS,GTI,GTX,GXF,HDF4,HDF4Image,"
    "HDF5,HDF5Image,HEIF,HF2,HFA,HTTP,ILWIS,Interlis 1,Interlis 2,IRIS,ISCE,ISG,ISIS2,ISIS3,JAXAPALSAR,JDEM,JML,JPEGXL,"
    "JSONFG,KML,KMLSUPEROVERLAY,KRO,L1B,LAN,LCP,Leveller,LIBKML,LOSLAS,LVBAG,MAP,MapInfo File,MapML,MBTiles,Memory,MFF,"
    "MFF2,MiraMonRaster,MiraMonVector,MRF,MSGN,MSSQLSpatial,MVT,NAS,NDF,netCDF,NGSGEOID,NGW,NITF,NOAA_B,NSIDCbin,NTv2,"
    "NWT_GRC,NWT_GRD,OAPIF,ODBC,ODS,OGCAPI,OGR_GMT,OpenFileGDB,OSM,OZI,Parquet,PAux,PCIDSK,PCRaster,PDF,PDS,PDS4,PGDUMP,"
    "PLMOSAIC,PLSCENES,PMTiles,PNM,PostGISRaster,PostgreSQL,PRF,R,Rasterlite,RCM,RDB,RIK,RMF,ROI_PAC,RPFTOC,RRASTER,RS2,"
    "RST,S102,S104,S111,S57,SAFE,SAGA,SAR_CEOS,SDTS,Selafin,SENTINEL2,SGI,SIGDEM,SNAP_TIFF,SNODAS,SQLite,SRP,STACIT,STACTA,"
    "SXF,Terragen,TGA,TIGER,TIL,TileDB,TopoJSON,TSX,UK_NTF,USGSDEM,VDV,VFK,VICAR,VRT,WAsP,WCS,WFS,WMS,WMTS,XLS,XLSX,XODR,"
    "XPM,XYZ,Zarr,ZMap"
)

_OPTIONS = {
    # the folder is not listed at each open; sidecars are looked for by name
    "GDAL_DISABLE_READDIR_ON_OPEN": "TRUE",
    "GDAL_NUM_THREADS": "1",
    "GDAL_VRT_ENABLE_PYTHON": "NO",
    "GDAL_VRT_ENABLE_RAWRASTERBAND": "NO",
    # no name of a remote file is ever allowed, and if one were: a proxy where nothing listens
    "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": ".no-remote-files",
    "GDAL_HTTP_PROXY": "127.0.0.1:1",
    "GDAL_HTTP_CONNECTTIMEOUT": "1",
    "GDAL_HTTP_MAX_RETRY": "0",
    "AWS_NO_SIGN_REQUEST": "YES",
    "PROJ_NETWORK": "OFF",
}


def safe_env(cache_mb: int = 64) -> rasterio.Env:
    """A `rasterio.Env` (context) without network, and with at most `cache_mb` megabytes of block cache.

    GDAL fixes its cache at first use, so the first call of a process decides.
    """
    return rasterio.Env(GDAL_CACHEMAX=cache_mb, **_OPTIONS)


def registered_drivers() -> frozenset[str]:
    """Names of the drivers of this process; if none were registered yet, only `SAFE_DRIVERS` are, now.

    GDAL reads `GDAL_SKIP` only when it registers drivers, which rasterio does when its first `Env` is entered: an option of that
    `Env` comes too late. So the variable stands in the environment for that moment, and not longer: pyogrio has its own GDAL.
    """
    before = os.environ.get("GDAL_SKIP")
    os.environ["GDAL_SKIP"] = _SKIPPED
    try:
        with rasterio.Env() as env:
            return frozenset(env.drivers())
    finally:
        if before is None:
            del os.environ["GDAL_SKIP"]
        else:
            os.environ["GDAL_SKIP"] = before


def require_restricted_drivers() -> None:
    """Raise `EnvironmentUnfit` (no retry) when this process knows drivers beyond the safe ones and VRT, which warping brings."""
    found = registered_drivers() - {*SAFE_DRIVERS, "VRT"}
    if found:
        raise EnvironmentUnfit(
            f"GDAL: this process can open {', '.join(sorted(found))}; "
            "import resources.gdal_safety before anything else opens a raster, or add these names to its list of skipped drivers",
            kind=ErrorKind.CONTRACT_VIOLATED,
        )


os.environ["PROJ_NETWORK"] = "OFF"
registered_drivers()


def open_raster(
    path: Path | str, drivers: Sequence[str], *, input_digest: str = "", name: str | None = None, **options: str | int
) -> DatasetReader:
    """Open a local raster for reading with one of the allowed `drivers`, named one by one; call it inside `safe_env`.

    `name` stands for the file in messages, `options` are GDAL's open options. Raises `InputRejected` (EMPTY_FILE,
    NOT_A_RASTER, FORBIDDEN_DRIVER, CORRUPT_INPUT, UNREADABLE; no retry) and `TransientError` (INPUT_CHANGED: the file is gone;
    STORAGE_IO: it cannot be read now; retry).
    """
    shown = name or repr(str(path))
    allowed = [driver for driver in drivers if driver in SAFE_DRIVERS]
    with raster_errors(path, input_digest=input_digest, name=name):
        head = read_head(path)
        driver = next((driver for driver in allowed if _begins_like(head, driver)), None)
        if driver is None:
            found, kind = _describe(head)
            raise InputRejected(
                f"{shown}: content: found {found}; allowed: {', '.join(allowed)}", kind=kind, input_digest=input_digest
            )
        return rasterio.open(os.fspath(path), driver=driver, **options)


@contextmanager
def raster_errors(path: Path | str, *, input_digest: str = "", name: str | None = None) -> Iterator[None]:
    """Turn what rasterio and GDAL raise while `path` is read into errors of ours, by type and by the state of the file itself.

    Raises `TransientError` when the file is gone or the system cannot read it (retry), `UnitRejected` (MEMORY_EXCEEDED), and
    `InputRejected` (CORRUPT_INPUT, UNREADABLE) for everything else that GDAL refuses (no retry). Errors of ours pass unchanged.
    """
    shown = name or repr(str(path))
    try:
        yield
    except (MemoryError, CPLE_OutOfMemoryError) as error:
        raise UnitRejected(
            f"{shown}: memory: reading asks for more than is allowed here: {error}", kind=ErrorKind.MEMORY_EXCEEDED
        ) from error
    except CPLE_UserInterruptError as error:
        raise TransientError(f"{shown}: reading was interrupted: {error}", kind=ErrorKind.TIMEOUT) from error
    except (CPLE_BaseError, rasterio.errors.RasterioError) as error:
        raise _judge(path, shown, error, input_digest) from error
    except OSError as error:
        if error.filename is None or os.fspath(error.filename) != os.fspath(path):
            raise  # a full disk is not the fault of the file that was being read
        raise _judge(path, shown, error, input_digest) from error


def _judge(path: Path | str, shown: str, error: Exception, input_digest: str) -> Exception:
    try:
        read_head(path)
    except (FileNotFoundError, NotADirectoryError):
        return TransientError(f"{shown}: the file is gone; it was there when the source was listed", kind=ErrorKind.INPUT_CHANGED)
    except PermissionError as refused:
        return InputRejected(
            f"{shown}: permissions: this account may not read it ({refused.strerror}); allow reading, or remove it",
            kind=ErrorKind.UNREADABLE,
            input_digest=input_digest,
        )
    except OSError as broken:
        code = errno.errorcode.get(broken.errno or 0, "?")
        return TransientError(f"{shown}: the system cannot read it now: {code} {broken.strerror}", kind=ErrorKind.STORAGE_IO)
    cause = error.__cause__ if isinstance(error.__cause__, CPLE_BaseError) else error
    return InputRejected(
        f"{shown}: content: found data that GDAL cannot decode ({_one_line(cause)}); allowed: an intact raster",
        kind=ErrorKind.CORRUPT_INPUT,
        input_digest=input_digest,
    )


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:297] + "..."


def read_head(path: Path | str) -> bytes:
    """The first bytes of a file, as many as `is_tiff` and `describe_content` look at. Raises `OSError`."""
    with open(path, "rb") as stream:
        return stream.read(HEAD_BYTES)


HEAD_BYTES = 4096
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_SIGNATURES: dict[str, tuple[bytes, ...]] = {
    "GTiff": _TIFF,
    "COG": _TIFF,
    "JP2OpenJPEG": (b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51"),
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "JPEG": (b"\xff\xd8\xff",),
    "BMP": (b"BM",),
}


def _begins_like(head: bytes, driver: str) -> bool:
    if driver in _SIGNATURES:
        return head.startswith(_SIGNATURES[driver])
    if driver == "WEBP":
        return head[:4] == b"RIFF" and head[8:12] == b"WEBP"
    if driver == "GRIB":
        return b"GRIB" in head[:1024]
    if driver == "AAIGrid":
        return head[:64].lstrip().lower().startswith((b"ncols", b"nrows", b"xllcorner", b"yllcorner", b"dx", b"dy"))
    return driver == "SRTMHGT" and _describe(head)[1] is ErrorKind.NOT_A_RASTER and b"\0" in head


def is_tiff(head: bytes) -> bool:
    """Whether a file of these first bytes is a TIFF; what an `.ovr` or `.msk` must be."""
    return head.startswith(_TIFF)


def describe_content(head: bytes) -> str:
    """What a file is by its first bytes, in words for messages."""
    return _describe(head)[0]


def _describe(head: bytes) -> tuple[str, ErrorKind]:
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not head:
        return "an empty file (0 bytes)", ErrorKind.EMPTY_FILE
    if not head.strip(b"\0"):
        return "zero bytes only", ErrorKind.EMPTY_FILE
    for start, words in _FOREIGN:
        if text.startswith(start):
            return words, ErrorKind.FORBIDDEN_DRIVER
    for start, words in _KNOWN:
        if text.startswith(start):
            return words, ErrorKind.NOT_A_RASTER
    for driver, starts in _SIGNATURES.items():
        if head.startswith(starts):
            return f"a {driver} raster", ErrorKind.FORBIDDEN_DRIVER
    if b"\0" not in head and all(byte >= 32 or byte in b"\t\r\n\f" for byte in head):
        return "a text file", ErrorKind.NOT_A_RASTER
    return "bytes of no known raster format", ErrorKind.NOT_A_RASTER


_FOREIGN = (
    (b"<vrtdataset", "a VRT (a list of other files)"),
    (b"<ogrvrtdatasource", "a VRT (a list of other files)"),
    (b"<gdaltileindexdataset", "a GTI tile index (a list of other files)"),
    (b"<gdal_wms", "a WMS description (a network address)"),
    (b"<wms_", "a WMS description (a network address)"),
    (b"<gdal_wmts", "a WMTS description (a network address)"),
    (b"<wcs_gdal", "a WCS description (a network address)"),
    (b"<mrf_meta", "an MRF description (names other files)"),
    (b"\x89hdf", "an HDF5 container"),
    (b"cdf\x01", "a netCDF container"),
    (b"cdf\x02", "a netCDF container"),
    (b"sqlite format 3", "an SQLite container"),
    (b"ehfa_header_tag", "an HFA raster (may name other files)"),
    (b"nitf", "a NITF container"),
    (b"gif8", "a GIF picture"),
    (b"grib", "a GRIB raster"),
)
_KNOWN = (
    (b"pk\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"%pdf", "a PDF document"),
    (b"<!doctype html", "an HTML page"),
    (b"<html", "an HTML page"),
    (b"<?xml", "an XML document"),
    (b"{", "a JSON document"),
)
