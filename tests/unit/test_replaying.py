"""Replay without a person: what is asked for again, when, and what is left to people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import dagster as dg
import pytest

from pipelines.findings import overdue_dead_letters
from pipelines.replaying import replay_exhausted, replay_recovered
from pipelines.watched import Watched
from resources.errors import ErrorKind, Verdict
from resources.ledger import Ledger, LetterStatus
from resources.units import PlannedUnit, UnitState
from tests.support.ledgers import MovableClock, failure, finish, partition_plan, planned_unit, run_row, start_one

UNITS = Watched("tiles", dg.StaticPartitionsDefinition(["p"]), ("job",))
AWAY = planned_unit(1, source="https://away.example")
AWAY_TOO = planned_unit(2, source="https://away.example")
HERE = planned_unit(3, source="https://here.example")
CORRUPT = planned_unit(4, source="https://away.example")


@dataclass(frozen=True)
class Project:
    """What replay asks of a project."""

    ledger: Ledger


@pytest.fixture
def project(ledger: Ledger) -> Project:
    """Four units: two of them exhausted on two sources, one quarantined for what it holds, one not tried yet."""
    ledger.write_plan("tiles", [partition_plan("p", [AWAY, AWAY_TOO, HERE, CORRUPT])])
    ledger.begin_run(run_row("run", ["p"]))
    for unit in (AWAY, HERE):
        exhaust(ledger, unit)
    failed = failure(CORRUPT, start_one(ledger, "run", CORRUPT), verdict=Verdict.QUARANTINE, kind=ErrorKind.CORRUPT_INPUT)
    ledger.fail("run", [failed])
    return Project(ledger)


def exhaust(ledger: Ledger, unit: PlannedUnit) -> None:
    """Fail a unit until it is quarantined."""
    for _ in range(100):
        states = ledger.fail("run", [failure(unit, start_one(ledger, "run", unit))])
        if states[unit.key] is UnitState.QUARANTINED:
            return
    raise AssertionError("the unit was never quarantined")


def pending(project: Project) -> set[str]:
    return {row.key for row in project.ledger.units(state=UnitState.PENDING)}


def test_the_schedule_replays_exhausted_retries_only(project: Project) -> None:
    """What timed out is asked for again; what is corrupt stays with people."""
    assert replay_exhausted(project, rounds_max=5) == 2  # type: ignore[arg-type]
    assert pending(project) == {AWAY.key, HERE.key, AWAY_TOO.key}
    assert {letter.subject_key for letter in project.ledger.dead_letters()} == {CORRUPT.key}


def test_late_rounds_are_left_to_people(project: Project) -> None:
    """A unit that was replayed as often as it may be is not replayed again."""
    for _ in range(2):
        replay_exhausted(project, rounds_max=2)  # type: ignore[arg-type]
        exhaust(project.ledger, AWAY)
    assert replay_exhausted(project, rounds_max=2) == 0  # type: ignore[arg-type]
    assert replay_recovered(project, rounds_max=2) == 0  # type: ignore[arg-type]


def test_a_source_that_answers_again_wakes_its_letters(project: Project, clock: MovableClock) -> None:
    """A completion since the failure replays that source's exhausted units, and no others."""
    assert replay_recovered(project, rounds_max=5) == 0  # type: ignore[arg-type]
    clock.advance(seconds=60)
    finish(project.ledger, "run", [AWAY_TOO])
    assert replay_recovered(project, rounds_max=5) == 1  # type: ignore[arg-type]
    assert pending(project) == {AWAY.key}
    assert replay_recovered(project, rounds_max=5) == 0  # type: ignore[arg-type]


def test_a_completion_before_the_failure_is_no_recovery(ledger: Ledger, clock: MovableClock) -> None:
    """What the source gave before it failed says nothing about it now."""
    ledger.write_plan("tiles", [partition_plan("p", [AWAY, AWAY_TOO])])
    ledger.begin_run(run_row("run", ["p"]))
    finish(ledger, "run", [AWAY_TOO])
    clock.advance(seconds=60)
    exhaust(ledger, AWAY)
    assert replay_recovered(Project(ledger), rounds_max=5) == 0  # type: ignore[arg-type]


def test_a_letter_is_overdue_by_its_first_round(project: Project, clock: MovableClock) -> None:
    """The deadline counts from the first failure: an hourly replay that fails each time does not start it anew."""
    deadline = timedelta(hours=2)
    assert overdue_dead_letters(project, UNITS, deadline=deadline).passed  # type: ignore[arg-type]
    for _ in range(3):
        clock.advance(hours=1)
        replay_exhausted(project, rounds_max=9)  # type: ignore[arg-type]
        exhaust(project.ledger, AWAY)
    found = overdue_dead_letters(project, UNITS, deadline=deadline)  # type: ignore[arg-type]
    assert not found.passed
    assert found.metadata["overdue"] == 2
    assert found.metadata["open"] == 2
    project.ledger.dismiss([letter.id for letter in project.ledger.dead_letters()], who="me", why="seen")
    assert overdue_dead_letters(project, UNITS, deadline=deadline).passed  # type: ignore[arg-type]
    assert list(project.ledger.dead_letters(status=LetterStatus.REPLAYED))
