"""Rows that are outputs: how they are named, what they say, and their canonical form. Plain values, cheap to import in a worker.

The output URI of such a unit is `row:<table>/<natural key>`, so that whatever holds of output URIs holds of rows: one COMPLETE
unit for each, and a second one with the same natural key is quarantined. They are kept by `resources.ledger.row_outputs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

from resources.errors import ErrorKind, UnitRejected
from resources.keys import canonical
from resources.units import Row

ROW_SCHEME = "row:"


class Kind(StrEnum):
    """What a column of a row may hold."""

    TEXT = "text"
    OPTIONAL_TEXT = "text or nothing"
    INTEGER = "a whole number"
    JSON = "plain JSON values"


@dataclass(frozen=True, slots=True)
class RowTable:
    """A table that units write to.

    `said` are the columns that a row says and its digest covers; `key` those of them that name it. `time` is when it was said:
    the row may say so, else the ledger's clock does; no part of the digest. Where `replaces`, a differing row takes the place of
    the one before, which goes to the history; else the first one stays for ever.
    """

    key: tuple[str, ...]
    said: Mapping[str, Kind]
    time: str
    replaces: bool


ROW_TABLES: Mapping[str, RowTable] = {
    "preservation_events": RowTable(
        key=("event_id",),
        said={
            "event_id": Kind.TEXT,
            "event_type": Kind.TEXT,
            "content_digest": Kind.TEXT,
            "period": Kind.OPTIONAL_TEXT,
            "operation": Kind.TEXT,
            "outcome": Kind.TEXT,
            "detail": Kind.JSON,
            "linked": Kind.JSON,
            "agent": Kind.TEXT,
        },
        time="at",
        replaces=False,
    ),
    "inspection_records": RowTable(
        key=("site", "period"),
        said={
            "site": Kind.TEXT,
            "period": Kind.TEXT,
            "source_uri": Kind.TEXT,
            "content_digest": Kind.TEXT,
            "page_count": Kind.INTEGER,
            "extraction_version": Kind.TEXT,
            "revision": Kind.TEXT,
            "fields": Kind.JSON,
            "findings": Kind.JSON,
        },
        time="recorded_at",
        replaces=True,
    ),
    "observations": RowTable(
        key=("uri",),
        said={"uri": Kind.TEXT, "token": Kind.TEXT, "digest": Kind.TEXT},
        time="seen_at",
        replaces=True,
    ),
}


def is_row_uri(uri: str) -> bool:
    """True of the output URI of a row."""
    return uri.startswith(ROW_SCHEME)


def row_uri(table: str, *key: str) -> str:
    """Output URI of the row of `table` that this natural key names."""
    return f"{ROW_SCHEME}{table}/{'/'.join(quote(part, safe='') for part in key)}"


def uri_of_row(row: Row) -> str:
    """Output URI of a row."""
    return row_uri(row.table, *(str(row.values[name]) for name in ROW_TABLES[row.table].key))


def said_by(table: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """What a row says, without its time: the part that its digest covers."""
    return {name: values.get(name) for name in ROW_TABLES[table].said}


def canonical_row(table: str, values: Mapping[str, Any]) -> str:
    """The canonical text of a row. Its sha256 is the output's digest, its length the output's size."""
    return canonical({"table": table, "row": said_by(table, values)})


def own_row(uri: str, rows: Iterable[Row]) -> Row:
    """The one row that is the output of a unit with this URI. Raises `UnitRejected` (INVALID_OUTPUT) unless there is just one."""
    own = [row for row in rows if uri_of_row(row) == uri]
    if len(own) != 1:
        raise UnitRejected(
            f"the work function returned {len(own)} rows for {uri}, and must return one", kind=ErrorKind.INVALID_OUTPUT
        )
    return own[0]


def nothing_to_validate(path: Path) -> None:
    """`validate` of a unit whose output is a row: its table checks it."""


def check_rows(rows: Iterable[Row]) -> None:
    """Raise `UnitRejected` (CONTRACT_VIOLATED) for a row that its table cannot hold: found here, it is one unit's failure."""
    for row in rows:
        try:
            _check(row)
        except (TypeError, ValueError) as error:
            raise UnitRejected(f"a row for {row.table!r} cannot be kept: {error}", kind=ErrorKind.CONTRACT_VIOLATED) from error


def _check(row: Row) -> None:
    table = ROW_TABLES.get(row.table)
    if table is None:
        raise ValueError(f"there is no such table; allowed: {', '.join(ROW_TABLES)}")
    if unknown := row.values.keys() - table.said.keys() - {table.time}:
        raise ValueError(f"it says {', '.join(sorted(unknown))}; allowed: {', '.join([*table.said, table.time])}")
    for name, kind in table.said.items():
        _check_value(name, kind, row.values.get(name))
    said_at = row.values.get(table.time)
    if said_at is not None and (not isinstance(said_at, datetime) or said_at.tzinfo is None):
        raise ValueError(f"{table.time} is {said_at!r}; allowed: a time with a zone")


def _check_value(name: str, kind: Kind, value: object) -> None:
    match kind:
        case Kind.JSON:
            canonical(value)
            fits = value is not None
        case Kind.INTEGER:
            fits = isinstance(value, int) and not isinstance(value, bool)
        case _:
            fits = _is_text(kind, value)
    if not fits:
        raise ValueError(f"{name} is {value!r}; allowed: {kind.value}")


def _is_text(kind: Kind, value: object) -> bool:
    if value is None:
        return kind is Kind.OPTIONAL_TEXT
    if not isinstance(value, str):
        return False
    # PostgreSQL keeps no zero byte, and no database half a surrogate pair
    return "\0" not in value and value.encode("utf-8", "replace").decode("utf-8") == value
