"""Writing plans: what is new, what leaves, what comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import text

from resources.errors import ErrorKind, Verdict
from resources.ledger import Ledger, PlanChange
from resources.ledger.leavers import Leavers
from resources.units import AttemptOutcome, UnitState
from tests.support.ledgers import ASSET, START, completion, failure, finish, partition_plan, planned_unit, run_row, start_one

A, B = "w|a", "w|b"


def states(ledger: Ledger, *names: str) -> list[UnitState]:
    return [row.state for row in ledger.planned(ASSET, names or (A, B))]


def state_of(ledger: Ledger, key: str) -> UnitState:
    found = ledger.unit(key)
    assert found is not None
    return found.state


def test_new_units_are_pending(ledger: Ledger) -> None:
    """A first plan makes every unit PENDING, with all that was planned about it."""
    unit = planned_unit(1, inputs=["d1", "d2"], source="s3")
    assert ledger.write_plan(ASSET, [partition_plan(A, [unit])]) == PlanChange(new=1)
    (row,) = ledger.planned(ASSET, [A])
    assert (row.key, row.state, row.partition, row.output_uri) == (unit.key, UnitState.PENDING, A, unit.output_uri)
    assert (row.inputs, row.spec, row.source, row.tile, row.window) == (unit.inputs, unit.spec, "s3", unit.tile, unit.window)
    assert (row.attempts, row.attempt, row.round, row.suspect, row.metrics) == (0, 0, 1, False, {})


def test_the_same_plan_again_writes_nothing(ledger: Ledger) -> None:
    """An unchanged plan is recognised by its fingerprint, whatever the order of its units, and takes no write lock."""
    units = [planned_unit(n) for n in range(4)]
    ledger.write_plan(ASSET, [partition_plan(A, units)])
    with ledger.writing():  # a second writer would wait in vain for the lock
        assert ledger.write_plan(ASSET, [partition_plan(A, units[::-1])]) == PlanChange(unchanged=4)


def test_order_is_partition_then_key(ledger: Ledger) -> None:
    """Planned units come in order of partition and unit key, however they were written and asked for."""
    first, second = [planned_unit(n) for n in range(5)], [planned_unit(n) for n in range(5, 9)]
    ledger.write_plan(ASSET, [partition_plan(B, second), partition_plan(A, first)])
    rows = [(row.partition, row.key) for row in ledger.planned(ASSET, [B, A, A])]
    assert rows == sorted([(A, u.key) for u in first] + [(B, u.key) for u in second])


def test_another_key_supersedes_and_no_key_retires(ledger: Ledger) -> None:
    """A unit that leaves is SUPERSEDED where its tile and product have another unit, else RETIRED."""
    old, gone = planned_unit(1), planned_unit(2)
    ledger.write_plan(ASSET, [partition_plan(A, [old, gone])])
    change = ledger.write_plan(ASSET, [partition_plan(A, [planned_unit(1, version="2")])])
    assert change == PlanChange(new=1, superseded=1, retired=1)
    assert state_of(ledger, old.key) is UnitState.SUPERSEDED
    assert state_of(ledger, gone.key) is UnitState.RETIRED


def test_a_b_a_finds_complete_again(ledger: Ledger) -> None:
    """Going back to an earlier set of scenes finds the earlier output complete, its recorded facts kept."""
    a, b = planned_unit(1), planned_unit(1, version="2")
    ledger.write_plan(ASSET, [partition_plan(A, [a])])
    finish(ledger, "r1", [a])
    before = ledger.unit(a.key)
    ledger.write_plan(ASSET, [partition_plan(A, [b])])
    assert states(ledger, A) == [UnitState.PENDING]
    assert ledger.write_plan(ASSET, [partition_plan(A, [a])]) == PlanChange(restored=1, superseded=1)
    assert ledger.unit(a.key) == before
    assert [entry.what for entry in ledger.history(a.key)] == ["attempt", "superseded", "restored"]


def test_failed_comes_back_pending_with_its_count(ledger: Ledger) -> None:
    """A FAILED unit that comes back is PENDING and keeps its counted attempts."""
    a = planned_unit(1)
    ledger.write_plan(ASSET, [partition_plan(A, [a])])
    ledger.fail("r1", [failure(a, start_one(ledger, "r1", a), retry_at=START)])
    ledger.write_plan(ASSET, [partition_plan(A, [])])
    ledger.write_plan(ASSET, [partition_plan(A, [a])])
    (row,) = ledger.planned(ASSET, [A])
    assert (row.state, row.attempts, row.attempt, row.retry_at) == (UnitState.PENDING, 1, 1, None)


def test_quarantine_comes_back_with_its_letter(ledger: Ledger) -> None:
    """A quarantined unit's dead letter is closed when the unit leaves the plan, and opened again when it comes back."""
    a = planned_unit(1)
    ledger.write_plan(ASSET, [partition_plan(A, [a])])
    ledger.fail("r1", [failure(a, start_one(ledger, "r1", a), verdict=Verdict.QUARANTINE)])
    (letter,) = ledger.dead_letters()
    ledger.write_plan(ASSET, [partition_plan(A, [planned_unit(1, version="2")])])
    assert list(ledger.dead_letters()) == []
    assert [found.status for found in ledger.dead_letters(status=None)] == ["SUPERSEDED"]
    ledger.write_plan(ASSET, [partition_plan(A, [a])])
    assert states(ledger, A) == [UnitState.QUARANTINED]
    assert list(ledger.dead_letters()) == [letter]


def test_dismissed_comes_back_dismissed(ledger: Ledger) -> None:
    """What a person disposed of stays disposed of when it leaves the plan and comes back."""
    a = planned_unit(1)
    ledger.write_plan(ASSET, [partition_plan(A, [a])])
    ledger.fail("r1", [failure(a, start_one(ledger, "r1", a), verdict=Verdict.QUARANTINE)])
    ledger.dismiss([letter.id for letter in ledger.dead_letters()], who="ada", why="not needed")
    ledger.write_plan(ASSET, [partition_plan(A, [])])
    ledger.write_plan(ASSET, [partition_plan(A, [a])])
    assert states(ledger, A) == [UnitState.DISMISSED]


def test_a_running_unit_that_leaves_loses_its_writer(ledger: Ledger) -> None:
    """The late writer of a unit that left the plan and is back records nothing; its attempt is VOID."""
    a = planned_unit(1)
    ledger.write_plan(ASSET, [partition_plan(A, [a])])
    attempt = start_one(ledger, "r1", a)
    ledger.write_plan(ASSET, [partition_plan(A, [])])
    assert ledger.complete("r1", [completion(a, attempt + 1)]) == set()
    assert ledger.complete("r2", [completion(a, attempt)]) == set()
    ledger.write_plan(ASSET, [partition_plan(A, [a])])
    assert ledger.complete("r1", [completion(a, attempt)]) == set()
    assert states(ledger, A) == [UnitState.PENDING]
    assert [entry.outcome for entry in ledger.history(a.key) if entry.what == "attempt"] == [AttemptOutcome.VOID]


def test_a_running_unit_that_leaves_keeps_the_output_of_its_attempt(ledger: Ledger) -> None:
    """An output promoted after its unit left the plan is on record as the unit's; nothing was won, the attempt stays VOID."""
    a = planned_unit(1)
    ledger.write_plan(ASSET, [partition_plan(A, [a])])
    attempt = start_one(ledger, "r1", a)
    ledger.write_plan(ASSET, [partition_plan(A, [])])
    assert ledger.complete("r1", [completion(a, attempt)]) == set()
    assert ledger.recorded_outputs([a.output_uri]) == {a.output_uri}
    ledger.write_plan(ASSET, [partition_plan(A, [a])])
    assert states(ledger, A) == [UnitState.COMPLETE]
    assert [entry.outcome for entry in ledger.history(a.key) if entry.what == "attempt"] == [AttemptOutcome.VOID]


def test_another_metatile_size_touches_no_unit(ledger: Ledger) -> None:
    """Moving units between partitions, old names reused or forgotten, changes membership and nothing else."""
    units = [planned_unit(n) for n in range(8)]
    ledger.write_plan(ASSET, [partition_plan(A, units[:4]), partition_plan(B, units[4:])])
    finish(ledger, "r1", units[:3])
    attempt = start_one(ledger, "r1", units[3])
    before = {row.key: replace(row, partition=None) for row in ledger.planned(ASSET, [A, B])}
    small = [partition_plan(A, units[4:6]), partition_plan(B, units[:2]), partition_plan("w|c", [*units[2:4], *units[6:]])]
    assert ledger.write_plan(ASSET, small) == PlanChange(unchanged=8)
    assert {row.key: replace(row, partition=None) for row in ledger.planned(ASSET, [A, B, "w|c"])} == before
    big = [partition_plan("w|all", units)]
    assert ledger.write_plan(ASSET, big) == PlanChange(unchanged=8)
    assert ledger.forget_partitions(ASSET, [A, B, "w|c"]) == PlanChange()
    assert {row.key: replace(row, partition=None) for row in ledger.planned(ASSET, ["w|all"])} == before
    assert ledger.complete("r1", [completion(units[3], attempt)]) == {units[3].key}
    assert [row.partition for row in ledger.partition_rows(ASSET)] == ["w|all"]


def test_forgotten_partitions_retire_their_units(ledger: Ledger) -> None:
    """A partition that is no longer in the grid is no longer planned, and its units retire."""
    ledger.write_plan(ASSET, [partition_plan(A, [planned_unit(1)]), partition_plan(B, [planned_unit(2)])])
    number = ledger.partition_ids(ASSET, [A])
    assert ledger.forget_partitions(ASSET, [A, "never heard of"]) == PlanChange(retired=1)
    assert [row.partition for row in ledger.partition_rows(ASSET)] == [B]
    assert ledger.partition_ids(ASSET, [A]) == number
    assert ledger.write_plan(ASSET, [partition_plan(A, [planned_unit(1)])]) == PlanChange(restored=1)


def test_a_crash_before_the_leavers_are_settled_is_healed(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies between writing membership and closing leavers leaves them to the next plan, of anything."""
    ledger.write_plan(ASSET, [partition_plan(A, [planned_unit(1)])])
    with monkeypatch.context() as patched:
        patched.setattr(Leavers, "settle_leavers", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ledger.write_plan(ASSET, [partition_plan(A, [])])
    assert state_of(ledger, planned_unit(1).key) is UnitState.PENDING
    assert ledger.write_plan(ASSET, [partition_plan(A, [])]) == PlanChange(retired=1)
    assert state_of(ledger, planned_unit(1).key) is UnitState.RETIRED


def test_one_key_for_two_places_is_named(ledger: Ledger) -> None:
    """A key that is planned for two destinations is kept for the first and named, in one plan or across two."""
    unit = planned_unit(1)
    twin = replace(planned_unit(2), key=unit.key)
    change = ledger.write_plan(ASSET, [partition_plan(A, [unit, twin])])
    assert (change.new, change.duplicate_keys) == (1, (unit.key,))
    change = ledger.write_plan(ASSET, [partition_plan(B, [twin])])
    assert (change.new, change.duplicate_keys) == (0, (unit.key,))
    assert [row.tile for row in ledger.planned(ASSET, [A, B])] == [unit.tile]


def test_another_revision_is_new_work_under_the_same_key(ledger: Ledger) -> None:
    """Where the key leaves content out, a changed revision makes the unit PENDING again as a new round, its history kept."""
    unit = planned_unit(1, revision="r1")
    ledger.write_plan(ASSET, [partition_plan(A, [unit])])
    finish(ledger, "run", [unit])
    assert ledger.write_plan(ASSET, [partition_plan(A, [replace(unit, revision="r2")])]).new == 1
    (row,) = ledger.planned(ASSET, [A])
    assert (row.state, row.revision, row.round, row.attempts, row.attempt) == (UnitState.PENDING, "r2", 2, 0, 1)


def test_a_replaced_window_output_is_redone_on_return(ledger: Ledger) -> None:
    """A window output keeps one name: once the newer unit has overwritten it, the older one comes back as PENDING."""
    a = planned_unit(1, uri="catalogue.parquet")
    b = planned_unit(1, version="2", uri="catalogue.parquet")
    ledger.write_plan(ASSET, [partition_plan(A, [a])])
    finish(ledger, "r1", [a])
    ledger.write_plan(ASSET, [partition_plan(A, [b])])
    finish(ledger, "r1", [b])
    ledger.write_plan(ASSET, [partition_plan(A, [a])])
    assert states(ledger, A) == [UnitState.PENDING]
    finish(ledger, "r1", [a])


def test_a_window_output_not_yet_overwritten_comes_back_complete(ledger: Ledger) -> None:
    """The older unit of a window output is still complete when the newer one never wrote."""
    a = planned_unit(1, uri="catalogue.parquet")
    ledger.write_plan(ASSET, [partition_plan(A, [a])])
    finish(ledger, "r1", [a])
    ledger.write_plan(ASSET, [partition_plan(A, [planned_unit(1, version="2", uri="catalogue.parquet")])])
    ledger.write_plan(ASSET, [partition_plan(A, [a])])
    assert states(ledger, A) == [UnitState.COMPLETE]


def test_plans_of_many_units(ledger: Ledger) -> None:
    """Plans longer than any one statement may be are written and read back whole."""
    plans = [partition_plan(f"w|{p:03d}", [planned_unit(n) for n in range(p * 40, p * 40 + 40)]) for p in range(60)]
    assert ledger.write_plan(ASSET, iter(plans)) == PlanChange(new=2400)
    names = [plan.partition for plan in plans]
    assert len({row.key for row in ledger.planned(ASSET, names)}) == 2400
    assert ledger.write_plan(ASSET, iter(plans)) == PlanChange(unchanged=2400)
    assert ledger.forget_partitions(ASSET, names) == PlanChange(retired=2400)


def test_an_empty_partition_is_planned_and_settled(ledger: Ledger) -> None:
    """A partition without scenes is planned, holds nothing and is settled."""
    ledger.write_plan(ASSET, [partition_plan(A, [])])
    (row,) = ledger.partition_rows(ASSET)
    assert (row.units, row.is_settled) == (0, True)
    assert ledger.settled_partitions(ASSET) == {A}
    assert ledger.due_partitions(ASSET, now=START) == []


def test_counts_of_partitions_follow_states(ledger: Ledger) -> None:
    """A partition row counts its units by state and says when the next one is due."""
    units = [planned_unit(n) for n in range(5)]
    ledger.write_plan(ASSET, [partition_plan(A, units)])
    ledger.begin_run(run_row("r1", [A]))
    finish(ledger, "r1", units[:2])
    started = ledger.start_attempts("r1", [unit.key for unit in units[2:4]])
    ledger.fail("r1", [failure(units[2], started[units[2].key], retry_at=START)])
    ledger.fail("r1", [failure(units[3], started[units[3].key], verdict=Verdict.QUARANTINE, kind=ErrorKind.UNREADABLE)])
    (row,) = ledger.partition_rows(ASSET, window="2026-01-01")
    assert (row.units, row.pending, row.complete, row.failed, row.quarantined, row.next_due) == (5, 1, 2, 1, 1, START)
    assert not row.is_settled
    assert list(ledger.partition_rows(ASSET, window="another")) == []


def test_a_plan_of_another_asset_is_refused(ledger: Ledger) -> None:
    """A plan is written under its own asset's name only."""
    with pytest.raises(ValueError, match="a plan of 'other'"):
        ledger.write_plan(ASSET, [partition_plan(A, [], asset="other")])


def test_one_row_for_a_key_is_the_databases_promise(ledger: Ledger) -> None:
    """The database itself refuses a second row for a key and a second COMPLETE unit for an output URI."""
    first, second = planned_unit(1, uri="same.tif"), planned_unit(2, uri="same.tif")
    ledger.write_plan(ASSET, [partition_plan(A, [first, second])])
    finish(ledger, "r1", [first])
    with pytest.raises(Exception, match=r"(?i)unique"), ledger.writing() as connection:
        connection.execute(text("UPDATE units SET state = 'COMPLETE'"))
    with pytest.raises(Exception, match=r"(?i)unique"), ledger.writing() as connection:
        connection.execute(text("UPDATE units SET key = 'k'"))
