"""Rows that are outputs of units: written in the transaction that records their completion, so that neither is there without
the other, and read back like any other output: is it there, how large is it, is it what was recorded.

What a row says and what names it: `resources.row_tables`. The first event stays for ever; a record that differs from the one
before takes its place, and that one goes to the history.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, delete, or_, select

from resources.keys import canonical
from resources.ledger.connection import Connected, chunks
from resources.ledger.facts import EventRow, RecordRow
from resources.ledger.leavers import GONE
from resources.ledger.schema import units
from resources.ledger.schema_rows import OUTPUT_TABLES, inspection_records, observations, preservation_events, row_history
from resources.row_tables import ROW_SCHEME, ROW_TABLES, Kind, canonical_row, uri_of_row
from resources.units import Row

_REPLACED, _SET_ASIDE = "replaced", "set aside"


@dataclass(frozen=True, slots=True)
class OfferedRow:
    """A row with the unit that makes it."""

    unit_key: str
    window: str
    row: Row


class RowOutputs(Connected):
    """Reads and writes of rows that units make."""

    def output_sizes(self, uris: Iterable[str]) -> dict[str, int]:
        """Size of each of these row outputs that exists, by URI: of its canonical text when it was written."""
        found: dict[str, int] = {}
        with self.reading() as connection:
            for table, some in _by_table(uris):
                rows = connection.execute(select(table.c.output_uri, table.c.size_bytes).where(table.c.output_uri.in_(some)))
                found.update(rows.tuples().all())
        return found

    def output_digests(self, uris: Iterable[str]) -> dict[str, str]:
        """Digest of what each of these row outputs says now, by URI; absent ones are left out."""
        with self.reading() as connection:
            return {uri: digest for uri, (digest, _) in standing_rows(connection, uris).items()}

    def set_rows_aside(self, uris: Iterable[str]) -> int:
        """Move rows that are not what was recorded to the history, so that their units can be done again; how many."""
        now = self.clock()
        moved = 0
        with self.writing() as connection:
            for table, some in _by_table(uris):
                moved += _move_to_history(connection, table, table.c.output_uri.in_(some), why=_SET_ASIDE, now=now)
        return moved

    def events(
        self, window: str | None = None, content_digests: Iterable[str] | None = None, event_type: str | None = None
    ) -> Iterator[EventRow]:
        """Preservation events in the order they were written, by filter; a stream."""
        table = preservation_events
        where = [] if window is None else [table.c.window == window]
        if event_type is not None:
            where.append(table.c.event_type == event_type)
        for some in [None] if content_digests is None else chunks(dict.fromkeys(content_digests)):
            chosen = where if some is None else [*where, table.c.content_digest.in_(some)]
            for row in self.pages(select(table).where(*chosen), table.c.id):
                said = {name: getattr(row, name) for name in EventRow.__slots__}
                yield EventRow(**said | {"detail": json.loads(row.detail), "linked": json.loads(row.linked)})

    def records(self, window: str | None = None, content_digests: Iterable[str] | None = None) -> Iterator[RecordRow]:
        """Inspection records of units that are still planned, by filter, in order of site and period; a stream."""
        table = inspection_records
        statement = select(table).join(units, units.c.key == table.c.unit_key).where(units.c.state.not_in(GONE))
        if window is not None:
            statement = statement.where(table.c.window == window)
        for some in [None] if content_digests is None else chunks(dict.fromkeys(content_digests)):
            chosen = statement if some is None else statement.where(table.c.content_digest.in_(some))
            for row in self.pages(chosen, table.c.output_uri):
                said = {name: getattr(row, name) for name in RecordRow.__slots__ if name in table.c}
                yield RecordRow(**said | {"fields": json.loads(row.fields), "findings": json.loads(row.findings)})

    def record_history(self, unit_key: str) -> list[RecordRow]:
        """The records of a unit that another took the place of, or that were set aside, the oldest first."""
        table = row_history
        statement = select(table).where(table.c.unit_key == unit_key, table.c.table_name == inspection_records.name)
        with self.reading() as connection:
            rows = connection.execute(statement.order_by(table.c.id)).all()
        return [
            RecordRow(
                unit_key=row.unit_key,
                window=row.window,
                recorded_at=row.said_at,
                left_at=row.left_at,
                why=row.why,
                **json.loads(row.said)["row"],
            )
            for row in rows
        ]

    def write_rows(self, connection: Connection, offered: Sequence[OfferedRow], *, now: datetime) -> None:
        """Write rows in the transaction of their completion. One that is there already, and says the same, is left alone."""
        for name in dict.fromkeys(item.row.table for item in offered):
            rows = {uri_of_row(item.row): item for item in offered if item.row.table == name}
            if name == observations.name:
                self._observe(connection, [rows[uri].row for uri in sorted(rows)], now=now)
                continue
            # in the order of their names, so that two writers wait for each other and never meet in the middle
            values = [_columns(uri, rows[uri], now) for uri in sorted(rows)]
            if ROW_TABLES[name].replaces:
                _make_way(connection, OUTPUT_TABLES[name], values, now=now)
            self.insert_new(connection, OUTPUT_TABLES[name], values)

    def _observe(self, connection: Connection, rows: Sequence[Row], *, now: datetime) -> None:
        statement = self.insert(observations)
        fresh = {name: statement.excluded[name] for name in ("token", "digest", "seen_at")}
        connection.execute(
            statement.on_conflict_do_update(index_elements=["uri"], set_=fresh),
            [{"seen_at": now} | dict(row.values) for row in rows],
        )


def standing_rows(connection: Connection, uris: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Digest and size of what these row outputs say now, by URI."""
    found: dict[str, tuple[str, int]] = {}
    for table, some in _by_table(uris):
        for row in connection.execute(select(table).where(table.c.output_uri.in_(some))):
            text = _text_of(table.name, row._mapping)
            found[row.output_uri] = hashlib.sha256(text.encode("ascii")).hexdigest(), len(text)
    return found


def _by_table(uris: Iterable[str]) -> Iterator[tuple[Table, list[str]]]:
    by_name: dict[str, list[str]] = {}
    for uri in dict.fromkeys(uris):
        by_name.setdefault(uri.removeprefix(ROW_SCHEME).partition("/")[0], []).append(uri)
    for name, wanted in by_name.items():
        for some in chunks(wanted):
            yield OUTPUT_TABLES[name], some


def _columns(uri: str, item: OfferedRow, now: datetime) -> dict[str, Any]:
    table, values = ROW_TABLES[item.row.table], item.row.values
    said = {name: canonical(values[name]) if kind is Kind.JSON else values.get(name) for name, kind in table.said.items()}
    size = len(canonical_row(item.row.table, values))
    made_by = {"unit_key": item.unit_key, "window": item.window, "output_uri": uri, "size_bytes": size}
    return said | made_by | {table.time: values.get(table.time) or now}


def _text_of(name: str, row: Mapping[Any, Any]) -> str:
    said = ROW_TABLES[name].said
    return canonical_row(name, {column: json.loads(row[column]) if said[column] is Kind.JSON else row[column] for column in said})


def _make_way(connection: Connection, table: Table, values: Sequence[dict[str, Any]], *, now: datetime) -> None:
    """Move to the history what has the natural key or the unit of a row that is to be written, and differs from it.

    Under a natural key another unit's row can only be that of a unit which is not COMPLETE any more.
    """
    wanted = {row["output_uri"]: (row["unit_key"], _text_of(table.name, row)) for row in values}
    keys = [row["unit_key"] for row in values]
    found = connection.execute(
        select(table).where(or_(table.c.output_uri.in_(list(wanted)), table.c.unit_key.in_(keys))).with_for_update()
    ).all()
    differing = [
        row.output_uri for row in found if wanted.get(row.output_uri) != (row.unit_key, _text_of(table.name, row._mapping))
    ]
    if differing:
        _move_to_history(connection, table, table.c.output_uri.in_(differing), why=_REPLACED, now=now)


def _move_to_history(connection: Connection, table: Table, chosen: Any, *, why: str, now: datetime) -> int:
    time = ROW_TABLES[table.name].time
    rows = connection.execute(select(table).where(chosen).with_for_update()).all()
    if not rows:
        return 0
    connection.execute(
        row_history.insert(),
        [
            {
                "table_name": table.name,
                "output_uri": row.output_uri,
                "unit_key": row.unit_key,
                "window": row.window,
                "said": _text_of(table.name, row._mapping),
                "said_at": row._mapping[time],
                "left_at": now,
                "why": why,
            }
            for row in rows
        ],
    )
    return connection.execute(delete(table).where(chosen)).rowcount
