"""What is remembered about files: the store's identity, pins of source files, and inspections that need not be repeated."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, select

from resources.errors import ErrorKind, IntegrityError
from resources.ledger.connection import Connected, chunks
from resources.ledger.rows import FilePin, dump
from resources.ledger.schema import facts, inspections, pins

_STORE = "store_id"
_PIN_COLUMNS = (pins.c.uri, pins.c.size_bytes, pins.c.mtime_ns, pins.c.inode, pins.c.sha256, pins.c.first_seen)


class Files(Connected):
    """Reads and writes about files."""

    def remembered_store(self) -> str | None:
        """Identity of the store this ledger's outputs are in; None before the first run."""
        with self.reading() as connection:
            return _fact(connection, _STORE)

    def remember_store(self, store_id: str) -> None:
        """Remember the store, once and for ever. Raises `IntegrityError` if another is remembered; not to be retried."""
        with self.writing() as connection:
            self.insert_new(connection, facts, [{"name": _STORE, "value": store_id}])
            found = _fact(connection, _STORE)
        if found != store_id:
            raise IntegrityError(
                f"the ledger belongs to store {found}, not {store_id}; give the outputs back their place, or use another ledger",
                kind=ErrorKind.STORE_MISSING,
            )

    def pins(self, uris: Iterable[str]) -> dict[str, FilePin]:
        """The pins of these files, by URI; files without one are absent."""
        found: dict[str, FilePin] = {}
        with self.reading() as connection:
            for chunk in chunks(uris):
                for row in connection.execute(select(*_PIN_COLUMNS).where(pins.c.uri.in_(chunk))):
                    found[row.uri] = FilePin(*row)
        return found

    def all_pins(self) -> dict[str, FilePin]:
        """Every pin, by URI."""
        with self.reading() as connection:
            return {row.uri: FilePin(*row) for row in connection.execute(select(*_PIN_COLUMNS))}

    def pin(self, found: Iterable[FilePin]) -> None:
        """Pin files as they were read; one that has changed is pinned again."""
        statement = self.insert(pins)
        fresh = {name: statement.excluded[name] for name in ("size_bytes", "mtime_ns", "inode", "sha256", "first_seen")}
        statement = statement.on_conflict_do_update(index_elements=["uri"], set_=fresh)
        for chunk in chunks({item.uri: item for item in found}.values()):
            with self.writing() as connection:
                connection.execute(
                    statement,
                    [
                        {
                            "uri": item.uri,
                            "size_bytes": item.size_bytes,
                            "mtime_ns": item.mtime_ns,
                            "inode": item.inode,
                            "sha256": item.sha256,
                            "first_seen": item.first_seen,
                        }
                        for item in chunk
                    ],
                )

    def inspection(self, digests: Iterable[str]) -> dict[str, dict[str, Any]]:
        """What is remembered under these digests; the caller's digest covers content and inspector version."""
        found: dict[str, dict[str, Any]] = {}
        with self.reading() as connection:
            for chunk in chunks(digests):
                rows = connection.execute(
                    select(inspections.c.digest, inspections.c.record).where(inspections.c.digest.in_(chunk))
                )
                found.update((digest, json.loads(record)) for digest, record in rows)
        return found

    def remember_inspection(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        """Remember plain JSON values by digest; what is remembered already stays."""
        for chunk in chunks(records.items()):
            with self.writing() as connection:
                values = [{"digest": digest, "record": dump(dict(record))} for digest, record in chunk]
                self.insert_new(connection, inspections, values)


def _fact(connection: Connection, name: str) -> str | None:
    found: str | None = connection.execute(select(facts.c.value).where(facts.c.name == name)).scalar()
    return found
