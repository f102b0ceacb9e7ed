"""Leases: held by one, freed by death, cheap in thousands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from resources.errors import EnvironmentUnfit, ErrorKind
from resources.leases import Leases, LocalLeases, PostgresLeases
from tests.support import ledger_child
from tests.support.postgres import PostgresServer

IDS = {"w|a": 1, "w|b": 2, "w|c": 3}
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(params=["local", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where leases are kept: a lock file, or a database."""
    if request.param == "local":
        return str(tmp_path / "state" / "leases.lock")
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def open_leases(where: str) -> Iterator[Callable[..., Leases]]:
    """Opens leases that are closed when the test ends."""
    with ExitStack() as stack:

        def opened(**options: Any) -> Leases:
            made: Leases = PostgresLeases(where, **options) if where.startswith("postgresql") else LocalLeases(where, **options)
            stack.callback(made.close)
            return made

        yield opened


@pytest.fixture
def start(where: str) -> Iterator[Start]:
    """Starts holders of leases that are gone when the test is."""
    with ExitStack() as stack:

        def start_child(work: str, ids: dict[str, int]) -> subprocess.Popen[str]:
            child = ledger_child.start(work, where=where, ids=ids)
            stack.callback(ledger_child.close, child)
            return child

        yield start_child


def first_line(child: subprocess.Popen[str]) -> Any:
    assert child.stdout is not None
    return json.loads(child.stdout.readline())


def test_a_free_lease_is_acquired_and_given_back(open_leases: Callable[..., Leases]) -> None:
    """What is free is acquired for the length of the block, and free again after it."""
    leases = open_leases()
    assert not leases.is_held(1)
    with leases.hold(IDS) as lease:
        assert (lease.acquired, dict(lease.held_elsewhere)) == (frozenset(IDS), {})
        assert leases.is_held(1)
        leases.check_alive()
    assert not leases.is_held(1)
    with leases.hold(IDS) as lease:
        assert lease.acquired == frozenset(IDS)


def test_a_lease_is_given_back_when_the_block_fails(open_leases: Callable[..., Leases]) -> None:
    """An exception ends the block and the lease."""
    leases = open_leases()
    with pytest.raises(KeyboardInterrupt), leases.hold(IDS):
        raise KeyboardInterrupt
    assert not leases.is_held(1)


def test_a_held_lease_is_left_alone_and_its_holder_named(open_leases: Callable[..., Leases], start: Start) -> None:
    """A run gets the partitions that are free at once, and is told who holds the others; the holder does not notice."""
    child = start("hold", {"w|a": 1, "w|b": 2})
    assert first_line(child) == ["w|a", "w|b"]
    leases = open_leases(describe=lambda number: f"run r{number}")
    assert [leases.is_held(number) for number in (1, 2, 3)] == [True, True, False]
    with leases.hold(IDS) as lease:
        assert lease.acquired == {"w|c"}
        assert dict(lease.held_elsewhere) == {"w|a": "run r1", "w|b": "run r2"}
    assert leases.is_held(1)
    ledger_child.let_go(child)
    child.wait(timeout=30)
    assert not leases.is_held(1)


def test_two_runs_of_one_process_exclude_each_other(open_leases: Callable[..., Leases]) -> None:
    """Also within one process, through one object or two, a lease has one holder."""
    first, second = open_leases(), open_leases()
    with first.hold({"a": 1}):
        for other in (first, second):
            with other.hold({"a": 1, "b": 2}) as lease:
                assert lease.acquired == {"b"}
        assert first.is_held(1)
        assert first.held([1, 7]) == second.held([7, 1, 1]) == {1}
        assert second.is_held(1)
    assert not second.is_held(1)


def test_a_killed_holder_frees_its_leases(open_leases: Callable[..., Leases], start: Start, where: str) -> None:
    """SIGKILL of the holder frees its leases at once, with no time to live to wait for."""
    child = start("hold", IDS)
    assert first_line(child) == sorted(IDS)
    leases = open_leases()
    assert leases.is_held(1)
    child.kill()
    child.wait()
    _await_session_end(where)
    with leases.hold(IDS) as lease:
        assert lease.acquired == frozenset(IDS)


def test_a_spawned_worker_does_not_keep_a_dead_runs_leases(open_leases: Callable[..., Leases], start: Start, where: str) -> None:
    """A worker that outlives its killed parent inherited no lease."""
    child = start("hold_and_spawn", IDS)
    worker = psutil.Process(first_line(child))
    try:
        child.kill()
        child.wait()
        assert worker.is_running()
        _await_session_end(where)
        with open_leases().hold(IDS) as lease:
            assert lease.acquired == frozenset(IDS)
    finally:
        with suppress(psutil.NoSuchProcess):
            worker.kill()


def _await_session_end(where: str) -> None:
    # the server notices a closed socket when it next looks at it; ask it until the sessions of the dead are gone
    if not where.startswith("postgresql"):
        return
    import psycopg2

    connection = psycopg2.connect(where.replace("+psycopg2", ""))
    connection.autocommit = True
    with connection.cursor() as cursor:
        for _ in range(10_000):
            cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
            if cursor.fetchone() == (0,):
                break
    connection.close()


def test_ten_thousand_leases_cost_one_descriptor(open_leases: Callable[..., Leases]) -> None:
    """Ten thousand leases are held through one descriptor or one connection."""
    leases = open_leases()
    assert not leases.is_held(1)
    before = psutil.Process().num_fds()
    with leases.hold({str(number): number for number in range(10_000)}) as lease:
        assert len(lease.acquired) == 10_000
        assert psutil.Process().num_fds() <= before + 1
    assert not leases.is_held(9_999)


def test_a_stopped_holder_keeps_its_lease(open_leases: Callable[..., Leases], start: Start) -> None:
    """A holder that hangs still holds: nothing is guessed from its silence."""
    child = start("hold", IDS)
    assert first_line(child) == sorted(IDS)
    os.kill(child.pid, signal.SIGSTOP)
    assert open_leases().is_held(1)


def test_a_replaced_lock_file_stops_the_run(tmp_path: Path) -> None:
    """A lock file that was removed or replaced under a held lease protects nobody: the run stops."""
    path = tmp_path / "leases.lock"
    leases = LocalLeases(path)
    with leases.hold({"a": 1}):
        leases.check_alive()
        path.unlink()
        with pytest.raises(EnvironmentUnfit, match="stay in place"):
            leases.check_alive()
        path.touch()
        with pytest.raises(EnvironmentUnfit, match="another file"):
            leases.check_alive()
    leases.close()


def test_an_unusable_lock_file_stops_the_run(tmp_path: Path) -> None:
    """A lock file that cannot be made is the surroundings' fault and says where it was looked for."""
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentUnfit, match="lock file"), LocalLeases(tmp_path / "file" / "leases.lock").hold({"a": 1}):
        pass


@pytest.mark.postgres
def test_a_lost_session_stops_the_run(postgres_server: PostgresServer, postgres_url: str) -> None:
    """A run whose session was ended learns it before it goes on, and its leases are free for others."""
    leases, other = PostgresLeases(postgres_url), PostgresLeases(postgres_url)
    with leases.hold({"a": 1}):
        leases.check_alive()
        postgres_server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", postgres_url.rsplit("/", 1)[1]
        )
        with pytest.raises(EnvironmentUnfit) as caught:
            leases.check_alive()
        assert caught.value.kind is ErrorKind.LEDGER_UNREACHABLE
        with pytest.raises(EnvironmentUnfit):
            leases.check_alive()
        with other.hold({"a": 1}) as lease:
            assert lease.acquired == {"a"}
    leases.close()
    other.close()


@pytest.mark.postgres
def test_two_ledgers_of_one_database_do_not_share_leases(postgres_url: str) -> None:
    """Leases of two schemas of one database are apart."""
    first, second = (PostgresLeases(postgres_url, schema_name=name) for name in ("one", "two"))
    with first.hold({"a": 1}), second.hold({"a": 1}) as lease:
        assert lease.acquired == {"a"}
    first.close()
    second.close()


@pytest.mark.postgres
def test_no_server_no_lease(postgres_url: str) -> None:
    """A server that cannot be reached is LEDGER_UNREACHABLE, and the message holds no password."""
    host = postgres_url.split("@")[1]
    leases = PostgresLeases(postgres_url.replace(host, "127.0.0.1:1/none"))
    with pytest.raises(EnvironmentUnfit) as caught, leases.hold({"a": 1}):
        pass
    assert caught.value.kind is ErrorKind.LEDGER_UNREACHABLE
    assert postgres_url.split(":")[2].split("@")[0] not in str(caught.value)
