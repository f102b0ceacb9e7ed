"""What a staged output has to be, by its form: file, directory or row. The worker's half of what `resources.outputs` knows."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Protocol

from resources.errors import ErrorKind, UnitRejected
from resources.row_tables import canonical_row, is_row_uri, own_row
from resources.trees import digest_of_content, files_below, is_directory_name, sync_content
from resources.units import Made


class Form(Protocol):
    """One form of output."""

    def seal(self, uri: str, path: Path, made: Made) -> int:
        """Make durable what was staged; returns its size. Raises `UnitRejected` (INVALID_OUTPUT) where it is not there."""

    def digest(self, uri: str, path: Path, made: Made) -> str:
        """Sha256 (64 hex) of what was staged."""


class _File:
    def seal(self, uri: str, path: Path, made: Made) -> int:  # noqa: ARG002 - the protocol's signature
        if not path.is_file():
            raise _invalid("the work function returned without writing its output")
        return sync_content(path)

    def digest(self, uri: str, path: Path, made: Made) -> str:  # noqa: ARG002 - the protocol's signature
        return digest_of_content(path)


class _Directory(_File):
    def seal(self, uri: str, path: Path, made: Made) -> int:  # noqa: ARG002 - the protocol's signature
        if not path.is_dir():
            raise _invalid("the work function returned without making its output, a directory")
        for part in files_below(path):
            if part.is_symlink() or not part.is_file():
                raise _invalid(f"the work function made {part.relative_to(path)}, which is no plain file")
        return sync_content(path)


class _Row:
    def seal(self, uri: str, path: Path, made: Made) -> int:  # noqa: ARG002 - the protocol's signature
        return len(self._text(uri, made))

    def digest(self, uri: str, path: Path, made: Made) -> str:  # noqa: ARG002 - the protocol's signature
        return hashlib.sha256(self._text(uri, made).encode("ascii")).hexdigest()

    def _text(self, uri: str, made: Made) -> str:
        row = own_row(uri, made.rows)
        return canonical_row(row.table, row.values)


_FILE, _DIRECTORY, _ROW = _File(), _Directory(), _Row()


def form_of(uri: str) -> Form:
    """The form of the output that a URI names."""
    if is_row_uri(uri):
        return _ROW
    return _DIRECTORY if is_directory_name(uri) else _FILE


def _invalid(message: str) -> UnitRejected:
    return UnitRejected(message, kind=ErrorKind.INVALID_OUTPUT)
