"""Attempts: who wins, what counts, what is quarantined, and what a late writer can do, which is nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from resources.errors import ErrorKind, Verdict
from resources.ledger import Ledger, UnitRow
from resources.units import AttemptOutcome, PlannedUnit, RunOutcome, RunSummary, UnitState
from tests.support.ledgers import (
    ASSET,
    ATTEMPTS_MAX,
    BOOT,
    START,
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
SUMMARY = RunSummary(0, 0, 0, 0, 0, RunOutcome.PARTIAL)


@pytest.fixture
def units(ledger: Ledger) -> list[PlannedUnit]:
    """Four planned units, and two runs that have begun."""
    made = [planned_unit(n) for n in range(4)]
    ledger.write_plan(ASSET, [partition_plan(A, made)])
    ledger.begin_run(run_row("r1", [A]))
    ledger.begin_run(run_row("r2", [A]))
    return made


def row_of(ledger: Ledger, unit: PlannedUnit) -> UnitRow:
    found = ledger.unit(unit.key)
    assert found is not None
    return found


def test_each_unit_is_won_once(ledger: Ledger, units: list[PlannedUnit]) -> None:
    """A unit that one run started is not another's to start; unknown keys are nobody's."""
    keys = [unit.key for unit in units]
    assert ledger.start_attempts("r1", [*keys[:2], "unknown"]) == dict.fromkeys(keys[:2], 1)
    assert ledger.start_attempts("r2", keys) == dict.fromkeys(keys[2:], 1)
    assert ledger.start_attempts("r2", keys) == {}
    assert ledger.start_attempts("r2", []) == {}


def test_an_attempt_is_recorded_before_its_work(ledger: Ledger, units: list[PlannedUnit]) -> None:
    """The start of an attempt is in the history at once, with its run and no end."""
    start_one(ledger, "r1", units[0])
    (entry,) = ledger.history(units[0].key)
    assert (entry.what, entry.run_id, entry.number, entry.outcome, entry.ended_at) == ("attempt", "r1", 1, None, None)
    assert row_of(ledger, units[0]).state is UnitState.RUNNING


def test_completion_keeps_the_facts_of_the_output(ledger: Ledger, units: list[PlannedUnit], clock: MovableClock) -> None:
    """A completed unit has its output's URI, digest, size and metrics, and the time of its record."""
    attempt = start_one(ledger, "r1", units[0])
    now = clock.advance(seconds=5)
    done = completion(units[0], attempt)
    assert ledger.complete("r1", [done]) == {units[0].key}
    row = row_of(ledger, units[0])
    assert (row.state, row.output_digest, row.output_size) == (UnitState.COMPLETE, done.digest, done.size_bytes)
    assert (row.metrics, row.completed_at, row.run_id) == (done.metrics, now, "r1")
    (entry,) = ledger.history(units[0].key)
    assert (entry.outcome, entry.ended_at, entry.duration_s) == (AttemptOutcome.SUCCEEDED, now, 0.25)


@pytest.mark.parametrize("ending", ["complete", "fail"])
def test_a_late_writer_changes_nothing(ledger: Ledger, units: list[PlannedUnit], ending: str) -> None:
    """A run that was taken over can neither complete nor fail the attempt it had, before, during or after the next one."""
    late = start_one(ledger, "r1", units[0])

    def speak_late() -> bool:
        if ending == "complete":
            return bool(ledger.complete("r1", [completion(units[0], late, digest="f" * 64)]))
        return bool(ledger.fail("r1", [failure(units[0], late)]))

    ledger.take_over("r2", ASSET, [A], boot_id=BOOT)
    assert not speak_late()
    attempt = start_one(ledger, "r2", units[0])
    assert not speak_late()
    ledger.complete("r2", [completion(units[0], attempt)])
    before = (row_of(ledger, units[0]), ledger.history(units[0].key))
    assert not speak_late()
    assert (row_of(ledger, units[0]), ledger.history(units[0].key)) == before
    assert before[0].output_digest == completion(units[0], attempt).digest


def test_the_same_run_cannot_record_an_earlier_attempt(ledger: Ledger, units: list[PlannedUnit]) -> None:
    """Also within one run, only the attempt that is running now can be recorded."""
    first = start_one(ledger, "r1", units[0])
    ledger.fail("r1", [failure(units[0], first)])
    second = start_one(ledger, "r1", units[0])
    assert ledger.complete("r1", [completion(units[0], first)]) == set()
    assert ledger.fail("r1", [failure(units[0], first)]) == {}
    assert ledger.complete("r1", [completion(units[0], second)]) == {units[0].key}


def test_retries_are_bounded_over_runs(ledger: Ledger, units: list[PlannedUnit], clock: MovableClock) -> None:
    """A transient failure is FAILED until its time, and the last counted attempt over all runs is a quarantine with a letter."""
    unit = units[0]
    later = START + timedelta(minutes=7)
    for number in range(1, ATTEMPTS_MAX):
        attempt = start_one(ledger, f"r{number}", unit)
        assert attempt == number
        assert ledger.fail(f"r{number}", [failure(unit, attempt, retry_at=later)]) == {unit.key: UnitState.FAILED}
        row = row_of(ledger, unit)
        assert (row.attempts, row.retry_at, row.error_kind, row.reason) == (number, later, ErrorKind.TIMEOUT, "it failed")
        assert list(ledger.dead_letters()) == []
        clock.advance(hours=1)
    attempt = start_one(ledger, "r9", unit)
    assert ledger.fail("r9", [failure(unit, attempt, retry_at=later)]) == {unit.key: UnitState.QUARANTINED}
    (letter,) = ledger.dead_letters()
    assert (letter.attempts, letter.verdict, letter.first_at, letter.last_at) == (ATTEMPTS_MAX, Verdict.RETRY, START, clock.now)
    assert ledger.start_attempts("r9", [unit.key]) == {}


def test_a_quarantine_has_one_letter_at_once(ledger: Ledger, units: list[PlannedUnit]) -> None:
    """A verdict of QUARANTINE sets the unit aside with its reason, kind and audit hash; the others go on."""
    started = ledger.start_attempts("r1", [unit.key for unit in units])
    bad = failure(units[1], started[units[1].key], verdict=Verdict.QUARANTINE, kind=ErrorKind.CONTRACT_VIOLATED)
    assert ledger.fail("r1", [bad]) == {units[1].key: UnitState.QUARANTINED}
    assert len(ledger.complete("r1", [completion(units[0], 1), completion(units[2], 1)])) == 2
    (letter,) = ledger.dead_letters(kind="contract_violated")
    assert (letter.subject, letter.subject_key, letter.reason, letter.attempts) == ("unit", units[1].key, "it failed", 1)


@pytest.mark.parametrize(
    ("changes", "outcome", "is_suspect"),
    [
        ({"outcome": AttemptOutcome.VOID}, AttemptOutcome.VOID, False),
        ({"verdict": Verdict.STOP, "kind": ErrorKind.DISK_FULL}, AttemptOutcome.VOID, False),
        ({"outcome": AttemptOutcome.LOST, "charged": False}, AttemptOutcome.LOST, True),
    ],
)
def test_what_is_not_the_units_fault_is_not_counted(
    ledger: Ledger, units: list[PlannedUnit], changes: dict[str, object], outcome: AttemptOutcome, is_suspect: bool
) -> None:
    """VOID, STOP and an uncharged loss leave the unit PENDING, uncounted however often; a loss makes it suspect."""
    for _ in range(ATTEMPTS_MAX + 2):
        attempt = start_one(ledger, "r1", units[0])
        assert ledger.fail("r1", [failure(units[0], attempt, **changes)]) == {units[0].key: UnitState.PENDING}
    row = row_of(ledger, units[0])
    assert (row.attempts, row.suspect) == (0, is_suspect)
    assert {(entry.outcome, entry.is_counted) for entry in ledger.history(units[0].key)} == {(outcome, False)}
    assert list(ledger.dead_letters()) == []


def test_a_charged_loss_counts(ledger: Ledger, units: list[PlannedUnit]) -> None:
    """A unit that killed its worker alone is charged, and quarantined at the bound."""
    found = []
    for _ in range(ATTEMPTS_MAX):
        attempt = start_one(ledger, "r1", units[0], alone=True)
        found += ledger.fail("r1", [failure(units[0], attempt, outcome=AttemptOutcome.LOST, kind=ErrorKind.WORKER_LOST)]).values()
    assert found == [UnitState.FAILED] * (ATTEMPTS_MAX - 1) + [UnitState.QUARANTINED]
    assert next(ledger.dead_letters()).kind == ErrorKind.WORKER_LOST


def test_success_clears_suspicion_and_reason(ledger: Ledger, units: list[PlannedUnit]) -> None:
    """A unit that succeeds after a loss is no longer suspect and says no reason."""
    ledger.fail("r1", [failure(units[0], start_one(ledger, "r1", units[0]), outcome=AttemptOutcome.LOST, charged=False)])
    ledger.complete("r1", [completion(units[0], start_one(ledger, "r1", units[0], alone=True))])
    row = row_of(ledger, units[0])
    assert (row.suspect, row.reason, row.error_kind, row.retry_at) == (False, None, None, None)


def test_one_bad_input_is_one_letter(ledger: Ledger, units: list[PlannedUnit]) -> None:
    """Units that meet one rejected input are quarantined without letters of their own; the input has one, in one call or many."""
    started = ledger.start_attempts("r1", [unit.key for unit in units])
    made = [
        failure(u, started[u.key], verdict=Verdict.QUARANTINE, kind=ErrorKind.CORRUPT_INPUT, input_digest="bad") for u in units
    ]
    ledger.fail("r1", made[:2])
    ledger.fail("r1", made[2:])
    assert {row.state for row in ledger.planned(ASSET, [A])} == {UnitState.QUARANTINED}
    (letter,) = ledger.dead_letters()
    assert (letter.subject, letter.subject_key, letter.kind) == ("input", "bad", ErrorKind.CORRUPT_INPUT)
    assert set(ledger.rejected_inputs()) == {"bad"}
    assert {row.blocked_by for row in ledger.planned(ASSET, [A])} == {"bad"}


def test_adoption_needs_no_attempt(ledger: Ledger, units: list[PlannedUnit]) -> None:
    """An output that was found and verified completes a PENDING, FAILED or QUARANTINED unit, and closes its letter."""
    ledger.fail("r1", [failure(units[1], start_one(ledger, "r1", units[1]))])
    ledger.fail("r1", [failure(units[2], start_one(ledger, "r1", units[2]), verdict=Verdict.QUARANTINE)])
    running = start_one(ledger, "r1", units[3])
    assert ledger.adopt([completion(unit, 0) for unit in units]) == {unit.key for unit in units[:3]}
    assert list(ledger.dead_letters()) == []
    assert ledger.adopt([completion(unit, 0) for unit in units]) == set()
    assert [entry.what for entry in ledger.history(units[0].key)] == ["adopted"]
    assert ledger.complete("r1", [completion(units[3], running)]) == {units[3].key}


def test_a_second_unit_with_the_same_output_is_a_discrepancy(ledger: Ledger, units: list[PlannedUnit]) -> None:
    """Of two units with one output URI only one is ever complete; the other is quarantined by name and the group goes on."""
    started = ledger.start_attempts("r1", [unit.key for unit in units])
    uri = units[0].output_uri
    group = [completion(unit, started[unit.key]) for unit in units]
    group[2] = completion(units[2], started[units[2].key], output_uri=uri)
    assert ledger.complete("r1", group[:2]) == {units[0].key, units[1].key}
    assert ledger.complete("r1", group[2:]) == {units[3].key}
    row = row_of(ledger, units[2])
    assert (row.state, row.error_kind) == (UnitState.QUARANTINED, ErrorKind.DUPLICATE_KEY)
    (letter,) = ledger.dead_letters(kind=ErrorKind.DUPLICATE_KEY)
    assert letter.subject_key == units[2].key
    assert units[0].key[:16] in letter.reason


def test_two_units_with_one_output_in_one_group(ledger: Ledger, units: list[PlannedUnit]) -> None:
    """Also when both are recorded in one group, one wins and the other is named."""
    started = ledger.start_attempts("r1", [unit.key for unit in units])
    won = ledger.complete("r1", [completion(unit, started[unit.key], output_uri="one.tif") for unit in units[:2]])
    assert len(won) == 1
    assert sorted(row.state for row in ledger.planned(ASSET, [A]))[:2] == [UnitState.COMPLETE, UnitState.QUARANTINED]


def test_a_missing_output_returns_its_unit(ledger: Ledger, units: list[PlannedUnit]) -> None:
    """A record without its output goes back to PENDING with counted attempts begun again, and says why."""
    unit = units[0]
    ledger.fail("r1", [failure(unit, start_one(ledger, "r1", unit))])
    finish(ledger, "r1", [unit])
    keys = [item.key for item in units]
    assert ledger.return_to_pending(keys, reason="it is gone", kind=ErrorKind.OUTPUT_MISSING) == 1
    row = row_of(ledger, unit)
    assert (row.state, row.attempts, row.attempt, row.reason) == (UnitState.PENDING, 0, 2, "it is gone")
    assert [entry.what for entry in ledger.history(unit.key)] == ["attempt", "attempt", "returned"]
    finish(ledger, "r2", [unit])


def test_take_over_charges_only_a_proven_killer(ledger: Ledger, units: list[PlannedUnit]) -> None:
    """After a crash, the attempt that ran alone in an unended run of this boot is charged; those beside others are not."""
    start_one(ledger, "r1", units[0], alone=True)
    ledger.start_attempts("r1", [unit.key for unit in units[1:3]])
    assert ledger.take_over("r2", ASSET, [A], boot_id=BOOT) == 3
    rows = [row_of(ledger, unit) for unit in units]
    assert [row.state for row in rows] == [UnitState.PENDING] * 4
    assert [row.attempts for row in rows] == [1, 0, 0, 0]
    assert [row.suspect for row in rows] == [True, True, True, False]
    assert {entry.outcome for entry in ledger.history(units[0].key)} == {AttemptOutcome.LOST}
    assert ledger.take_over("r2", ASSET, [A], boot_id=BOOT) == 0


@pytest.mark.parametrize("why", ["power cut", "graceful end", "unknown run"])
def test_take_over_charges_nobody_for_power_cuts_and_deploys(ledger: Ledger, units: list[PlannedUnit], why: str) -> None:
    """Another boot of the machine, a run that ended, and a run nobody knows are no proof against a unit that ran alone."""
    start_one(ledger, "r1" if why != "unknown run" else "r7", units[0], alone=True)
    if why == "graceful end":
        ledger.end_run("r1", SUMMARY)
    ledger.take_over("r2", ASSET, [A], boot_id="boot-2" if why == "power cut" else BOOT)
    row = row_of(ledger, units[0])
    assert (row.state, row.attempts, row.suspect) == (UnitState.PENDING, 0, True)


def test_a_unit_that_kills_run_after_run_is_quarantined(ledger: Ledger, units: list[PlannedUnit]) -> None:
    """Attempts survive crashes: a unit that takes down every run it is alone in is quarantined at the bound."""
    for number in range(ATTEMPTS_MAX):
        ledger.begin_run(run_row(f"k{number}", [A]))
        start_one(ledger, f"k{number}", units[0], alone=True)
        ledger.take_over(f"k{number + 1}", ASSET, [A], boot_id=BOOT)
    assert row_of(ledger, units[0]).state is UnitState.QUARANTINED
    (letter,) = ledger.dead_letters()
    assert (letter.kind, letter.attempts) == (ErrorKind.WORKER_LOST, ATTEMPTS_MAX)


@pytest.mark.usefixtures("units")
def test_take_over_leaves_other_partitions_alone(ledger: Ledger) -> None:
    """Only the partitions whose lease was taken are taken over."""
    other = planned_unit(9)
    ledger.write_plan(ASSET, [partition_plan("w|b", [other])])
    attempt = start_one(ledger, "r1", other)
    assert ledger.take_over("r2", ASSET, [A], boot_id=BOOT) == 0
    assert ledger.complete("r1", [completion(other, attempt)]) == {other.key}


def test_history_tells_skips_and_attempts(ledger: Ledger, units: list[PlannedUnit], clock: MovableClock) -> None:
    """A unit's history says in time order when it was tried and when it was found done."""
    finish(ledger, "r1", [units[0]])
    clock.advance(hours=1)
    ledger.record_skips("r2", [units[0].key, units[0].key])
    ledger.record_skips("r2", [units[0].key])
    assert [(entry.what, entry.run_id) for entry in ledger.history(units[0].key)] == [("attempt", "r1"), ("skip", "r2")]
    with pytest.raises(LookupError, match="not begun"):
        ledger.record_skips("never begun", [units[0].key])


def test_the_five_numbers_come_from_rows(ledger: Ledger, units: list[PlannedUnit]) -> None:
    """Processed is what this run made, skipped what was there; the five add up to what is planned."""
    finish(ledger, "r1", [units[0]])
    finish(ledger, "r2", [units[1]])
    ledger.fail("r2", [failure(units[2], start_one(ledger, "r2", units[2]))])
    found = ledger.counts(run_id="r2")
    assert (found.processed, found.skipped, found.failed, found.quarantined, found.not_attempted) == (1, 1, 1, 0, 1)
    assert found.planned == 4
    ledger.fail("r2", [failure(units[3], start_one(ledger, "r2", units[3]), verdict=Verdict.QUARANTINE)])
    assert ledger.counts(asset=ASSET).quarantined == 1
    assert ledger.counts(asset=ASSET).processed == 2
    assert ledger.counts(window="elsewhere").planned == 0
    assert ledger.counts(partitions_of=(ASSET, [A]), run_id="r1").processed == 1
    ledger.write_plan(ASSET, [partition_plan(A, units[:1])])
    assert ledger.counts(asset=ASSET).planned == 1


def test_deferred_units_are_not_due(ledger: Ledger, units: list[PlannedUnit]) -> None:
    """A unit that was put off is not due before its time, PENDING or FAILED, and nothing is charged."""
    later = START + timedelta(hours=1)
    assert ledger.defer([unit.key for unit in units[:3]], retry_at=later, reason="source unwell") == 3
    (due,) = ledger.due_partitions(ASSET, now=START)
    assert (due.pending, due.pending_later, due.next_due, due.put_off) == (1, 3, later, 3)
    (due,) = ledger.due_partitions(ASSET, now=later)
    assert (due.pending, due.pending_later, due.put_off) == (4, 0, 3)


def test_failures_of_an_unwell_source_can_be_taken_back(ledger: Ledger, units: list[PlannedUnit]) -> None:
    """What a run charged while the source was unwell becomes VOID, also where it had led to a quarantine."""
    unit = units[0]
    ledger.fail("r1", [failure(unit, start_one(ledger, "r1", unit))])
    for _ in range(ATTEMPTS_MAX - 1):
        ledger.fail("r2", [failure(unit, start_one(ledger, "r2", unit))])
    assert row_of(ledger, unit).state is UnitState.QUARANTINED
    assert ledger.void_failures("r2", [unit.key], retry_at=START, reason="source unwell") == 1
    row = row_of(ledger, unit)
    assert (row.state, row.attempts) == (UnitState.PENDING, 1)
    assert list(ledger.dead_letters()) == []


def test_units_by_filter_and_prefix(ledger: Ledger, units: list[PlannedUnit]) -> None:
    """Units are found by state, window, product, keys and by the beginning of a key."""
    finish(ledger, "r1", units[:2])
    assert {row.key for row in ledger.units(state=UnitState.COMPLETE)} == {unit.key for unit in units[:2]}
    assert len(list(ledger.units(state=[UnitState.PENDING, UnitState.FAILED], window="2026-01-01", product="rgb"))) == 2
    assert len(list(ledger.units(asset=ASSET, limit=3))) == 3
    assert [row.key for row in ledger.units(keys=[units[3].key, "unknown"])] == [units[3].key]
    assert ledger.unit(units[0].key[:20]) == ledger.unit(units[0].key)
    assert ledger.unit("zz") is None
    with pytest.raises(LookupError, match="more than one"):
        ledger.unit("")
