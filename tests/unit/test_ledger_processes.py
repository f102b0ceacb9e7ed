"""Real processes on one ledger: they open it at once, compete for units, and are killed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from resources.errors import ErrorKind
from resources.ledger import Ledger, open_ledger_at
from resources.units import AttemptOutcome, UnitState
from tests.support import ledger_child
from tests.support.ledgers import ASSET, BOOT, finish, partition_plan, planned_unit, run_row

A = "w|a"
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts children that are gone when the test is."""
    with ExitStack() as stack:

        def start_child(work: str, **arguments: Any) -> subprocess.Popen[str]:
            child = ledger_child.start(work, **arguments)
            stack.callback(ledger_child.close, child)
            return child

        yield start_child


def race(children: list[subprocess.Popen[str]]) -> list[Any]:
    """Let all go at once and collect their answers."""
    for child in children:
        ledger_child.let_go(child)
    return [ledger_child.answer(child) for child in children]


def test_four_processes_open_a_new_ledger_at_once(new_ledger_url: str, start: Start) -> None:
    """Processes that open a ledger for the first time at the same moment all get it, migrated once."""
    assert race([start("open_new", url=new_ledger_url) for _ in range(4)]) == ["s"] * 4


def test_two_processes_start_the_same_units(ledger: Ledger, ledger_url: str, start: Start) -> None:
    """Two processes that start the same units, in opposite orders, win each unit exactly once between them."""
    units = [planned_unit(n) for n in range(300)]
    ledger.write_plan(ASSET, [partition_plan(A, units)])
    keys = [unit.key for unit in units]
    children = [start("start_all", url=ledger_url, run_id=f"r{n}", keys=keys[:: 1 if n == 0 else -1], group=7) for n in range(2)]
    first, second = race(children)
    assert sorted(first + second) == sorted(keys)
    rows = {row.key: row.run_id for row in ledger.planned(ASSET, [A])}
    assert rows == dict.fromkeys(first, "r0") | dict.fromkeys(second, "r1")


def test_two_processes_complete_the_same_attempt(ledger: Ledger, ledger_url: str, start: Start) -> None:
    """Two writers of one attempt give one record: every unit is won by one of them."""
    units = [planned_unit(n) for n in range(60)]
    ledger.write_plan(ASSET, [partition_plan(A, units)])
    started = ledger.start_attempts("r", [unit.key for unit in units])
    outputs = {unit.key: (started[unit.key], unit.output_uri) for unit in units}
    first, second = race([start("complete_all", url=ledger_url, run_id="r", outputs=outputs) for _ in range(2)])
    assert sorted(first + second) == sorted(started)
    for unit in units[:5]:
        assert [entry.outcome for entry in ledger.history(unit.key)] == [AttemptOutcome.SUCCEEDED]


def test_two_processes_record_one_output(ledger: Ledger, ledger_url: str, start: Start) -> None:
    """Two units that claim one output, completed by two processes at once: one is complete, the other named a duplicate."""
    units = [planned_unit(n) for n in range(40)]
    ledger.write_plan(ASSET, [partition_plan(A, units)])
    halves = []
    for n in range(2):
        started = ledger.start_attempts(f"r{n}", [unit.key for unit in units[n::2]])
        outputs = {unit.key: (started[unit.key], f"same-{i}.tif") for i, unit in enumerate(units[n::2])}
        halves.append(start("complete_all", url=ledger_url, run_id=f"r{n}", outputs=outputs))
    first, second = race(halves)
    assert len(first) + len(second) == 20
    rows = list(ledger.planned(ASSET, [A]))
    assert len({row.output_uri for row in rows if row.state is UnitState.COMPLETE}) == 20
    losers = [row for row in rows if row.state is UnitState.QUARANTINED]
    assert {row.error_kind for row in losers} == {ErrorKind.DUPLICATE_KEY}
    assert len(losers) == len(list(ledger.dead_letters())) == 20


def test_a_killed_process_leaves_what_it_acknowledged(ledger: Ledger, ledger_url: str, start: Start) -> None:
    """What a process said was recorded is recorded after SIGKILL; what was running is found and taken over, and work goes on."""
    units = [planned_unit(n) for n in range(2000)]
    ledger.write_plan(ASSET, [partition_plan(A, units)])
    ledger.begin_run(run_row("r1", [A]))
    child = start("work_until_killed", url=ledger_url, run_id="r1", keys=[unit.key for unit in units])
    assert child.stdout is not None
    ledger_child.let_go(child)
    said = [json.loads(child.stdout.readline()) for _ in range(25)]
    child.kill()
    child.wait()
    said += [json.loads(line) for line in child.stdout.read().splitlines() if line.endswith("]")]
    ledger.close()
    again = open_ledger_at(ledger_url, clock=ledger.clock)
    complete = {key for word, keys in said if word == "complete" for key in keys}
    started = {key for word, keys in said if word == "started" for key in keys}
    found = {row.key: row.state for row in again.planned(ASSET, [A])}
    assert {found[key] for key in complete} == {UnitState.COMPLETE}
    assert {found[key] for key in started - complete} <= {UnitState.RUNNING, UnitState.COMPLETE}
    running = {key for key, state in found.items() if state is UnitState.RUNNING}
    assert len(running) <= 5
    assert again.take_over("r2", ASSET, [A], boot_id=BOOT) == len(running)
    left = [unit for unit in units if found[unit.key] is not UnitState.COMPLETE]
    finish(again, "r2", left)
    assert {row.state for row in again.planned(ASSET, [A])} == {UnitState.COMPLETE}
    again.close()
