"""Digests of source files, pinned at first sight: a file whose size, mtime and inode stand still is never hashed again.

A file that changed while it was being read is not pinned but looked at again next time (`Source.digest_entry`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Protocol

from assets.sources.listing import Entry
from assets.sources.source import Source, Unpinned
from resources.ledger.rows import FilePin

_BATCH = 200


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


@dataclass(slots=True)
class Digests:
    """Digest of each file by uri, or why there is none, and how many were hashed for it."""

    sha256: dict[str, str] = field(default_factory=dict)
    unpinned: dict[str, Unpinned] = field(default_factory=dict)
    hashed: int = 0


def is_pinned(entry: Entry, pin: FilePin | None) -> bool:
    """Whether the file still is the one that was pinned."""
    return pin is not None and (pin.size_bytes, pin.mtime_ns, pin.inode) == entry.standing


def digest_entries(
    entries: Sequence[Entry], *, source: Source, book: PinBook, known: Mapping[str, FilePin], now: datetime
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
    with ThreadPoolExecutor(source.threads, thread_name_prefix="hash") as threads:
        while batch := list(islice(remaining, _BATCH)):
            fresh = []
            for entry, answer in zip(batch, threads.map(source.digest_entry, batch), strict=True):
                if isinstance(answer, Unpinned):
                    digests.unpinned[entry.uri] = answer
                    continue
                digests.sha256[entry.uri] = answer
                fresh.append(FilePin(entry.uri, entry.size_bytes, entry.mtime_ns, entry.inode, answer, now))
            if fresh:
                book.pin(fresh)
    return digests
