"""An output's content: a file, or a directory of files taken as one. Its size, its digest, its durability, its removal."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from resources.crashpoints import reach
from resources.keys import digest_file

DIRECTORY_SUFFIX = ".pages"
"""The last part of an output URI that names a directory ends so."""


def is_directory_name(name: str) -> bool:
    """True of the URI, path or name of a directory output."""
    return name.endswith(DIRECTORY_SUFFIX)


def size_of(path: Path) -> int:
    """Size in bytes of a file, or of all files below a directory. Raises `FileNotFoundError`."""
    found = path.lstat()
    if not path.is_dir():
        return found.st_size
    return sum(part.lstat().st_size for part in files_below(path))


def digest_of_content(path: Path) -> str:
    """Sha256 (64 hex) of a file, or over the names, digests and sizes of all files below a directory, in order of name."""
    if not path.is_dir():
        return digest_file(path)
    digest = hashlib.sha256()
    for part in sorted(files_below(path)):
        name = os.fsencode(part.relative_to(path))
        digest.update(b"%s\0%s\0%d\n" % (name, digest_file(part).encode("ascii"), part.lstat().st_size))
    return digest.hexdigest()


def sync_content(path: Path) -> int:
    """Make the bytes of a file durable, or of all files below a directory and then its folders; returns the size.

    A failed fsync is never retried: drop what was staged, do the unit again.
    """
    if not path.is_dir():
        return _sync_file(path)
    size = 0
    for folder, _, names in os.walk(path, topdown=False):
        for name in names:
            size += _sync_file(Path(folder, name))
            reach("stage.part", str(path))
        sync_folder(Path(folder))
    return size


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_content(path: Path) -> None:
    """Remove a file or a directory with all that is in it. A missing one is fine, and so is what cannot be removed now."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):
        path.unlink(missing_ok=True)


def files_below(folder: Path) -> Iterator[Path]:
    """All that is no folder below a folder."""
    for base, _, names in os.walk(folder):
        yield from (Path(base, name) for name in names)


def _sync_file(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
