"""A folder of this machine as a source."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

from assets.sources.listing import Entry, Listing, list_source
from assets.sources.names import path_of
from assets.sources.source import Held, Unpinned, standing
from resources.errors import EnvironmentUnfit, ErrorKind, TransientError
from resources.keys import digest_stream
from resources.trees import digest_of_content


@dataclass(frozen=True, slots=True)
class FolderSource:
    """Files below `folder`. See `Source`."""

    folder: Path
    threads: ClassVar[int] = 2

    def listing(self) -> Listing:
        """One look at the tree."""
        return list_source(self.folder, recursive=True, is_input_name=lambda _: False)

    def require(self) -> None:
        """Raises `EnvironmentUnfit` (SOURCE_MISSING) when the folder is not there or empty."""
        if not self.folder.is_dir() or not any(self.folder.iterdir()):
            raise EnvironmentUnfit(
                f"{self.folder}: the folder of what is to be read is empty or not there; mount it", kind=ErrorKind.SOURCE_MISSING
            )

    def has(self, relative: str) -> bool:
        """Whether a file is there, also a hidden one."""
        return os.path.isfile(self.folder / relative)

    @contextmanager
    def open(self, uri: str) -> Iterator[BinaryIO]:
        """The file's bytes. Raises `OSError`."""
        with path_of(uri, self.folder).open("rb") as stream:
            yield stream

    def is_still(self, entry: Entry) -> bool:
        """Whether size, time and inode are as listed. Raises `OSError`."""
        return standing(path_of(entry.uri, self.folder).stat()) == entry.standing

    def digest_entry(self, entry: Entry) -> str | Unpinned:
        """Sha256 of what was listed; none when it changed before or while it was read."""
        try:
            read = self._read(entry.uri)
        except PermissionError as error:
            message = f"permissions: found that this account may not read it ({error.strerror}); allowed: a file that it may read"
            return Unpinned(ErrorKind.UNREADABLE, message, is_transient=False)
        except FileNotFoundError:
            return Unpinned(ErrorKind.INPUT_CHANGED, "found that it is gone; it was there a moment ago", is_transient=True)
        except OSError as error:
            return Unpinned(ErrorKind.STORAGE_IO, f"found that it cannot be read now ({error.strerror})", is_transient=True)
        if read is None or read.standing != entry.standing:
            return Unpinned(ErrorKind.INPUT_CHANGED, "found that it changed while it was read", is_transient=True)
        return read.sha256

    def digest(self, uri: str) -> str:
        """Sha256 of a file or folder. Raises `OSError`."""
        return digest_of_content(path_of(uri, self.folder))

    @contextmanager
    def held(self, uri: str, scratch: Path) -> Iterator[Held]:  # noqa: ARG002 - a file of this machine needs no copy
        """The file itself. Raises `OSError`, `TransientError` (INPUT_CHANGED)."""
        read = self._read(uri)
        if read is None:
            raise TransientError(f"{path_of(uri, self.folder).name}: it changed while it was read", kind=ErrorKind.INPUT_CHANGED)
        yield read

    def _read(self, uri: str) -> Held | None:
        """Closes the window in which a file changes while it is read: None where its status is another afterwards."""
        path = path_of(uri, self.folder)
        with path.open("rb") as stream:
            before = standing(os.fstat(stream.fileno()))
            sha256 = digest_stream(stream)
            return Held(path, sha256, before) if standing(os.fstat(stream.fileno())) == before else None
