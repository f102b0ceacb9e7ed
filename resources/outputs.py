"""Outputs, whatever they are: files and directories in the store, rows in the ledger database.

The one place that knows which is where. All else says a URI and asks `at(uri)` what is asked of any output: a staging name,
promote, make durable, size, digest, set aside. `Listings` answers in bulk which outputs exist with which size.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePath, PurePosixPath
from typing import Protocol

from resources.ledger import Ledger
from resources.row_tables import is_row_uri
from resources.store import LocalStore
from resources.trees import remove_content


class Place(Protocol):
    """Where outputs of one kind are."""

    def staging_path(self, uri: str, *, run_id: str) -> Path:
        """A path that nobody else has and no reader takes for an output."""

    def promote(self, staged: Path, uri: str) -> bool:
        """Give what was staged its final name; False where the name is taken."""

    def sync_folders(self, uris: Iterable[str]) -> None:
        """Make final names durable."""

    def size(self, uri: str) -> int | None:
        """Size in bytes; None where it is absent."""

    def digest(self, uri: str) -> str:
        """Digest of the content as it is now. Raises `FileNotFoundError` where it is absent."""

    def set_aside(self, uri: str) -> PurePath:
        """Move away what does not verify, so that nothing is lost and the final name is free; where it is kept."""


class RowPlace:
    """Rows of the ledger database. They are written with the record of their unit: there is nothing to promote before."""

    def __init__(self, store: LocalStore, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger

    def staging_path(self, uri: str, *, run_id: str) -> Path:  # noqa: ARG002 - the protocol's signature
        """Scratch for the work function: hidden, and swept like any staging name."""
        return self._store.scratch_path(run_id=run_id)

    def promote(self, staged: Path, uri: str) -> bool:  # noqa: ARG002 - the protocol's signature
        """Remove the scratch: the row has its place when it is recorded."""
        remove_content(staged)
        return True

    def sync_folders(self, uris: Iterable[str]) -> None:
        """Nothing: the commit of the record makes a row durable."""

    def size(self, uri: str) -> int | None:
        """Length of the row's canonical text; None where it is absent."""
        return self._ledger.output_sizes([uri]).get(uri)

    def digest(self, uri: str) -> str:
        """Sha256 of the row's canonical text."""
        found = self._ledger.output_digests([uri])
        if uri not in found:
            raise FileNotFoundError(uri)
        return found[uri]

    def set_aside(self, uri: str) -> PurePath:
        """Move the row to the history."""
        self._ledger.set_rows_aside([uri])
        return PurePosixPath("row_history")


class Outputs:
    """The outputs of a project."""

    def __init__(self, store: LocalStore, ledger: Ledger) -> None:
        self.store = store
        self.ledger = ledger
        self._rows = RowPlace(store, ledger)

    def at(self, uri: str) -> Place:
        """The place of an output, by the scheme of its URI."""
        return self._rows if is_row_uri(uri) else self.store

    def sync(self, uris: Iterable[str]) -> None:
        """Make the final names of promoted outputs durable."""
        self.store.sync_folders(uri for uri in uris if not is_row_uri(uri))

    def listings(self) -> Listings:
        """A look at which outputs exist: each folder is listed when first asked for."""
        return Listings(self.store, self.ledger)


class Listings:
    """Which outputs exist with which size: one listing per folder of the store, kept; rows by asking the ledger, each time."""

    def __init__(self, store: LocalStore, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger
        self._known: dict[str, dict[str, int]] = {}

    def sizes(self, uris: Iterable[str]) -> dict[str, int]:
        """Size in bytes of those outputs that exist, by URI."""
        rows = []
        found: dict[str, int] = {}
        for uri in uris:
            if is_row_uri(uri):
                rows.append(uri)
            elif (size := self._folder(uri).get(uri)) is not None:
                found[uri] = size
        return found | self._ledger.output_sizes(rows) if rows else found

    def beside(self, uris: Iterable[str]) -> set[str]:
        """All outputs of the store in the folders of these; rows have no neighbours."""
        return {found for uri in uris if not is_row_uri(uri) for found in self._folder(uri)}

    def _folder(self, uri: str) -> dict[str, int]:
        prefix = uri.rpartition("/")[0]
        if prefix not in self._known:
            self._known[prefix] = self._store.listing(prefix)
        return self._known[prefix]
