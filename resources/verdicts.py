"""The one table that maps what was raised onto a verdict: by type along the cause chain and by error number, never by message.

The code that knows raises `TransientError`, `UnitRejected` or `EnvironmentUnfit`. Everything else is foreign and is looked up
here; what is not in the table is UNCLASSIFIED, and unclassified means quarantine: what is not known to be transient is not
retried by itself.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass

from resources.errors import EnvironmentUnfit, ErrorKind, InputRejected, TilewrightError, TransientError, UnitRejected, Verdict

REASON_LENGTH_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Failure:
    """A classified failure: plain values, so that it crosses process borders whatever was raised."""

    verdict: Verdict
    kind: ErrorKind
    message: str
    input_digest: str | None = None
    retry_after_s: float | None = None


_BY_ERRNO: dict[int, tuple[Verdict, ErrorKind]] = {
    errno.ENOSPC: (Verdict.STOP, ErrorKind.DISK_FULL),
    errno.EDQUOT: (Verdict.STOP, ErrorKind.DISK_FULL),
    errno.EROFS: (Verdict.STOP, ErrorKind.STORE_UNWRITABLE),
    errno.ENOTCONN: (Verdict.STOP, ErrorKind.STORE_MISSING),
    errno.ESTALE: (Verdict.RETRY, ErrorKind.STORAGE_IO),
    errno.EIO: (Verdict.RETRY, ErrorKind.STORAGE_IO),
    errno.EAGAIN: (Verdict.RETRY, ErrorKind.LOCK_CONTENTION),
    errno.EBUSY: (Verdict.RETRY, ErrorKind.LOCK_CONTENTION),
    errno.EINTR: (Verdict.RETRY, ErrorKind.STORAGE_IO),
    errno.ETIMEDOUT: (Verdict.RETRY, ErrorKind.TIMEOUT),
    errno.ECONNRESET: (Verdict.RETRY, ErrorKind.SOURCE_UNAVAILABLE),
    errno.ECONNREFUSED: (Verdict.RETRY, ErrorKind.SOURCE_UNAVAILABLE),
    errno.ENETUNREACH: (Verdict.RETRY, ErrorKind.SOURCE_UNAVAILABLE),
    errno.EHOSTUNREACH: (Verdict.RETRY, ErrorKind.SOURCE_UNAVAILABLE),
    errno.EMFILE: (Verdict.STOP, ErrorKind.STORE_UNWRITABLE),
    errno.ENFILE: (Verdict.STOP, ErrorKind.STORE_UNWRITABLE),
}

# GDAL's CPL error classes live in rasterio._err and are not RasterioError; named by class, so that rasterio need not be imported.
_BY_CLASS_NAME: dict[str, tuple[Verdict, ErrorKind]] = {
    "rasterio._err.CPLE_OutOfMemoryError": (Verdict.QUARANTINE, ErrorKind.MEMORY_EXCEEDED),
    "rasterio._err.CPLE_OpenFailedError": (Verdict.QUARANTINE, ErrorKind.UNREADABLE),
    "rasterio._err.CPLE_FileIOError": (Verdict.QUARANTINE, ErrorKind.CORRUPT_INPUT),
    "rasterio._err.CPLE_NoWriteAccessError": (Verdict.STOP, ErrorKind.STORE_UNWRITABLE),
    "rasterio._err.CPLE_HttpResponseError": (Verdict.RETRY, ErrorKind.SOURCE_UNAVAILABLE),
    "rasterio._err.CPLE_AWSAccessDeniedError": (Verdict.STOP, ErrorKind.CREDENTIALS_REFUSED),
    "rasterio._err.CPLE_AWSInvalidCredentialsError": (Verdict.STOP, ErrorKind.CREDENTIALS_REFUSED),
    "rasterio._err.CPLE_AWSSignatureDoesNotMatchError": (Verdict.STOP, ErrorKind.CREDENTIALS_REFUSED),
    "rasterio._err.CPLE_BaseError": (Verdict.QUARANTINE, ErrorKind.CORRUPT_INPUT),
    "rasterio.errors.RasterioIOError": (Verdict.QUARANTINE, ErrorKind.CORRUPT_INPUT),
    "rasterio.errors.CRSError": (Verdict.QUARANTINE, ErrorKind.UNSUPPORTED_CRS),
    "rasterio.errors.RasterioError": (Verdict.QUARANTINE, ErrorKind.UNREADABLE),
}


def classify(error: BaseException) -> Failure:
    """The verdict on `error`: the first link of its cause chain that the table knows decides."""
    for link in _chain(error):
        known = _known(link)
        if known is not None:
            verdict, kind = known
            digest = link.input_digest if isinstance(link, InputRejected) else None
            pause_s = link.retry_after_s if isinstance(link, TransientError) else None
            return Failure(verdict, kind, _describe(error), digest, pause_s)
    return Failure(Verdict.QUARANTINE, ErrorKind.UNCLASSIFIED, _describe(error))


def _known(error: BaseException) -> tuple[Verdict, ErrorKind] | None:
    if isinstance(error, TransientError):
        return Verdict.RETRY, error.kind
    if isinstance(error, UnitRejected):
        return Verdict.QUARANTINE, error.kind
    if isinstance(error, EnvironmentUnfit):
        return Verdict.STOP, error.kind
    if isinstance(error, TilewrightError):
        return Verdict.QUARANTINE, error.kind
    if isinstance(error, ImportError):
        # a broken or half-replaced installation: every unit would fail so, and none of them is at fault
        return Verdict.STOP, ErrorKind.BROKEN_INSTALLATION
    if isinstance(error, MemoryError):
        return Verdict.QUARANTINE, ErrorKind.MEMORY_EXCEEDED
    if isinstance(error, TimeoutError | FutureTimeoutError | socket.timeout):
        return Verdict.RETRY, ErrorKind.TIMEOUT
    if isinstance(error, ConnectionError):
        return Verdict.RETRY, ErrorKind.SOURCE_UNAVAILABLE
    if isinstance(error, OSError) and error.errno in _BY_ERRNO:
        return _BY_ERRNO[error.errno]
    for base in type(error).__mro__:
        found = _BY_CLASS_NAME.get(f"{base.__module__}.{base.__qualname__}")
        if found is not None:
            return found
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _describe(error: BaseException) -> str:
    text = error.message if isinstance(error, TilewrightError) else f"{type(error).__name__}: {error}"
    # file names may hold bytes that no encoding has, and PostgreSQL refuses a zero byte: a reason must never fail to be recorded
    whole = text[:REASON_LENGTH_MAX].encode("utf-8", "backslashreplace").decode("utf-8")
    return whole.replace("\0", "\\x00")[:REASON_LENGTH_MAX]
