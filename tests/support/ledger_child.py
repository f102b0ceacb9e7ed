"""Child processes that use a ledger or a lease, for tests in which real processes compete and die.

Started by `start`, a child reads its arguments, prints `ready`, waits for a line on its standard input, does its work and
prints the answer as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resources.leases import LocalLeases, PostgresLeases
from resources.ledger import open_ledger_at
from resources.units import Completion

ROOT = Path(__file__).parents[2]


def start(work: str, **arguments: Any) -> subprocess.Popen[str]:
    """Start a child and return when it is ready."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.support.ledger_child", work],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(arguments) + "\n")
    child.stdin.flush()
    assert child.stdout.readline() == "ready\n"
    return child


def let_go(child: subprocess.Popen[str]) -> None:
    """Let a ready child do its work."""
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


def answer(child: subprocess.Popen[str]) -> Any:
    """What the child found; the child has ended."""
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    return json.loads(output)


def close(child: subprocess.Popen[str]) -> None:
    """Kill a child, if it lives, and close its pipes."""
    child.kill()
    child.communicate()


def _await_word() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def open_new(url: str) -> str | None:
    """Open a ledger that may not exist yet."""
    _await_word()
    ledger = open_ledger_at(url)
    ledger.remember_store("s")
    return ledger.remembered_store()


def start_all(url: str, run_id: str, keys: list[str], group: int) -> list[str]:
    """Start all units in groups; those won."""
    ledger = open_ledger_at(url)
    _await_word()
    won: list[str] = []
    for at in range(0, len(keys), group):
        won += ledger.start_attempts(run_id, keys[at : at + group])
    return won


def complete_all(url: str, run_id: str, outputs: dict[str, list[Any]]) -> list[str]:
    """Complete units as attempt and output say, all in one group; those won."""
    ledger = open_ledger_at(url)
    _await_word()
    return sorted(ledger.complete(run_id, [Completion(key, attempt, uri, "d", 1) for key, (attempt, uri) in outputs.items()]))


def work_until_killed(url: str, run_id: str, keys: list[str]) -> None:
    """Start and complete units in small groups for ever, naming each group that the ledger acknowledged."""
    ledger = open_ledger_at(url)
    _await_word()
    for at in range(0, len(keys), 5):
        started = ledger.start_attempts(run_id, keys[at : at + 5])
        print(json.dumps(["started", sorted(started)]), flush=True)
        ledger.complete(run_id, [Completion(key, attempt, f"{key}.tif", "d", 1) for key, attempt in started.items()])
        print(json.dumps(["complete", sorted(started)]), flush=True)


def hold(where: str, ids: dict[str, int]) -> None:
    """Hold leases until told to end or killed; prints what was acquired first."""
    leases = PostgresLeases(where) if where.startswith("postgresql") else LocalLeases(where)
    with leases.hold(ids) as lease:
        print("ready", flush=True)
        print(json.dumps(sorted(lease.acquired)), flush=True)
        sys.stdin.readline()
    leases.close()


def hold_and_spawn(where: str, ids: dict[str, int]) -> None:
    """Hold leases, spawn a child that outlives this process, and wait to be killed."""
    import multiprocessing

    leases = PostgresLeases(where) if where.startswith("postgresql") else LocalLeases(where)
    with leases.hold(ids):
        worker = multiprocessing.get_context("spawn").Process(target=_wait_for_end, args=(os.getpid(),), daemon=False)
        worker.start()
        print("ready", flush=True)
        print(json.dumps(worker.pid), flush=True)
        sys.stdin.readline()


def _wait_for_end(_parent: int) -> None:
    import signal

    signal.pause()


WORKS: dict[str, Callable[..., Any]] = {
    work.__name__: work for work in (open_new, start_all, complete_all, work_until_killed, hold, hold_and_spawn)
}

if __name__ == "__main__":
    found = WORKS[sys.argv[1]](**json.loads(sys.stdin.readline()))
    print(json.dumps(found))
