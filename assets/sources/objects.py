"""A prefix of an object store as a source: `s3://bucket/prefix` and its like, through fsspec.

An object is whole or not there, and its version is what the store says of it (ETag or generation, else its time): in a listing
that stands for the inode. Credentials, region and endpoint are the environment's, as the store's own tools take them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from assets.fetch.files import modified_at, object_store, open_object, store_errors, take_object, token_of
from assets.fetch.model import FetchLimits
from assets.fetch.uris import redacted
from assets.sources.listing import Entry, Listing
from assets.sources.names import Stranger, relative_of, uri_of
from assets.sources.source import Held, Unpinned, standing
from resources.errors import EnvironmentUnfit, ErrorKind, TransientError, UnitRejected

_LIMITS = FetchLimits(max_bytes=1 << 44)


@dataclass(frozen=True, slots=True)
class ObjectSource:
    """Objects below `prefix`. See `Source`."""

    prefix: str
    threads: ClassVar[int] = 8

    def listing(self) -> Listing:
        """Every key below the prefix, hidden ones too. Raises `EnvironmentUnfit` when the store does not list it."""
        with self._as_source() as store:
            top = store._strip_protocol(self.prefix).rstrip("/") + "/"
            keys: Mapping[str, Mapping[str, Any]] = store.find(self.prefix, detail=True)
        found = Listing()
        for key in sorted(keys):
            relative = key.removeprefix(top)
            if keys[key].get("type") != "file" or relative.endswith("/"):
                continue
            if any(part in ("", ".", "..") for part in relative.split("/")):
                found.strangers.append(Stranger(uri_of(relative), "key: found an empty part, '.' or '..'; allowed: names"))
                continue
            found.entries[relative] = _entry(relative, keys[key])
        return found

    def require(self) -> None:
        """Raises `EnvironmentUnfit` (SOURCE_MISSING) when nothing is below the prefix."""
        with self._as_source() as store:
            is_empty = not store.ls(self.prefix, detail=False)
        if is_empty:
            raise _missing(self.prefix, "found nothing below it")

    @contextmanager
    def _as_source(self) -> Iterator[Any]:
        """The store, asked for the source as a whole: what is wrong then is nobody's but the surroundings' fault."""
        try:
            with store_errors(self.prefix):
                yield object_store(self.prefix)
        except (UnitRejected, TransientError, OSError) as error:
            raise _missing(self.prefix, str(error)) from error

    def has(self, relative: str) -> bool:  # noqa: ARG002 - its listing passes nothing over
        """Always False: its listing holds every key."""
        return False

    @contextmanager
    def open(self, uri: str) -> Iterator[BinaryIO]:
        """The object's bytes, by requests of ranges. Raises `FileNotFoundError`, `TransientError`, `EnvironmentUnfit`."""
        address = self._address(uri)
        with _absent_as_such(address), store_errors(address), open_object(address) as stream:
            yield stream

    def is_still(self, entry: Entry) -> bool:
        """Whether the store says of the object what it said when it was listed. Raises as `open`."""
        address = self._address(entry.uri)
        with _absent_as_such(address), store_errors(address):
            return _entry(entry.relative, object_store(address).info(address)).standing == entry.standing

    def digest_entry(self, entry: Entry) -> str | Unpinned:
        """Closes the window in which an object is replaced while it is read: its version is compared before and after."""
        try:
            taken = take_object(self._address(entry.uri), None, limits=_LIMITS)
        except TransientError as error:
            return Unpinned(error.kind, error.message, is_transient=True)
        except UnitRejected as error:
            if error.kind is not ErrorKind.NOT_FOUND:
                return Unpinned(error.kind, error.message, is_transient=False)
            return Unpinned(ErrorKind.INPUT_CHANGED, "found that it is gone; it was there a moment ago", is_transient=True)
        except OSError as error:
            return Unpinned(ErrorKind.STORAGE_IO, f"found that it cannot be read now ({error})", is_transient=True)
        if (taken.size_bytes, _mark(taken.token)) != (entry.size_bytes, entry.inode):
            return Unpinned(ErrorKind.INPUT_CHANGED, "found that it changed since it was listed", is_transient=True)
        return taken.digest

    def digest(self, uri: str) -> str:
        """Sha256 of the object. Raises as `open`."""
        address = self._address(uri)
        with _absent_as_such(address):
            return take_object(address, None, limits=_LIMITS).digest

    @contextmanager
    def held(self, uri: str, scratch: Path) -> Iterator[Held]:
        """The object in the file `scratch`. Raises as `open`, and `OSError` when it cannot be written."""
        address = self._address(uri)
        try:
            with _absent_as_such(address):
                taken = take_object(address, scratch, limits=_LIMITS)
            yield Held(scratch, taken.digest, standing(scratch.stat()))
        finally:
            scratch.unlink(missing_ok=True)

    def _address(self, uri: str) -> str:
        return f"{self.prefix.rstrip('/')}/{relative_of(uri)}"


def _missing(prefix: str, found: str) -> EnvironmentUnfit:
    return EnvironmentUnfit(
        f"source.uri: {redacted(prefix)} cannot be listed: {found}; allowed: a prefix with a folder for each batch",
        kind=ErrorKind.SOURCE_MISSING,
    )


@contextmanager
def _absent_as_such(address: str) -> Iterator[None]:
    try:
        yield
    except UnitRejected as error:
        if error.kind is not ErrorKind.NOT_FOUND:
            raise
        raise FileNotFoundError(f"no object {address}") from error


def _entry(relative: str, about: Mapping[str, Any]) -> Entry:
    changed_ns = modified_at(about)
    return Entry(relative, int(about["size"]), changed_ns, changed_ns, _mark(token_of(about)))


def _mark(token: str | None) -> int:
    """A version token as the whole number that a pin keeps."""
    return int.from_bytes(hashlib.sha256((token or "").encode()).digest()[:7])
