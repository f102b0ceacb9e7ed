"""Opening a ledger: engine, pragmas, migrations.

Closes one window: two processes that open a new ledger at once. Migration runs under a lock that dies with its holder (a locked
file beside SQLite, an advisory lock on PostgreSQL), and in one transaction, so a killed migration leaves the version before.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError

from resources.config import DEFAULT_SCHEMA, Config
from resources.errors import ConfigurationError
from resources.ledger.connection import WRITE_OPTION, Clock, translated_errors, utc_now
from resources.ledger.facade import Ledger
from resources.ledger.schema import HEAD_REVISION

BUSY_TIMEOUT_S = 60
_MIGRATIONS = Path(__file__).parent / "migrations"


def open_ledger(config: Config, *, clock: Clock = utc_now) -> Ledger:
    """Open the configured ledger, creating or migrating it first.

    Raises `ConfigurationError` for a URL that is neither SQLite nor PostgreSQL, `EnvironmentUnfit` (LEDGER_UNREACHABLE) when the
    database cannot be used; neither is to be retried by itself. After a crash: open it again.
    """
    return open_ledger_at(
        config.ledger_url,
        schema_name=config.ledger.schema_name,
        clock=clock,
        attempts_max=config.retry.attempts_max,
    )


def open_ledger_at(url: str | URL, *, schema_name: str = DEFAULT_SCHEMA, clock: Clock = utc_now, attempts_max: int = 5) -> Ledger:
    """Open the ledger at an SQLAlchemy URL. Raises as `open_ledger`."""
    engine = connect(url, schema_name=schema_name)
    try:
        with translated_errors():
            if _revision(engine) != HEAD_REVISION:
                _refuse_shared_schema(engine, schema_name)
                _migrate(engine, schema_name)
    except BaseException:
        engine.dispose()
        raise
    return Ledger(engine, clock=clock, attempts_max=attempts_max)


def connect(url: str | URL, *, schema_name: str = DEFAULT_SCHEMA) -> Engine:
    """An engine with the ledger's durability settings; touches nothing yet, save the folder of a SQLite file."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ConfigurationError(
            "ledger.url: not an SQLAlchemy URL; allowed: sqlite:///PATH or postgresql+psycopg2://..."
        ) from error
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _connect_sqlite(parsed)
    if backend == "postgresql":
        return _connect_postgres(parsed, schema_name)
    raise ConfigurationError(f"ledger.url: found a {backend} URL; allowed: sqlite:///PATH or postgresql+psycopg2://...")


def _connect_sqlite(url: URL) -> Engine:
    if not url.database or url.database == ":memory:":
        raise ConfigurationError("ledger.url: a ledger in memory survives no crash; allowed: sqlite:///PATH")
    Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver must not begin transactions by itself
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA cache_size = -65536")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        is_write = connection.get_execution_options().get(WRITE_OPTION, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")

    return engine


def _connect_postgres(url: URL, schema_name: str) -> Engine:
    given = url.query.get("options", "")
    options = f"{given if isinstance(given, str) else ' '.join(given)} -csearch_path={schema_name} -cTimeZone=UTC".strip()
    parsed = url.set(drivername="postgresql+psycopg2").difference_update_query(["options"])
    return create_engine(
        parsed,
        connect_args={"options": options, "connect_timeout": 10},
        executemany_mode="values_plus_batch",
        pool_pre_ping=True,
    )


def _refuse_shared_schema(engine: Engine, schema_name: str) -> None:
    """Dagster's tables have names like ours (`runs`, `alembic_version`): in one schema each would take those for its own."""
    if inspect(engine).has_table("event_logs"):
        raise ConfigurationError(
            f"ledger.schema_name: {schema_name!r} already holds Dagster's tables (PostgreSQL gives a user the schema of its own "
            f"name); allowed: a schema that nothing else uses, for example {DEFAULT_SCHEMA!r}"
        )


def _revision(engine: Engine) -> str | None:
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        return found


def _migrate(engine: Engine, schema_name: str) -> None:
    from alembic import command
    from alembic.config import Config as AlembicConfig

    settings = AlembicConfig()
    settings.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    with _alone(engine, schema_name):
        if engine.dialect.name == "sqlite":
            with engine.connect() as connection:
                connection.exec_driver_sql("ROLLBACK")  # the journal's mode cannot change inside a transaction
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
                connection.exec_driver_sql("BEGIN")
        with engine.execution_options(**{WRITE_OPTION: True}).begin() as connection:
            settings.attributes["connection"] = connection
            command.upgrade(settings, "head")


@contextmanager
def _alone(engine: Engine, schema_name: str) -> Iterator[None]:
    """Hold the right to migrate; freed by the system when this process dies."""
    if engine.dialect.name == "sqlite":
        descriptor = os.open(f"{engine.url.database}.opening", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
        return
    number = zlib.crc32(f"tilewright-opening:{schema_name}".encode())
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(:number)"), {"number": number})
        try:
            connection.execute(text(f'CREATE SCHEMA IF NOT EXISTS "{schema_name}"'))
            connection.commit()
            yield
        finally:
            connection.execute(text("SELECT pg_advisory_unlock(:number)"), {"number": number})
            connection.commit()
