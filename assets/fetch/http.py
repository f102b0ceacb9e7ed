"""Web addresses through fsspec's HTTP session: time-outs, redirects, limits, and what each failure means.

fsspec's own file objects ask for the head first, follow redirects anywhere, hide status and headers, and end silently where a
body was cut short. So this takes the session and the event loop that fsspec keeps (`set_session`, `loop`), and asks by itself.
A session lives in one `with` block: nothing stays open behind a unit, and a forked or spawned process inherits none.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import zlib
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urljoin

import aiohttp
import yarl
from fsspec.implementations.http import HTTPFileSystem

from assets.fetch.model import Fetched, FetchLimits
from assets.fetch.uris import WEB, host_of, is_inner, is_signed, redacted, split
from assets.fetch.verdicts import of_status, too_large, transient
from resources.errors import EnvironmentUnfit, ErrorKind, TilewrightError, UnitRejected

CHUNK_BYTES = 1 << 18
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PRINTABLE = re.compile(r"[!-~]+")
# what these say when a log prints them includes the address as it was asked for, and the headers
_TELLS_ADDRESS = (aiohttp.InvalidURL, aiohttp.ClientResponseError)
_NO_HEAD = frozenset({400, 405, 501})

T = TypeVar("T")


class Web:
    """One HTTP session. May be used by several threads at once; each call waits for its own answer."""

    def __init__(self, filesystem: HTTPFileSystem, session: aiohttp.ClientSession, limits: FetchLimits) -> None:
        self._loop: asyncio.AbstractEventLoop = filesystem.loop
        self._session = session
        self._limits = limits

    def take(self, uri: str, target: Path) -> Fetched:
        """Stream the content of `uri` into the new file `target`.

        Raises `TransientError` (a later call may succeed), `UnitRejected`, `EnvironmentUnfit`. After a crash: `target` may hold
        a part.
        """
        return self._wait(self._take(uri, target), uri)

    def token(self, uri: str) -> str | None:
        """The version token of what `uri` holds now, by its head alone; None when the server gives none. Raises as `take`."""
        return self._wait(self._head(uri), uri)

    async def _take(self, uri: str, target: Path) -> Fetched:
        async with asyncio.timeout(self._limits.total_s), self._answer("GET", uri) as (response, here):
            if response.status not in (200, 203):
                raise self._status(response, here)
            body = _Body(response.headers.get("Content-Encoding", ""), here, self._limits)
            declared = _length(response.headers)
            if declared is not None and declared > self._limits.max_bytes:
                raise too_large(here, self._limits, found=declared)
            with target.open("wb") as file:
                async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                    for piece in body.pieces(chunk):
                        file.write(piece)
            body.check_whole(declared)
            return Fetched(
                redacted(here), body.digest, body.size_bytes, token_of(response.headers), response.headers.get("Content-Type")
            )

    async def _head(self, uri: str) -> str | None:
        async with asyncio.timeout(self._limits.total_s), self._answer("HEAD", uri) as (response, here):
            if response.status in (200, 203, 204):
                return token_of(response.headers)
            if response.status in _NO_HEAD or (response.status == 403 and is_signed(here)):
                return None
            raise self._status(response, here)

    @asynccontextmanager
    async def _answer(self, method: str, uri: str) -> AsyncIterator[tuple[aiohttp.ClientResponse, str]]:
        """The first answer that is no redirect, and the address that gave it."""
        here = uri
        for _ in range(self._limits.redirects_max + 1):
            async with self._session.request(method, _url(here), allow_redirects=False) as response:
                if response.status not in _REDIRECTS:
                    yield response, here
                    return
                here = _next(here, response.headers.get("Location"))
        raise UnitRejected(
            f"{redacted(uri)}: more than {self._limits.redirects_max} redirects; mend its address", kind=ErrorKind.UNREADABLE
        )

    def _status(self, response: aiohttp.ClientResponse, here: str) -> TilewrightError:
        return of_status(response.status, here, headers=response.headers, limits=self._limits, now=datetime.now(UTC))

    def _wait(self, work: Coroutine[Any, Any, T], uri: str) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except (aiohttp.ClientError, TimeoutError, UnicodeError) as error:
            # without its cause where that would show the address with its secrets
            raise _meaning(error, uri, self._limits) from (None if isinstance(error, _TELLS_ADDRESS) else error)
        finally:
            # an interrupted wait must not leave a download behind
            future.cancel()


@contextmanager
def web_session(limits: FetchLimits) -> Iterator[Web]:
    """A session that is closed with the block.

    Proxies and credentials of the surroundings (`HTTPS_PROXY`, `~/.netrc`) are used.
    """
    timeout = aiohttp.ClientTimeout(total=None, connect=limits.connect_s, sock_connect=limits.connect_s, sock_read=limits.read_s)
    asked = {
        "timeout": timeout,
        "auto_decompress": False,
        "trust_env": True,
        "headers": {"Accept-Encoding": "identity", "User-Agent": "tilewright"},
    }
    filesystem = HTTPFileSystem(client_kwargs=asked, skip_instance_cache=True)
    session: aiohttp.ClientSession = asyncio.run_coroutine_threadsafe(filesystem.set_session(), filesystem.loop).result()
    try:
        yield Web(filesystem, session, limits)
    finally:
        asyncio.run_coroutine_threadsafe(session.close(), filesystem.loop).result()


def token_of(headers: Mapping[str, str]) -> str | None:
    """The version token in the headers of an answer: its ETag, strong or weak, else Last-Modified with the length, else None.

    Last-Modified counts in seconds: what was modified in the second of the answer may change again under the same value (RFC
    9110, 8.8.2.2).
    """
    etag = headers.get("ETag", "").strip()
    if etag:
        return f"etag:{etag}"
    modified, length = headers.get("Last-Modified", "").strip(), headers.get("Content-Length", "").strip()
    if not modified or not length:
        return None
    try:
        age = parsedate_to_datetime(headers.get("Date", "")) - parsedate_to_datetime(modified)
    except (ValueError, TypeError, IndexError, OverflowError):
        age = timedelta.max
    return f"modified:{modified}:{length}" if age >= timedelta(seconds=1) else None


class _Body:
    """Counts, bounds and digests a body; takes off a content coding that was put on although none was asked for."""

    def __init__(self, coding: str, uri: str, limits: FetchLimits) -> None:
        self.size_bytes = 0
        self._raw_bytes = 0
        self._hash = hashlib.sha256()
        self._uri, self._limits = uri, limits
        name = coding.strip().lower()
        if name not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise UnitRejected(
                f"{redacted(uri)} comes in a coding that was not asked for: {name[:40]}", kind=ErrorKind.UNREADABLE
            )
        self._unpack = None if name in ("", "identity") else zlib.decompressobj(15 if name == "deflate" else 31)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        self._raw_bytes += len(chunk)
        for piece in self._plain(chunk):
            self.size_bytes += len(piece)
            if self.size_bytes > self._limits.max_bytes:
                raise too_large(self._uri, self._limits)
            self._hash.update(piece)
            yield piece

    def check_whole(self, declared: int | None) -> None:
        is_short = declared is not None and declared != self._raw_bytes
        if is_short or (self._unpack is not None and not self._unpack.eof):
            raise transient(
                f"{redacted(self._uri)} was cut short after {self._raw_bytes:,} bytes", kind=ErrorKind.SOURCE_UNAVAILABLE
            )

    def _plain(self, chunk: bytes) -> Iterator[bytes]:
        if self._unpack is None:
            yield chunk
            return
        while not self._unpack.eof:
            try:
                # never more than a chunk at once: a few bytes can stand for gigabytes
                piece = self._unpack.decompress(chunk, CHUNK_BYTES)
            except zlib.error as error:
                raise transient(f"{redacted(self._uri)} came damaged ({error})", kind=ErrorKind.SOURCE_UNAVAILABLE) from error
            yield piece
            chunk = self._unpack.unconsumed_tail
            if not chunk and len(piece) < CHUNK_BYTES:
                return


def _url(uri: str) -> yarl.URL:
    """As it is written where it can be sent so, since quoting anew would break a signature; quoted where it cannot."""
    parts = split(uri)
    if not parts.hostname:
        raise UnitRejected(f"{redacted(uri)} names no host; mend its address", kind=ErrorKind.UNREADABLE)
    try:
        return yarl.URL(uri, encoded=_PRINTABLE.fullmatch(uri) is not None)
    except ValueError:
        raise UnitRejected(f"not a web address: {redacted(uri)}; mend it where it is listed", kind=ErrorKind.UNREADABLE) from None


def _next(here: str, location: str | None) -> str:
    """Where a redirect leads.

    Raises `UnitRejected` unless to a web address, no less safe, and not into this machine from outside.
    """
    if not location:
        raise UnitRejected(f"{redacted(here)} redirects to nowhere", kind=ErrorKind.UNREADABLE)
    try:
        there = urljoin(here, location)
    except ValueError:
        raise UnitRejected(f"{redacted(here)} redirects to what is no address", kind=ErrorKind.UNREADABLE) from None
    old, new = split(here), split(there)
    is_safe = new.scheme in WEB and (old.scheme != "https" or new.scheme == "https")
    if not is_safe or (is_inner(new.hostname) and not is_inner(old.hostname)):
        raise UnitRejected(f"{redacted(here)} redirects to {redacted(there)}, which is not followed", kind=ErrorKind.UNREADABLE)
    return there


def _length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("Content-Length", "").strip()
    return int(text) if text.isascii() and text.isdigit() else None


def _meaning(error: BaseException, uri: str, limits: FetchLimits) -> TilewrightError:
    """The error that an exception of the HTTP library stands for, by its type."""
    shown, host = redacted(uri), host_of(uri)
    if isinstance(error, aiohttp.InvalidURL | UnicodeError):
        return UnitRejected(f"not a web address: {shown}; mend it where it is listed", kind=ErrorKind.UNREADABLE)
    if isinstance(error, TimeoutError):
        bounds = f"connect {limits.connect_s:g} s, silence {limits.read_s:g} s, in all {limits.total_s:g} s"
        return transient(f"{host} took too long with {shown} ({bounds})", kind=ErrorKind.TIMEOUT)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return EnvironmentUnfit(
            f"the certificate of {host} cannot be trusted ({error.certificate_error}); "
            "have it renewed, or name its authority by SSL_CERT_FILE",
            kind=ErrorKind.UNTRUSTED_HOST,
        )
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return of_status(error.status, uri, headers=error.headers or {}, limits=limits, now=datetime.now(UTC))
    if isinstance(error, aiohttp.ClientPayloadError):
        return transient(f"{shown} was cut short", kind=ErrorKind.SOURCE_UNAVAILABLE)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return transient(f"{host} is not known by that name now ({shown})", kind=ErrorKind.SOURCE_UNAVAILABLE)
    return transient(f"{host} did not answer for {shown} ({type(error).__name__})", kind=ErrorKind.SOURCE_UNAVAILABLE)
