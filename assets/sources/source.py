"""Where inputs lie: a folder of this machine or a prefix of an object store, looked at and read in the same way.

A source is a plain value and survives pickling, so that workers get it with their unit. Inputs are named by uris relative to it
(`assets.sources.names`). Libraries that read pixels want a file: `held` gives one, the input's own or a scratch copy.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar, Protocol

from assets.sources.listing import Entry, Listing
from resources.errors import ErrorKind, TransientError

Standing = tuple[int, int, int]
"""Size in bytes, time of change in ns, inode: what tells cheaply that a file is still the same."""


@dataclass(frozen=True, slots=True)
class Unpinned:
    """Why an input has no digest now. `is_transient`: it moved while it was read, look again later."""

    kind: ErrorKind
    message: str
    is_transient: bool


@dataclass(frozen=True, slots=True)
class Held:
    """An input's content in a local file, with its sha256, for as long as its context lasts."""

    path: Path
    sha256: str
    standing: Standing

    def require_still(self) -> None:
        """Raises `TransientError` (INPUT_CHANGED, retry) when the file is not any more what was hashed."""
        if standing(os.stat(self.path)) != self.standing:
            raise TransientError(f"{self.path.name}: it changed while it was used", kind=ErrorKind.INPUT_CHANGED)


class Source(Protocol):
    """What both kinds of source can do. `FileNotFoundError` says that an input is not there."""

    threads: ClassVar[int]
    """How many inputs are best read at once."""

    def listing(self) -> Listing:
        """Everything in the source, at any depth. Raises `EnvironmentUnfit` (a person must act) when it cannot be looked at."""

    def require(self) -> None:
        """Raises `EnvironmentUnfit` (SOURCE_MISSING) when the source is not there or is empty, as an unmounted disk is."""

    def has(self, relative: str) -> bool:
        """Whether a file is there that `listing` passes over, such as a hidden one."""

    def open(self, uri: str) -> AbstractContextManager[BinaryIO]:
        """An input's bytes, seekable. Raises `OSError`; what an object store raises is mapped as fetching maps it."""

    def is_still(self, entry: Entry) -> bool:
        """Whether an input is what it was when it was listed. Raises as `open`."""

    def digest_entry(self, entry: Entry) -> str | Unpinned:
        """Sha256 of what was listed, or why there is none."""

    def digest(self, uri: str) -> str:
        """Sha256 of what is there now; of a folder, over its files. Raises as `open`."""

    def held(self, uri: str, scratch: Path) -> AbstractContextManager[Held]:
        """An input as a local file: its own, or the file `scratch`, which goes with the context.

        Raises as `open`, and `TransientError` (INPUT_CHANGED) when it changed while it was hashed. After a crash: `scratch` may
        be left behind; its name is the caller's, and so is its removal.
        """


def standing(status: os.stat_result) -> Standing:
    """The standing of a file."""
    return status.st_size, status.st_mtime_ns, status.st_ino
