"""Digests of source files, pinned at first sight: a file whose size, mtime and inode stand still is never hashed again.

Closes the window in which a file changes while it is being read: its status is compared before and after, and a file that moved
is not pinned but looked at again next time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from assets.sources.listing import Entry
from assets.sources.names import path_of
from resources.errors import ErrorKind
from resources.keys import digest_stream
from resources.ledger.rows import FilePin

_BATCH = 200
_THREADS = 2


class PinBook(Protocol):
    """What the ledger keeps about source files between two looks."""

    def pins(self, uris: Iterable[str]) -> dict[str, FilePin]:
        """The pins of those files that have one."""

    def all_pins(self) -> dict[str, FilePin]:
        """Every pin."""

    def pin(self, pins: Iterable[FilePin]) -> None:
        """Write pins, over older ones."""

    def inspection(self, digests: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Facts kept under these keys."""

    def remember_inspection(self, records: Mapping[str, dict[str, Any]]) -> None:
        """Keep facts under their keys."""


@dataclass(slots=True)
class MemoryPins:
    """A pin book that forgets everything with its process, for a look that needs no ledger."""

    files: dict[str, FilePin] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def pins(self, uris: Iterable[str]) -> dict[str, FilePin]:
        """The pins of those files that have one."""
        return {uri: self.files[uri] for uri in uris if uri in self.files}

    def all_pins(self) -> dict[str, FilePin]:
        """Every pin."""
        return dict(self.files)

    def pin(self, pins: Iterable[FilePin]) -> None:
        """Write pins, over older ones."""
        self.files.update({pin.uri: pin for pin in pins})

    def inspection(self, digests: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Facts kept under these keys."""
        return {digest: self.facts[digest] for digest in digests if digest in self.facts}

    def remember_inspection(self, records: Mapping[str, dict[str, Any]]) -> None:
        """Keep facts under their keys."""
        self.facts.update(records)


@dataclass(frozen=True, slots=True)
class Unpinned:
    """Why a file has no digest now. `is_transient`: it moved while it was read, look again later."""

    kind: ErrorKind
    message: str
    is_transient: bool


@dataclass(slots=True)
class Digests:
    """Digest of each file by uri, or why there is none, and how many were hashed for it."""

    sha256: dict[str, str] = field(default_factory=dict)
    unpinned: dict[str, Unpinned] = field(default_factory=dict)
    hashed: int = 0


def is_pinned(entry: Entry, pin: FilePin | None) -> bool:
    """Whether the file still is the one that was pinned."""
    return pin is not None and (pin.size_bytes, pin.mtime_ns, pin.inode) == (entry.size_bytes, entry.mtime_ns, entry.inode)


def digest_entries(
    entries: Sequence[Entry], *, source_dir: Path, book: PinBook, known: Mapping[str, FilePin], now: datetime
) -> Digests:
    """Sha256 of every entry, from its pin or by reading it.

    After a crash: pins are written in batches as hashing goes on; what was hashed before is not hashed again.
    """
    digests = Digests()
    to_read = []
    for entry in entries:
        pin = known.get(entry.uri)
        if pin is not None and is_pinned(entry, pin):
            digests.sha256[entry.uri] = pin.sha256
        else:
            to_read.append(entry)
    digests.hashed = len(to_read)
    remaining = iter(to_read)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="hash") as threads:
        while batch := list(islice(remaining, _BATCH)):
            fresh = []
            for entry, answer in zip(batch, threads.map(lambda item: _read(item, source_dir), batch), strict=True):
                if isinstance(answer, Unpinned):
                    digests.unpinned[entry.uri] = answer
                    continue
                digests.sha256[entry.uri] = answer
                fresh.append(FilePin(entry.uri, entry.size_bytes, entry.mtime_ns, entry.inode, answer, now))
            if fresh:
                book.pin(fresh)
    return digests


def _read(entry: Entry, source_dir: Path) -> str | Unpinned:
    expected = (entry.size_bytes, entry.mtime_ns, entry.inode)
    try:
        with open(path_of(entry.uri, source_dir), "rb") as stream:
            before = _facts(os.fstat(stream.fileno()))
            sha256 = digest_stream(stream)
            after = _facts(os.fstat(stream.fileno()))
    except PermissionError as error:
        message = f"permissions: found that this account may not read it ({error.strerror}); allowed: a file that it may read"
        return Unpinned(ErrorKind.UNREADABLE, message, is_transient=False)
    except FileNotFoundError:
        return Unpinned(ErrorKind.INPUT_CHANGED, "found that it is gone; it was there a moment ago", is_transient=True)
    except OSError as error:
        return Unpinned(ErrorKind.STORAGE_IO, f"found that it cannot be read now ({error.strerror})", is_transient=True)
    if not before == after == expected:
        return Unpinned(ErrorKind.INPUT_CHANGED, "found that it changed while it was read", is_transient=True)
    return sha256


def _facts(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ino
