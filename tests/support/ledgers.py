"""Ledgers for tests on both databases, a clock that tests move, and small builders of plans."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from resources.errors import ErrorKind, Verdict
from resources.keys import digest_of
from resources.ledger import Ledger, RunRow, open_ledger_at
from resources.ledger.opening import connect
from resources.ledger.schema import metadata
from resources.units import AttemptFailure, AttemptOutcome, Completion, PartitionPlan, PlannedUnit
from tests.support.postgres import PostgresServer

ASSET = "tiles"
WINDOW = "2026-01-01"
START = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
ATTEMPTS_MAX = 3
BOOT = "boot-1"


class MovableClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **parts: float) -> datetime:
        """Move on by a `timedelta` of these parts."""
        self.now += timedelta(**parts)
        return self.now


def planned_unit(
    number: int, *, version: str = "1", inputs: Sequence[str] = (), uri: str | None = None, **changes: Any
) -> PlannedUnit:
    """Unit `number`; another `version` is another key for the same tile."""
    key = digest_of({"number": number, "version": version, "inputs": list(inputs)})
    facts: dict[str, Any] = {
        "key": key,
        "product": "rgb",
        "window": WINDOW,
        "tile": f"9-{number}-0",
        "output_uri": uri or f"tiles/rgb/{WINDOW}/9-{number}-0.{key[:16]}.tif",
        "inputs": tuple(inputs),
        "spec": {"number": number, "version": version},
    }
    return PlannedUnit(**facts | changes)


def partition_plan(name: str, units: Sequence[PlannedUnit], *, asset: str = ASSET, window: str = WINDOW) -> PartitionPlan:
    """A plan of partition `name`."""
    return PartitionPlan(asset, name, window, tuple(units), tile=name)


def completion(unit: PlannedUnit, attempt: int, **changes: Any) -> Completion:
    """The facts of an output of `unit`."""
    facts: dict[str, Any] = {
        "unit_key": unit.key,
        "attempt": attempt,
        "output_uri": unit.output_uri,
        "digest": digest_of(unit.key),
        "size_bytes": 1234,
        "metrics": {"valid_share": 0.5},
        "duration_s": 0.25,
    }
    return Completion(**facts | changes)


def failure(
    unit: PlannedUnit,
    attempt: int,
    *,
    verdict: Verdict = Verdict.RETRY,
    kind: ErrorKind = ErrorKind.TIMEOUT,
    outcome: AttemptOutcome = AttemptOutcome.FAILED,
    **changes: Any,
) -> AttemptFailure:
    """A failed attempt at `unit`."""
    return AttemptFailure(
        unit_key=unit.key, attempt=attempt, verdict=verdict, kind=kind, message="it failed", outcome=outcome, **changes
    )


def run_row(run_id: str, partitions: Sequence[str] = (), *, boot_id: str = BOOT, **changes: Any) -> RunRow:
    """A run that begins now."""
    return RunRow(run_id, ASSET, tuple(partitions), pid=1, host="here", boot_id=boot_id, started_at=START, **changes)


def start_one(ledger: Ledger, run_id: str, unit: PlannedUnit, *, alone: bool = False) -> int:
    """Start one unit and return the number of the attempt."""
    return ledger.start_attempts(run_id, [unit.key], alone=alone)[unit.key]


def finish(ledger: Ledger, run_id: str, units: Sequence[PlannedUnit]) -> None:
    """Start and complete these units."""
    started = ledger.start_attempts(run_id, [unit.key for unit in units])
    won = ledger.complete(run_id, [completion(unit, started[unit.key]) for unit in units])
    assert won == {unit.key for unit in units}


def empty_tables(url: str) -> None:
    """Empty every table of the ledger on PostgreSQL, ids beginning again."""
    engine = connect(url)
    with engine.begin() as connection:
        names = ", ".join(f'"{name}"' for name in metadata.tables)
        connection.exec_driver_sql(f"TRUNCATE {names} RESTART IDENTITY CASCADE")
    engine.dispose()


@pytest.fixture
def clock() -> MovableClock:
    """A clock that stands still."""
    return MovableClock()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def new_ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLAlchemy URL of a database without a ledger, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger file that was migrated once, to be copied."""
    path = tmp_path_factory.mktemp("migrated") / "ledger.sqlite"
    open_ledger_at(f"sqlite:///{path}").close()
    return path


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server: PostgresServer) -> str:
    """A database that was migrated once, to be emptied for each test: a new one takes half a second."""
    url = postgres_server.create_database()
    open_ledger_at(url).close()
    return url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLAlchemy URL of a migrated, empty ledger, of each kind."""
    if request.param == "sqlite":
        path = tmp_path / "ledger.sqlite"
        shutil.copyfile(request.getfixturevalue("migrated_sqlite"), path)
        return f"sqlite:///{path}"
    url: str = request.getfixturevalue("migrated_postgres")
    empty_tables(url)
    return url


@pytest.fixture
def ledger(ledger_url: str, clock: MovableClock) -> Iterator[Ledger]:
    """A new ledger, on each database, with a clock that stands still and at most three counted attempts."""
    opened = open_ledger_at(ledger_url, clock=clock, attempts_max=ATTEMPTS_MAX)
    yield opened
    opened.close()
