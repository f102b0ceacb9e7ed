"""Local files and object stores through fsspec: content into a file, and the version token of what is there now."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import fsspec

from assets.fetch.model import Fetched, FetchLimits
from assets.fetch.uris import host_of, local_path, redacted, scheme_of, shown_uri
from assets.fetch.verdicts import not_found, too_large, transient
from resources.errors import EnvironmentUnfit, ErrorKind, TilewrightError, TransientError, UnitRejected
from resources.schemes import STORES

_CHUNK_BYTES = 1 << 20
_BLOCK_BYTES = 8 << 20
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
# what the clients of object stores raise, by class, so that none need be installed
_BY_CLASS_NAME: dict[str, type[EnvironmentUnfit | TransientError]] = {
    "botocore.exceptions.NoCredentialsError": EnvironmentUnfit,
    "botocore.exceptions.PartialCredentialsError": EnvironmentUnfit,
    "google.auth.exceptions.GoogleAuthError": EnvironmentUnfit,
    "azure.core.exceptions.ClientAuthenticationError": EnvironmentUnfit,
    "botocore.exceptions.HTTPClientError": TransientError,
    "google.auth.exceptions.TransportError": TransientError,
    "azure.core.exceptions.ServiceRequestError": TransientError,
    "azure.core.exceptions.ServiceResponseError": TransientError,
    "aiohttp.client_exceptions.ClientError": TransientError,
}


def take_local(uri: str, target: Path, *, limits: FetchLimits) -> Fetched:
    """Copy a local file into `target`. Raises `TransientError` when it changed meanwhile, `UnitRejected`, `EnvironmentUnfit`."""
    path, before = _found(uri, limits)
    shown = shown_uri(uri, limits.root)
    if before.st_size > limits.max_bytes:
        raise too_large(shown, limits, found=before.st_size)
    with _opened(shown, path) as source:
        digest, size_bytes = _copy(source, target, uri=shown, limits=limits)
    token = _local_token(before)
    if _local_token(_found(uri, limits)[1]) != token or size_bytes != before.st_size:
        raise TransientError(f"{shown} changed while it was read", kind=ErrorKind.INPUT_CHANGED)
    return Fetched(shown, digest, size_bytes, token, None)


def local_token(uri: str, *, limits: FetchLimits) -> str:
    """Size, time of change and inode of a local file. Raises `UnitRejected` or `EnvironmentUnfit` when it is not there."""
    return _local_token(_found(uri, limits)[1])


def take_object(uri: str, target: Path | None, *, limits: FetchLimits) -> Fetched:
    """Stream an object into `target`, or only through its digest. Raises `TransientError`, `UnitRejected`, `EnvironmentUnfit`."""
    with store_errors(uri):
        store = object_store(uri)
        about = store.info(uri)
        size = about.get("size")
        if size is not None and size > limits.max_bytes:
            raise too_large(uri, limits, found=size)
        with open_object(uri) as source:
            digest, size_bytes = _copy(source, target, uri=uri, limits=limits)
        # a large object comes in several requests, and may have been replaced between two of them
        if token_of(store.info(uri)) != token_of(about):
            raise TransientError(f"{redacted(uri)} changed while it was read", kind=ErrorKind.INPUT_CHANGED)
    if size is not None and size != size_bytes:
        raise transient(
            f"{redacted(uri)} was cut short after {size_bytes:,} bytes of {size:,}", kind=ErrorKind.SOURCE_UNAVAILABLE
        )
    return Fetched(redacted(uri), digest, size_bytes, token_of(about), about.get("ContentType") or about.get("contentType"))


def object_token(uri: str, *, limits: FetchLimits) -> str | None:  # noqa: ARG001 - all schemes are asked alike
    """The version token that an object store gives; None when it gives none. Raises as `take_object`."""
    with store_errors(uri):
        return token_of(object_store(uri).info(uri))


def object_store(uri: str) -> Any:
    """The fsspec filesystem of an object's address. Raises `EnvironmentUnfit` naming the package when it is not installed."""
    scheme = scheme_of(uri)
    try:
        # one for each process and thread, since a client takes long to make; fsspec keeps them apart
        return fsspec.filesystem(scheme, use_listings_cache=False)
    except ImportError as error:
        raise EnvironmentUnfit(
            f"{scheme}: addresses need the package {STORES[scheme]}, which is not installed; install it and run again",
            kind=ErrorKind.BROKEN_INSTALLATION,
        ) from error


def open_object(uri: str) -> Any:
    """An object's bytes, seekable, a context; read ahead in blocks, so that memory does not follow its size. Raises anything."""
    return object_store(uri).open(uri, "rb", block_size=_BLOCK_BYTES)


@contextmanager
def store_errors(uri: str) -> Iterator[None]:
    """What an object store raises in this block means, by its type."""
    shown, host = redacted(uri), host_of(uri)
    try:
        yield
    except TilewrightError:
        raise
    except FileNotFoundError as error:
        raise not_found(uri) from error
    except PermissionError as error:
        raise _refused(host, shown) from error
    except TimeoutError as error:
        raise transient(f"{host} took too long with {shown}", kind=ErrorKind.TIMEOUT) from error
    except Exception as error:
        known = next((_BY_CLASS_NAME[name] for name in map(_class_name, type(error).__mro__) if name in _BY_CLASS_NAME), None)
        if known is None:
            raise
        if known is EnvironmentUnfit:
            raise _refused(host, shown) from error
        raise transient(
            f"{host} did not answer for {shown} ({type(error).__name__})", kind=ErrorKind.SOURCE_UNAVAILABLE
        ) from error


def _refused(host: str, shown: str) -> EnvironmentUnfit:
    return EnvironmentUnfit(
        f"{host} refused the credentials for {shown}, or there are none; renew them", kind=ErrorKind.CREDENTIALS_REFUSED
    )


def _class_name(base: type) -> str:
    return f"{base.__module__}.{base.__qualname__}"


def _found(uri: str, limits: FetchLimits) -> tuple[Path, os.stat_result]:
    path, shown = local_path(uri), shown_uri(uri, limits.root)
    if not path.is_absolute():
        raise UnitRejected(f"{shown} depends on the folder it is read from; give the whole path", kind=ErrorKind.UNREADABLE)
    homes = _homes(path, limits)
    if limits.folders and not homes:
        raise UnitRejected(f"{shown} is outside the folders that content may come from", kind=ErrorKind.UNREADABLE)
    try:
        there = path.stat()
    except OSError as error:
        if error.errno not in _ABSENT:
            raise _unreadable(shown, error) from error
        if gone := next((home for home in homes if _is_gone(home)), None):
            raise EnvironmentUnfit(
                f"the folder {gone} of {shown} is not there, or is empty; mount it or mend the address",
                kind=ErrorKind.SOURCE_MISSING,
            ) from error
        raise not_found(shown) from error
    if not stat.S_ISREG(there.st_mode):
        # opening a pipe would wait for ever
        raise UnitRejected(f"{shown} is a folder, a pipe or a device, not a file", kind=ErrorKind.UNREADABLE)
    return path, there


def _homes(path: Path, limits: FetchLimits) -> list[Path]:
    """The folders of a file that are gone when a disk is: a file without them is not the fault of its address.

    The configured ones. Without any: in the project's folder that one, and what is there directly below it; elsewhere the first
    two names of the path, for where a disk is mounted cannot be known while it is not.
    """
    if limits.folders:
        real = Path(os.path.realpath(path))
        return [folder for folder in limits.folders if real.is_relative_to(os.path.realpath(folder))]
    whole = Path(os.path.normpath(path))
    if limits.root is not None and whole.is_relative_to(limits.root):
        # a mount point stays when its disk goes, and so does a link to it; a mistyped name was never there
        first = limits.root.joinpath(*whole.relative_to(limits.root).parts[:-1][:1])
        is_there = first.is_dir() or (first.is_symlink() and not first.exists())
        return [limits.root, first] if is_there else [limits.root]
    home = Path(*whole.parts[: min(3, len(whole.parts) - 1)])
    return [] if home.is_file() else [home]


def _is_gone(folder: Path) -> bool:
    """Whether a folder is not there, or holds nothing but hidden names: an unmounted disk is an empty folder."""
    try:
        with os.scandir(folder) as entries:
            return all(entry.name.startswith(".") for entry in entries)
    except PermissionError:
        return False
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return True


@contextmanager
def _opened(shown: str, path: Path) -> Iterator[BinaryIO]:
    try:
        source = fsspec.filesystem("file").open(str(path), "rb")
    except OSError as error:
        raise (not_found(shown) if error.errno in _ABSENT else _unreadable(shown, error)) from error
    with source:
        yield source


def _unreadable(shown: str, error: OSError) -> Exception:
    if isinstance(error, PermissionError):
        return UnitRejected(f"{shown} may not be read by this user; mend its permissions", kind=ErrorKind.UNREADABLE)
    return error


def _copy(source: BinaryIO, target: Path | None, *, uri: str, limits: FetchLimits) -> tuple[str, int]:
    found, size_bytes = hashlib.sha256(), 0
    with nullcontext() if target is None else target.open("wb") as file:
        while chunk := source.read(_CHUNK_BYTES):
            size_bytes += len(chunk)
            if size_bytes > limits.max_bytes:
                raise too_large(uri, limits)
            found.update(chunk)
            if file is not None:
                file.write(chunk)
    return found.hexdigest(), size_bytes


def _local_token(there: os.stat_result) -> str:
    return f"file:{there.st_size}:{there.st_mtime_ns}:{there.st_ino}"


def token_of(about: Mapping[str, Any]) -> str | None:
    """The version token of an object in what its store says of it; None when it gives none."""
    for name in ("ETag", "etag", "generation", "md5Hash"):
        if about.get(name):
            return f"etag:{about[name]}"
    modified = _modified(about)
    return None if modified is None else f"modified:{modified}:{about.get('size')}"


def modified_at(about: Mapping[str, Any]) -> int:
    """When an object was written, in ns since 1970, in what its store says of it; 0 when it does not say."""
    found = _modified(about)
    if isinstance(found, str):
        found = datetime.fromisoformat(found)
    return int(found.timestamp() * 1e9) if isinstance(found, datetime) else 0


def _modified(about: Mapping[str, Any]) -> Any:
    return next((about[name] for name in ("LastModified", "last_modified", "updated", "created") if about.get(name)), None)
