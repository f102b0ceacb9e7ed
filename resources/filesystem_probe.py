"""Proof, by trying it, that a filesystem does what a crash-safe store needs.

Some network and overlay filesystems accept a link or a rename and do something else. The probe writes under staging names, which
no reader takes for outputs, and removes them again.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from resources.errors import EnvironmentUnfit, ErrorKind
from resources.store import STAGING_PREFIX


def probe_filesystem(folder: Path) -> None:
    """Try create-if-absent, replace, fsync of file and folder, and reading back, in `folder`.

    Raises `EnvironmentUnfit` naming what does not hold. After a crash: a few bytes under a staging name, which the sweep removes.
    """
    try:
        with _two_files(folder) as (first, second):
            taken = first.with_name(first.name + "-name")
            try:
                os.link(first, taken)
                _refuses(folder, lambda: os.link(second, taken), "a link onto a name that is taken")
                _expect(folder, taken.read_bytes() == b"first", "a link shows the bytes of its file")
                os.replace(second, taken)
                _expect(folder, taken.read_bytes() == b"second", "a rename replaces the file under a name")
            finally:
                taken.unlink(missing_ok=True)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise EnvironmentUnfit(
            f"{folder}: the filesystem cannot do what a store needs ({error.strerror or error}); use a local disk, or mend it",
            kind=ErrorKind.STORE_UNWRITABLE,
        ) from error


@contextmanager
def _two_files(folder: Path) -> Iterator[tuple[Path, Path]]:
    tag = secrets.token_hex(6)
    paths = folder / f"{STAGING_PREFIX}probe-{tag}-1", folder / f"{STAGING_PREFIX}probe-{tag}-2"
    try:
        for path, content in zip(paths, (b"first", b"second"), strict=True):
            with path.open("xb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        yield paths
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


def _refuses(folder: Path, act: Callable[[], None], what: str) -> None:
    try:
        act()
    except FileExistsError:
        return
    _expect(folder, False, f"{what} is refused")


def _expect(folder: Path, holds: bool, what: str) -> None:
    if not holds:
        raise EnvironmentUnfit(
            f"{folder}: this filesystem breaks a promise that the store needs: {what}; use a local disk",
            kind=ErrorKind.STORE_UNWRITABLE,
        )
