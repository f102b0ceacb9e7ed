"""How the parts of the ledger reach the database: read and write transactions, and errors by their codes.

Every write is one transaction that begins by taking the write lock (SQLite) or the rows it will change, in the order of their
ids (PostgreSQL), so that two writers wait for each other and never meet in the middle.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count, islice
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Row, Select, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import IntegrityError as ConstraintError

from resources.backoff import full_jitter_s
from resources.errors import EnvironmentUnfit, ErrorKind, TransientError

Clock = Callable[[], datetime]
T = TypeVar("T")
P = ParamSpec("P")

KEYS_PER_STATEMENT = 1000
ROWS_PER_PAGE = 1000
_TRIES_MAX = 5
_PAUSE_BASE_S = 0.1
_PAUSE_CAP_S = 2.0
_rng = random.Random()
WRITE_OPTION = "tilewright_write"

_SQLITE_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_SQLITE_UNREACHABLE = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_NOTADB,
}
_PG_BUSY = {"40001", "40P01", "55P03"}
_PG_DISK_FULL = "53100"
_PG_UNREACHABLE_CLASSES = {"08", "28", "3D", "53", "57", "58", "XX"}


def utc_now() -> datetime:
    """The wall clock, in UTC."""
    return datetime.now(UTC)


def chunks(items: Iterable[T], size: int = KEYS_PER_STATEMENT) -> Iterator[list[T]]:
    """`items` in lists of at most `size`."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn database errors into the project's own, by code and never by message.

    Raises `TransientError` (LOCK_CONTENTION; the call may be repeated, its transaction was rolled back) or `EnvironmentUnfit`
    (DISK_FULL, LEDGER_UNREACHABLE). Broken constraints and wrong statements pass through.
    """
    try:
        yield
    except DBAPIError as error:
        found = _translate(error)
        if found is None:
            raise
        raise found from error


def _translate(error: DBAPIError) -> TransientError | EnvironmentUnfit | None:
    if isinstance(error, ConstraintError):
        return None
    cause = error.orig
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        primary = code & 0xFF
        if primary in _SQLITE_BUSY:
            return TransientError(f"the ledger is locked by another writer ({cause})", kind=ErrorKind.LOCK_CONTENTION)
        if primary == sqlite3.SQLITE_FULL:
            return EnvironmentUnfit(f"the ledger's disk is full ({cause}); free some room", kind=ErrorKind.DISK_FULL)
        return _unreachable(cause) if primary in _SQLITE_UNREACHABLE else None
    state = getattr(cause, "pgcode", None)
    if state in _PG_BUSY:
        return TransientError(f"the ledger is locked by another writer ({cause})", kind=ErrorKind.LOCK_CONTENTION)
    if state == _PG_DISK_FULL:
        return EnvironmentUnfit(f"the ledger's disk is full ({cause}); free some room", kind=ErrorKind.DISK_FULL)
    if (state is None and error.connection_invalidated) or (state is None and type(cause).__name__ == "OperationalError"):
        return _unreachable(cause)
    return _unreachable(cause) if state is not None and state[:2] in _PG_UNREACHABLE_CLASSES else None


def _unreachable(cause: BaseException | None) -> EnvironmentUnfit:
    return EnvironmentUnfit(
        f"the ledger cannot be used ({str(cause).strip()}); see that it exists, is reachable and may be written",
        kind=ErrorKind.LEDGER_UNREACHABLE,
    )


class Connected:
    """Base of the ledger's parts: an engine, a clock, and the two kinds of transaction."""

    def __init__(self, engine: Engine, *, clock: Clock = utc_now, attempts_max: int = 5) -> None:
        self.engine = engine
        self.clock = clock
        self.attempts_max = attempts_max
        self._write_engine = engine.execution_options(**{WRITE_OPTION: True})
        self._is_postgres = engine.dialect.name == "postgresql"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A read transaction."""
        with translated_errors(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A write transaction: all of it, or nothing. After a crash: nothing of it happened."""
        with translated_errors(), self._write_engine.begin() as connection:
            yield connection

    def write(self, act: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs) -> T:
        """Do `act` in a write transaction, and again after a pause where another writer was in the way: it must be repeatable.

        Raises `TransientError` (LOCK_CONTENTION) only when that goes on and on. After a crash: all of it happened, or nothing.
        """
        for failures in count(1):
            try:
                with self.writing() as connection:
                    return act(connection, *args, **options)
            except TransientError:
                if failures == _TRIES_MAX:
                    raise
                time.sleep(full_jitter_s(failures, base_s=_PAUSE_BASE_S, cap_s=_PAUSE_CAP_S, rng=_rng))
        raise AssertionError("count() ended")

    def pages(self, statement: Select[Any], order: ColumnElement[Any]) -> Iterator[Row[Any]]:
        """Rows in the order of a column that is never twice the same, by pages: a slow reader must not hold a transaction."""
        ordered = statement.add_columns(order.label("page_end")).order_by(order).limit(ROWS_PER_PAGE)
        page = ordered
        while True:
            with self.reading() as connection:
                rows = connection.execute(page).all()
            yield from rows
            if len(rows) < ROWS_PER_PAGE:
                return
            page = ordered.where(order > rows[-1].page_end)

    def insert(self, table: Table) -> Any:
        """An INSERT that knows ON CONFLICT."""
        return postgresql.insert(table) if self._is_postgres else sqlite.insert(table)

    def insert_new(self, connection: Connection, table: Table, values: Sequence[dict[str, Any]]) -> None:
        """Insert the rows that are not there yet; the others stay as they are."""
        if values:
            connection.execute(self.insert(table).on_conflict_do_nothing(), list(values))

    def close(self) -> None:
        """Give back all connections."""
        self.engine.dispose()
