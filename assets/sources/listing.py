"""What lies in the source folder: one look at its tree, without opening or following anything.

Links to files are followed, since people build sources of them; links to folders are not, since they make loops. Whatever cannot
be an input (a folder or a pipe under the name of one, a link to nothing) is listed with what was found, never passed over.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from assets.sources.names import Stranger, uri_of
from resources.errors import EnvironmentUnfit, ErrorKind


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in the source folder. `relative` is the path as the system has it, `found` what it is if it is no file."""

    relative: str
    size_bytes: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    inode: int = 0
    found: str | None = None

    @property
    def standing(self) -> tuple[int, int, int]:
        """Size, time of change and inode: what tells cheaply that it is still the same."""
        return self.size_bytes, self.mtime_ns, self.inode

    @property
    def uri(self) -> str:
        """The path below the source folder, storable."""
        return uri_of(self.relative)

    @property
    def folder(self) -> str:
        """Folder of the entry below the source folder; empty at its top."""
        return self.relative.rpartition("/")[0]

    @property
    def name(self) -> str:
        """Name within the folder."""
        return self.relative.rpartition("/")[2]


@dataclass(slots=True)
class Listing:
    """All entries by relative path, names by folder, what was left alone, and folders that could not be listed, with why."""

    entries: dict[str, Entry] = field(default_factory=dict)
    names: dict[str, set[str]] = field(default_factory=dict)
    strangers: list[Stranger] = field(default_factory=list)
    closed: dict[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Nothing at all lies in the source folder."""
        return not self.entries and not self.strangers


def list_source(source_dir: Path, *, recursive: bool, is_input_name: Callable[[str], bool]) -> Listing:
    """Everything in the source folder. `is_input_name` says of a relative path whether a pattern matches it.

    Raises `EnvironmentUnfit` (SOURCE_MISSING; a person must act) when the folder is not there or cannot be read.
    """
    listing = Listing()
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(source_dir / folder if folder else source_dir) as scan:
                found = sorted(scan, key=lambda item: item.name)
        except OSError as error:
            if not folder:
                raise _missing(source_dir, error) from error
            listing.closed[folder] = str(error.strerror)
            listing.strangers.append(Stranger(uri_of(folder), f"folder: cannot be listed ({error.strerror}); allow reading it"))
            continue
        names = listing.names.setdefault(folder, set())
        for item in found:
            relative = f"{folder}/{item.name}" if folder else item.name
            if item.name.startswith("."):
                listing.strangers.append(Stranger(uri_of(relative), "hidden (its name begins with a dot)"))
                continue
            if item.is_dir(follow_symlinks=False) and not is_input_name(relative):
                if recursive:
                    folders.append(relative)
                continue
            names.add(item.name)
            listing.entries[relative] = _entry(item, relative)
    return listing


def _missing(source_dir: Path, error: OSError) -> EnvironmentUnfit:
    return EnvironmentUnfit(
        f"source.uri: found {str(source_dir)!r}, which cannot be listed ({error.strerror}); "
        "allowed: a folder that exists and may be read. Mount it, or name another",
        kind=ErrorKind.SOURCE_MISSING,
    )


def _entry(item: os.DirEntry[str], relative: str) -> Entry:
    try:
        status = item.stat()
    except OSError as error:
        found = "a link to nothing" if item.is_symlink() else f"something that cannot be looked at ({error.strerror})"
        return Entry(relative, found=found)
    if not stat.S_ISREG(status.st_mode):
        return Entry(relative, found=_what(status.st_mode, is_link=item.is_symlink()))
    return Entry(relative, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def _what(mode: int, *, is_link: bool) -> str:
    kinds: Iterator[tuple[bool, str]] = iter(
        (
            (stat.S_ISDIR(mode) and is_link, "a link to a folder, which is not followed"),
            (stat.S_ISDIR(mode), "a folder"),
            (stat.S_ISFIFO(mode), "a named pipe"),
            (stat.S_ISSOCK(mode), "a socket"),
        )
    )
    return next((words for is_it, words in kinds if is_it), "a device")
