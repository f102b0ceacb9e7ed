"""Opening ledgers: migrations, durability settings, and what is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config as AlembicConfig
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

from resources.errors import ConfigurationError, EnvironmentUnfit, ErrorKind, TransientError
from resources.ledger import Ledger, open_ledger_at, opening
from resources.ledger.schema import HEAD_REVISION, metadata
from tests.support.ledgers import ASSET, partition_plan, planned_unit, start_one


def test_migrations_make_the_tables_of_the_schema(new_ledger_url: str) -> None:
    """The migrations, run on an empty database, give exactly the tables, columns and indices that the code uses."""
    ledger = open_ledger_at(new_ledger_url)
    with ledger.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []
    ledger.close()


def test_the_code_knows_the_newest_migration() -> None:
    """The revision that needs no migration is the newest one, and there is one line of them."""
    settings = AlembicConfig()
    settings.set_main_option("script_location", str(Path(opening.__file__).parent / "migrations"))
    settings.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(settings).get_heads() == [HEAD_REVISION]


def test_a_ledger_of_the_first_version_is_taken_along(new_ledger_url: str) -> None:
    """A ledger that an earlier version wrote is migrated when it is opened, and holds what it held."""
    ledger = open_ledger_at(new_ledger_url)
    ledger.write_plan(ASSET, [partition_plan("w|a", [planned_unit(1)])])
    settings = AlembicConfig()
    settings.set_main_option("script_location", str(Path(opening.__file__).parent / "migrations"))
    settings.set_main_option("path_separator", "os")
    with ledger.writing() as connection:
        settings.attributes["connection"] = connection
        command.downgrade(settings, "0001")
    ledger.close()
    again = open_ledger_at(new_ledger_url)
    assert [row.key for row in again.planned(ASSET, ["w|a"])] == [planned_unit(1).key]
    assert list(again.events()) == list(again.captures()) == []
    again.close()


def test_opening_again_keeps_everything(ledger_url: str) -> None:
    """A ledger opened by another process holds what the first one wrote."""
    first = open_ledger_at(ledger_url)
    first.write_plan(ASSET, [partition_plan("w|a", [planned_unit(1)])])
    first.close()
    second = open_ledger_at(ledger_url)
    assert [row.key for row in second.planned(ASSET, ["w|a"])] == [planned_unit(1).key]
    second.close()


def test_a_failed_migration_leaves_nothing(new_ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration that dies half-way is as if it had not begun; the next opening does it whole."""
    whole = command.upgrade

    def dies(*arguments: object, **options: object) -> None:
        whole(*arguments, **options)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(command, "upgrade", dies)
        with pytest.raises(KeyboardInterrupt):
            open_ledger_at(new_ledger_url)
    engine = opening.connect(new_ledger_url)
    assert opening._revision(engine) is None
    engine.dispose()
    open_ledger_at(new_ledger_url).close()


def test_sqlite_is_durable(tmp_path: Path) -> None:
    """Every SQLite connection writes ahead, syncs fully and keeps foreign keys."""
    ledger = open_ledger_at(f"sqlite:///{tmp_path}/deep/down/ledger.sqlite")
    with ledger.reading() as connection:
        found = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar() for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    ledger.close()
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


@pytest.mark.parametrize(
    ("url", "found"), [("mysql://h/d", "mysql"), ("not a url", "not an SQLAlchemy URL"), ("sqlite://", "in memory")]
)
def test_other_databases_are_refused(url: str, found: str) -> None:
    """A URL of another kind stops at once with the key's name and what is allowed."""
    with pytest.raises(ConfigurationError, match=f"ledger.url: .*{found}.*allowed"):
        open_ledger_at(url)


def _not_a_database(folder: Path) -> str:
    (folder / "ledger.sqlite").write_bytes(b"this is no database, whatever its name says " * 100)
    return f"sqlite:///{folder}/ledger.sqlite"


def _folder_in_its_place(folder: Path) -> str:
    (folder / "ledger.sqlite").mkdir()
    return f"sqlite:///{folder}/ledger.sqlite"


def _no_server(_folder: Path) -> str:
    return "postgresql+psycopg2://nobody@127.0.0.1:1/none"


@pytest.mark.parametrize("make", [_not_a_database, _folder_in_its_place, _no_server])
def test_a_ledger_that_cannot_be_used_stops(tmp_path: Path, make: Callable[[Path], str]) -> None:
    """A file that is no database, a folder in its place and a server that is not there are LEDGER_UNREACHABLE, not retried."""
    with pytest.raises(EnvironmentUnfit) as caught:
        open_ledger_at(make(tmp_path))
    assert caught.value.kind is ErrorKind.LEDGER_UNREACHABLE


def test_a_locked_sqlite_is_contention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write lock that another process keeps is LOCK_CONTENTION, which may be retried; readers are not kept waiting."""
    monkeypatch.setattr(opening, "BUSY_TIMEOUT_S", 0.05)
    ledger = open_ledger_at(f"sqlite:///{tmp_path}/ledger.sqlite")
    other = sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert ledger.remembered_store() is None
    with pytest.raises(TransientError) as caught:
        ledger.remember_store("s")
    assert caught.value.kind is ErrorKind.LOCK_CONTENTION
    other.execute("ROLLBACK")
    ledger.remember_store("s")
    other.close()
    ledger.close()


def test_a_run_waits_for_another_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run writes of its units is written again after a pause where another writer was in the way, and is done once."""
    monkeypatch.setattr(opening, "BUSY_TIMEOUT_S", 0.02)
    ledger = open_ledger_at(f"sqlite:///{tmp_path}/ledger.sqlite")
    unit = planned_unit(1)
    ledger.write_plan(ASSET, [partition_plan("w|a", [unit])])
    other = sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            other.execute("ROLLBACK")

    monkeypatch.setattr("resources.ledger.connection.time.sleep", pause)
    assert start_one(ledger, "r1", unit) == 1
    assert len(pauses) == 2
    other.execute("BEGIN IMMEDIATE")
    pauses.extend([0.0] * 10)
    with pytest.raises(TransientError):
        ledger.heartbeat("r1")
    assert len(pauses) == 2 + 10 + 4, "a writer that never gives way is told of in the end"
    other.close()
    ledger.close()


def test_a_full_disk_stops(tmp_path: Path) -> None:
    """A ledger that cannot grow is DISK_FULL, and what did not fit is not half there."""
    ledger = open_ledger_at(f"sqlite:///{tmp_path}/ledger.sqlite")
    units = [planned_unit(n) for n in range(2000)]
    with ledger.engine.connect() as connection:
        connection.execute(text(f"PRAGMA max_page_count = {connection.execute(text('PRAGMA page_count')).scalar_one() + 4}"))
    with pytest.raises(EnvironmentUnfit) as caught:
        ledger.write_plan(ASSET, [partition_plan("w|a", units)])
    assert caught.value.kind is ErrorKind.DISK_FULL
    assert list(ledger.units()) == []
    ledger.close()


@pytest.mark.postgres
def test_a_locked_postgres_is_contention(postgres_url: str) -> None:
    """A row that another session keeps locked is LOCK_CONTENTION once the lock timeout has passed."""
    ledger = open_ledger_at(postgres_url + "?options=-clock_timeout%3D50")
    other = open_ledger_at(postgres_url)
    ledger.remember_store("s")
    with other.writing() as connection:
        connection.execute(text("LOCK TABLE facts IN EXCLUSIVE MODE"))
        with pytest.raises(TransientError) as caught:
            ledger.remember_store("s")
    assert caught.value.kind is ErrorKind.LOCK_CONTENTION
    ledger.remember_store("s")
    ledger.close()
    other.close()


@pytest.mark.postgres
def test_a_lost_postgres_session_stops(postgres_url: str) -> None:
    """A session that ends in the middle of a write is LEDGER_UNREACHABLE and nothing was written; the next call connects anew."""
    ledger = open_ledger_at(postgres_url)
    other = open_ledger_at(postgres_url)

    def die_inside() -> None:
        with ledger.writing() as connection:
            connection.execute(text("INSERT INTO facts VALUES ('store_id', 'half')"))
            pid = connection.execute(text("SELECT pg_backend_pid()")).scalar()
            with other.writing() as killer:
                killer.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
            connection.execute(text("SELECT 1"))

    with pytest.raises(EnvironmentUnfit) as caught:
        die_inside()
    assert caught.value.kind is ErrorKind.LEDGER_UNREACHABLE
    assert ledger.remembered_store() is None
    ledger.close()
    other.close()


@pytest.mark.postgres
def test_two_schemas_do_not_meet(postgres_url: str) -> None:
    """Two ledgers in one database, each in its own schema, know nothing of each other."""
    first, second = (open_ledger_at(postgres_url, schema_name=name) for name in ("one", "two"))
    first.remember_store("s1")
    assert second.remembered_store() is None
    first.close()
    second.close()


def test_broken_promises_are_not_dressed_up(ledger: Ledger) -> None:
    """A broken constraint is a defect and passes through as what it is."""
    with pytest.raises(Exception, match=r"(?i)foreign key"), ledger.writing() as connection:
        connection.execute(text("INSERT INTO membership (partition_id, unit_id) VALUES (1, 1)"))


@pytest.mark.postgres
def test_a_schema_with_dagsters_tables_is_refused(postgres_url: str) -> None:
    """A ledger does not move into the schema in which Dagster keeps its tables; the message names key, found and allowed."""
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA shared"))
        connection.execute(text("CREATE TABLE shared.event_logs (id int)"))
    engine.dispose()
    with pytest.raises(ConfigurationError, match=r"ledger\.schema_name: 'shared' already holds Dagster's tables.*allowed"):
        open_ledger_at(postgres_url, schema_name="shared")
