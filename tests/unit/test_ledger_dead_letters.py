"""Dead letters and rejected inputs: one for a fact, two ways out, nothing lost."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import event

from resources.errors import ErrorKind, Verdict
from resources.keys import audit_hash
from resources.ledger import DeadLetter, InputRejection, Ledger, LetterStatus
from resources.units import UnitState
from tests.support.ledgers import (
    ASSET,
    ATTEMPTS_MAX,
    START,
    WINDOW,
    MovableClock,
    completion,
    failure,
    finish,
    partition_plan,
    planned_unit,
    run_row,
    start_one,
)

A = "w|a"
UNIT = planned_unit(1, inputs=["d1"])
BAD = InputRejection(digest="d1", name="scene 1.tif", kind=ErrorKind.CORRUPT_INPUT, reason="block 3", window=WINDOW)


@pytest.fixture
def letter(ledger: Ledger) -> DeadLetter:
    """The letter of one quarantined unit."""
    ledger.write_plan(ASSET, [partition_plan(A, [UNIT])])
    ledger.begin_run(run_row("r1", [A]))
    quarantine(ledger)
    (found,) = ledger.dead_letters()
    return found


def quarantine(ledger: Ledger, **changes: object) -> None:
    attempt = start_one(ledger, "r1", UNIT)
    ledger.fail("r1", [failure(UNIT, attempt, verdict=Verdict.QUARANTINE, kind=ErrorKind.UNREADABLE, **changes)])


def state(ledger: Ledger) -> UnitState:
    found = ledger.unit(UNIT.key)
    assert found is not None
    return found.state


def test_a_letter_says_what_and_why(letter: DeadLetter) -> None:
    """A dead letter holds subject, place, kind, verdict, reason, attempts, times and an audit hash over unit key and reason."""
    assert (letter.subject, letter.subject_key, letter.name) == ("unit", UNIT.key, UNIT.output_uri)
    assert (letter.asset, letter.product, letter.window, letter.tile) == (ASSET, UNIT.product, WINDOW, UNIT.tile)
    assert (letter.kind, letter.verdict, letter.reason) == (ErrorKind.UNREADABLE, Verdict.QUARANTINE, "it failed")
    assert (letter.attempts, letter.first_at, letter.last_at, letter.round) == (1, START, START, 1)
    assert letter.audit_hash == audit_hash(UNIT.key, "it failed")
    assert (letter.status, letter.closed_at) == (LetterStatus.OPEN, None)


def test_replay_is_a_new_round_with_history_kept(ledger: Ledger, letter: DeadLetter, clock: MovableClock) -> None:
    """A replayed unit is PENDING with its counted attempts begun again; what fails again returns with a new letter."""
    clock.advance(days=1)
    assert ledger.replay([letter.id], who="ada") == 1
    assert ledger.replay([letter.id], who="ada") == 0
    row = ledger.unit(UNIT.key)
    assert row is not None
    assert (row.state, row.attempts, row.round, row.attempt) == (UnitState.PENDING, 0, 2, 1)
    (closed,) = ledger.dead_letters(status=LetterStatus.REPLAYED)
    assert (closed.id, closed.who, closed.closed_at) == (letter.id, "ada", clock.now)
    quarantine(ledger)
    (again,) = ledger.dead_letters()
    assert (again.round, again.attempts, again.first_at) == (2, 1, clock.now)
    assert [entry.what for entry in ledger.history(UNIT.key)] == ["attempt", "attempt", "replayed"]
    assert [entry.number for entry in ledger.history(UNIT.key) if entry.what == "attempt"] == [1, 2]


def test_replay_then_success_leaves_nothing_open(ledger: Ledger, letter: DeadLetter) -> None:
    """Replay after repair completes the unit, and no letter is open."""
    ledger.replay([letter.id], who="ada")
    finish(ledger, "r1", [UNIT])
    assert list(ledger.dead_letters()) == []
    assert ledger.replay([letter.id], who="ada") == 0
    assert state(ledger) is UnitState.COMPLETE


def test_replay_gives_all_attempts_again(ledger: Ledger, letter: DeadLetter) -> None:
    """The bound on counted attempts holds for each round."""
    ledger.replay([letter.id], who="schedule")
    found = [ledger.fail("r1", [failure(UNIT, start_one(ledger, "r1", UNIT))])[UNIT.key] for _ in range(ATTEMPTS_MAX)]
    assert found == [UnitState.FAILED] * (ATTEMPTS_MAX - 1) + [UnitState.QUARANTINED]
    (again,) = ledger.dead_letters()
    assert (again.attempts, again.verdict) == (ATTEMPTS_MAX, Verdict.RETRY)


def test_dismissal_names_who_and_why(ledger: Ledger, letter: DeadLetter) -> None:
    """A dismissed unit is settled for good, says who and why, and is not started again."""
    with pytest.raises(ValueError, match="who dismissed and why"):
        ledger.dismiss([letter.id], who="ada", why=" ")
    assert ledger.dismiss([letter.id], who="ada", why="cloud only") == 1
    (closed,) = ledger.dead_letters(status=None)
    assert (closed.status, closed.who, closed.why) == (LetterStatus.DISMISSED, "ada", "cloud only")
    assert state(ledger) is UnitState.DISMISSED
    assert ledger.start_attempts("r1", [UNIT.key]) == {}
    assert ledger.settled_partitions(ASSET) == {A}


def test_letters_by_filter(ledger: Ledger, letter: DeadLetter, clock: MovableClock) -> None:
    """Letters are found by status, window, kind, product, age and id."""
    clock.advance(hours=2)
    ledger.reject_inputs([BAD])
    assert len(list(ledger.dead_letters())) == 2
    assert [found.id for found in ledger.dead_letters(kind="unreadable")] == [letter.id]
    assert [found.id for found in ledger.dead_letters(product="rgb")] == [letter.id]
    assert [found.id for found in ledger.dead_letters(older_than=START + timedelta(hours=1))] == [letter.id]
    assert [found.id for found in ledger.dead_letters(ids=[letter.id, 999])] == [letter.id]
    assert list(ledger.dead_letters(window="another")) == []
    assert list(ledger.dead_letters(status="REPLAYED")) == []
    assert ledger.letter_counts() == {"unreadable": 1, "corrupt_input": 1}


def test_rejecting_an_input_twice_is_one_letter(ledger: Ledger) -> None:
    """The manifest says the same rejection every time it runs; there is one letter."""
    other = InputRejection(digest="d2", name="b.tif", kind=ErrorKind.EMPTY_FILE, reason="0 bytes")
    assert ledger.reject_inputs([BAD, BAD, other]) == 2
    assert ledger.reject_inputs([BAD, other]) == 0
    assert {found.name for found in ledger.dead_letters()} == {"scene 1.tif", "b.tif"}
    assert ledger.rejected_inputs()["d1"].reason == "block 3"


def test_an_input_met_in_a_unit_gets_its_name_from_the_manifest(ledger: Ledger) -> None:
    """A rejection that began inside a unit is named when the manifest says it too, and stays one letter."""
    ledger.write_plan(ASSET, [partition_plan(A, [UNIT])])
    quarantine(ledger, input_digest="d1")
    assert next(ledger.dead_letters()).name == "input d1"
    assert ledger.reject_inputs([BAD]) == 0
    (found,) = ledger.dead_letters()
    assert (found.name, found.window) == ("scene 1.tif", WINDOW)


def test_saying_known_rejections_again_costs_no_statement_for_each(ledger: Ledger) -> None:
    """Every look at the source says all of them again: a thousand bad scenes are no thousand writes."""
    bad = [InputRejection(f"d{number}", f"{number}.tif", ErrorKind.EMPTY_FILE, "0 bytes") for number in range(50)]
    assert ledger.reject_inputs(bad) == 50
    statements: list[str] = []

    def count(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    event.listen(ledger.engine, "before_cursor_execute", count)
    assert ledger.reject_inputs(bad) == 0
    event.remove(ledger.engine, "before_cursor_execute", count)
    assert 0 < len(statements) < 10


def test_replaying_an_input_frees_what_it_blocked(ledger: Ledger) -> None:
    """A replayed input is no longer rejected and its units are PENDING, those that left the plan included; it may fail again."""
    held, replaced = UNIT, planned_unit(2, inputs=["d1"])
    ledger.write_plan(ASSET, [partition_plan(A, [held, replaced])])
    quarantine(ledger, input_digest="d1")
    assert ledger.block_units("d1", [held.key, replaced.key]) == 1
    ledger.write_plan(ASSET, [partition_plan(A, [held, planned_unit(2)])])
    assert ledger.replay([found.id for found in ledger.dead_letters()], who="ada") == 1
    assert ledger.rejected_inputs() == {}
    assert state(ledger) is UnitState.PENDING
    ledger.write_plan(ASSET, [partition_plan(A, [held, replaced])])
    assert {row.state for row in ledger.planned(ASSET, [A])} == {UnitState.PENDING}
    assert {row.round for row in ledger.planned(ASSET, [A])} == {2}
    assert ledger.reject_inputs([BAD]) == 1
    assert [found.round for found in ledger.dead_letters()] == [2]


def test_dismissing_an_input_keeps_it_rejected(ledger: Ledger) -> None:
    """A dismissed input stays rejected without an open letter, also when the manifest says it again."""
    ledger.write_plan(ASSET, [partition_plan(A, [UNIT])])
    quarantine(ledger, input_digest="d1")
    ledger.dismiss([found.id for found in ledger.dead_letters()], who="ada", why="known")
    assert set(ledger.rejected_inputs()) == {"d1"}
    assert ledger.reject_inputs([BAD]) == 0
    assert list(ledger.dead_letters()) == []
    assert state(ledger) is UnitState.DISMISSED


def test_an_input_that_is_gone_closes_its_letter_until_it_returns(ledger: Ledger) -> None:
    """The letter of an input that left the source is SUPERSEDED, and opened again when the same bytes come back."""
    ledger.reject_inputs([BAD])
    (before,) = ledger.dead_letters()
    assert ledger.close_superseded_inputs(["d1", "other"]) == 0
    assert ledger.close_superseded_inputs(["other"]) == 1
    assert list(ledger.dead_letters()) == []
    assert ledger.reject_inputs([BAD]) == 1
    assert list(ledger.dead_letters()) == [before]


def test_only_rejected_inputs_block(ledger: Ledger) -> None:
    """Units are blocked by inputs that are rejected, and by no other."""
    ledger.write_plan(ASSET, [partition_plan(A, [UNIT])])
    with pytest.raises(LookupError, match="is not rejected"):
        ledger.block_units("d1", [UNIT.key])
    ledger.reject_inputs([BAD])
    assert ledger.block_units("d1", [UNIT.key]) == 1
    row = ledger.unit(UNIT.key)
    assert row is not None
    assert (row.state, row.reason, row.attempt) == (UnitState.QUARANTINED, "input d1 is rejected: block 3", 0)
    assert len(list(ledger.dead_letters())) == 1


def test_an_output_found_after_quarantine_resolves_the_letter(ledger: Ledger, letter: DeadLetter) -> None:
    """A unit that is found complete after all is no longer quarantined; its letter is RESOLVED."""
    ledger.adopt([completion(UNIT, 0)])
    (found,) = ledger.dead_letters(status=None)
    assert (found.id, found.status) == (letter.id, LetterStatus.RESOLVED)
