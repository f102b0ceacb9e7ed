"""Rows that are outputs, captures and observations: what the ledger promises of them, on both databases."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from resources.errors import ErrorKind, UnitRejected
from resources.keys import digest_of
from resources.ledger import Capture, Ledger, Observation
from resources.row_tables import check_rows, is_row_uri, own_row, row_uri, uri_of_row
from resources.units import PlannedUnit, Row, UnitState
from tests.support.ledgers import ASSET, START, MovableClock, completion, partition_plan, planned_unit, start_one
from tests.support.rows import event_row, event_unit, record_row, record_unit

A = "w|a"
CAPTURE = Capture("b1/1 ☂.tif", "a" * 64, 2**40, 2**62, "b1", "w", START, {"width": 7, "icc": None})


def _plan(ledger: Ledger, *units: PlannedUnit) -> None:
    ledger.write_plan(ASSET, [partition_plan(A, units)])


def _complete(ledger: Ledger, unit: PlannedUnit, *rows: Row, run: str = "r1", **changes: Any) -> set[str]:
    return ledger.complete(run, [completion(unit, start_one(ledger, run, unit), rows=rows, **changes)])


def test_an_event_is_recorded_with_its_unit(ledger: Ledger) -> None:
    """Completing an event's unit writes the event, and the unit's digest and size are those of the event as it stands."""
    unit = event_unit(1)
    _plan(ledger, unit)
    assert _complete(ledger, unit, event_row(1)) == {unit.key}
    (event,) = ledger.events()
    assert (event.event_id, event.unit_key, event.window, event.at) == ("event-1", unit.key, unit.window, START)
    assert (event.detail, event.linked) == ({"algorithm": "sha256", "share": 0.5}, [["copy", "c" * 64]])
    (row,) = ledger.planned(ASSET, [A])
    assert ledger.output_sizes([unit.output_uri, row_uri("preservation_events", "none")]) == {unit.output_uri: row.output_size}
    assert ledger.output_digests([unit.output_uri]) == {unit.output_uri: row.output_digest}


def test_the_first_event_stays(ledger: Ledger, clock: MovableClock) -> None:
    """A second insert of an event changes nothing, and what is recorded of it is the event that stands."""
    unit = event_unit(1)
    _plan(ledger, unit)
    _complete(ledger, unit, event_row(1))
    before = list(ledger.events())
    ledger.return_to_pending([unit.key], reason="asked for", kind=ErrorKind.OUTPUT_MISSING)
    clock.advance(days=1)
    assert _complete(ledger, unit, event_row(1, outcome="fail"), run="r2") == {unit.key}
    assert list(ledger.events()) == before
    (row,) = ledger.planned(ASSET, [A])
    assert ledger.output_digests([unit.output_uri]) == {unit.output_uri: row.output_digest}


def test_a_late_writer_writes_no_row(ledger: Ledger) -> None:
    """Rows come from the attempt that wins the completion: one that was overtaken writes none."""
    unit = event_unit(1)
    _plan(ledger, unit)
    late = completion(unit, start_one(ledger, "r1", unit), rows=(event_row(1, outcome="fail"),))
    ledger.take_over("r2", ASSET, [A], boot_id="b")
    assert ledger.complete("r1", [late]) == set()
    assert list(ledger.events()) == []
    _complete(ledger, unit, event_row(1), run="r2")
    assert ledger.complete("r1", [late]) == set()
    assert [event.outcome for event in ledger.events()] == ["success"]


def test_a_crash_before_the_commit_leaves_neither(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row and completion are one transaction: a death between the two leaves no row and no completion."""
    unit = event_unit(1)
    _plan(ledger, unit)
    number = start_one(ledger, "r1", unit)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("resources.ledger.completions.reach", die)
        with pytest.raises(KeyboardInterrupt):
            ledger.complete("r1", [completion(unit, number, rows=(event_row(1),))])
    assert list(ledger.events()) == []
    assert [row.state for row in ledger.planned(ASSET, [A])] == [UnitState.RUNNING]


def test_events_by_window_digest_and_type(ledger: Ledger) -> None:
    """Events are found by window, by content digest and by type, in the order they were written, however many."""
    units = [event_unit(number) for number in range(2300)]
    _plan(ledger, *units)
    numbers = ledger.start_attempts("r1", [unit.key for unit in units])
    done = [
        completion(unit, numbers[unit.key], rows=(event_row(n, event_type="ab"[n % 2]),), output_uri=unit.output_uri)
        for n, unit in enumerate(units)
    ]
    assert len(ledger.complete("r1", done)) == 2300
    assert len(list(ledger.events(window=units[0].window))) == 2300
    assert list(ledger.events(window="other")) == []
    assert len(list(ledger.events(event_type="a"))) == 1150
    assert [event.event_id for event in ledger.events(content_digests=[digest_of(5), digest_of(7)])] == ["event-5", "event-7"]


def test_a_file_may_bring_rows(ledger: Ledger) -> None:
    """A unit whose output is a file may say rows too: they are written in the same transaction, also when it left the plan."""
    unit, leaver = planned_unit(1), planned_unit(2)
    _plan(ledger, unit, leaver)
    _complete(ledger, unit, event_row(1), Row("observations", {"uri": "u", "token": "t", "digest": "d"}))
    number = start_one(ledger, "r1", leaver)
    _plan(ledger, unit)
    assert ledger.complete("r1", [completion(leaver, number, rows=(event_row(2),))]) == set()
    _plan(ledger, unit, leaver)
    assert [row.state for row in ledger.planned(ASSET, [A])] == [UnitState.COMPLETE] * 2
    assert [event.unit_key for event in ledger.events()] == [unit.key, leaver.key]
    assert ledger.observations(["u", "v"]) == {"u": Observation("u", "t", "d", START)}


def test_a_record_is_upserted_with_its_history(ledger: Ledger, clock: MovableClock) -> None:
    """A differing record takes the place of the one before, which is kept; an equal one writes nothing."""
    unit = record_unit("s 1/ü", "2026-Q1")
    _plan(ledger, unit)
    _complete(ledger, unit, record_row("s 1/ü", "2026-Q1", revision="r1"), revision="r1")
    clock.advance(days=1)
    _plan(ledger, replace(unit, revision="r2"))
    _complete(ledger, unit, record_row("s 1/ü", "2026-Q1", revision="r2"), run="r2", revision="r2")
    (record,) = ledger.records()
    assert (record.site, record.revision, record.recorded_at) == ("s 1/ü", "r2", clock.now)
    (old,) = ledger.record_history(unit.key)
    assert (old.revision, old.recorded_at, old.left_at, old.why) == ("r1", START, clock.now, "replaced")
    assert old.fields == record.fields == {"height_m": 41.5, "ok": True}
    clock.advance(days=1)
    ledger.return_to_pending([unit.key], reason="asked for", kind=ErrorKind.OUTPUT_MISSING)
    _complete(ledger, unit, record_row("s 1/ü", "2026-Q1", revision="r2"), run="r3")
    assert list(ledger.records()) == [record]
    assert ledger.record_history(unit.key) == [old]


def test_a_second_report_for_a_site_and_period_is_a_conflict(ledger: Ledger) -> None:
    """Of two units with one site and period the first is recorded, and the second is quarantined and writes nothing."""
    first, second = record_unit("s1", "p", source="a"), record_unit("s1", "p", source="b")
    _plan(ledger, first, second)
    _complete(ledger, first, record_row("s1", "p", source="a"))
    assert _complete(ledger, second, record_row("s1", "p", source="b")) == set()
    assert [record.source_uri for record in ledger.records()] == ["a"]
    (letter,) = ledger.dead_letters()
    assert (letter.subject_key, letter.kind) == (second.key, ErrorKind.DUPLICATE_KEY)
    assert ledger.record_history(first.key) == []


def test_a_withdrawn_report_makes_room(ledger: Ledger) -> None:
    """When the report of a site and period is withdrawn and another is planned, its record goes to the history."""
    first, second = record_unit("s1", "p", source="a"), record_unit("s1", "p", source="b")
    _plan(ledger, first)
    _complete(ledger, first, record_row("s1", "p", source="a"))
    _plan(ledger)
    assert list(ledger.records()) == []
    _plan(ledger, second)
    assert _complete(ledger, second, record_row("s1", "p", source="b")) == {second.key}
    assert [record.source_uri for record in ledger.records()] == ["b"]
    assert [old.source_uri for old in ledger.record_history(first.key)] == ["a"]
    _plan(ledger, first)
    assert [row.state for row in ledger.planned(ASSET, [A])] == [UnitState.PENDING]


def test_what_the_work_found_is_the_revision(ledger: Ledger) -> None:
    """A completion's revision takes the place of the planned one; a plan with that revision leaves the unit alone."""
    unit = record_unit("s1", "p")
    _plan(ledger, replace(unit, revision="provisional"))
    _complete(ledger, unit, record_row("s1", "p"), revision="found")
    (row,) = ledger.planned(ASSET, [A])
    assert (row.state, row.revision) == (UnitState.COMPLETE, "found")
    assert ledger.write_plan(ASSET, [partition_plan(A, [replace(unit, revision="found")])]).new == 0
    assert [row.state for row in ledger.planned(ASSET, [A])] == [UnitState.COMPLETE]
    assert ledger.write_plan(ASSET, [partition_plan(A, [replace(unit, revision="corrected")])]).new == 1


def test_a_changed_row_is_found_and_set_aside(ledger: Ledger) -> None:
    """A row that somebody changed has another digest; set aside it is kept in the history, and its place is free."""
    unit = record_unit("s1", "p")
    _plan(ledger, unit)
    _complete(ledger, unit, record_row("s1", "p"))
    (row,) = ledger.planned(ASSET, [A])
    with ledger.writing() as connection:
        connection.execute(text("UPDATE inspection_records SET page_count = 9"))
    assert ledger.output_digests([unit.output_uri])[unit.output_uri] != row.output_digest
    assert ledger.set_rows_aside([unit.output_uri]) == 1
    assert ledger.output_sizes([unit.output_uri]) == {}
    assert [(old.page_count, old.why) for old in ledger.record_history(unit.key)] == [(9, "set aside")]


def test_a_file_is_captured_once_and_for_ever(ledger: Ledger) -> None:
    """A capture is kept whatever is said of its URI later; captures are found by URI, digest and window, the first one first."""
    twin = replace(CAPTURE, uri="b2/2.tif", batch="b2", window="w2")
    ledger.capture([CAPTURE, twin])
    ledger.capture([replace(CAPTURE, sha256="b" * 64, facts={})])
    assert list(ledger.captures()) == [CAPTURE, twin]
    assert list(ledger.captures(uris=[twin.uri, "none"])) == [twin]
    assert list(ledger.captures(sha256s=["a" * 64])) == [CAPTURE, twin]
    assert list(ledger.captures(window="w")) == [CAPTURE]
    assert list(ledger.captures(sha256s=["b" * 64])) == []


def test_the_newest_observation_stands(ledger: Ledger) -> None:
    """An observation of a URI takes the place of the one before."""
    later = Observation("u", "etag-2", "d2", START + timedelta(days=1))
    ledger.observe(Observation("u", "etag-1", "d1", START), Observation("v", "t", "d", START))
    ledger.observe(later)
    assert ledger.observations(["u"]) == {"u": later}


@pytest.mark.parametrize(
    ("table", "changes", "found"),
    [
        ("nonsense", {}, "no such table"),
        ("preservation_events", {"colour": "red"}, "it says colour"),
        ("preservation_events", {"agent": None}, "agent is None; allowed: text"),
        ("preservation_events", {"agent": "a\0b"}, "allowed: text"),
        ("preservation_events", {"agent": "\ud800"}, "allowed: text"),
        ("preservation_events", {"detail": {"x": object()}}, "cannot hold"),
        ("preservation_events", {"detail": {"x": float("nan")}}, "the number nan"),
        ("preservation_events", {"at": START.replace(tzinfo=None)}, "a time with a zone"),
        ("inspection_records", {"page_count": "3"}, "a whole number"),
    ],
)
def test_a_row_that_cannot_be_kept_is_one_units_failure(table: str, changes: dict[str, Any], found: str) -> None:
    """What a table cannot hold is rejected before anything is written, with the column and what is allowed."""
    values = record_row("s", "p").values if table == "inspection_records" else event_row(1).values
    with pytest.raises(UnitRejected, match=found) as caught:
        check_rows([Row(table, {**values, **changes})])
    assert caught.value.kind is ErrorKind.CONTRACT_VIOLATED


def test_the_uri_of_a_row_names_it() -> None:
    """A row's URI holds table and natural key, and keeps apart what only looks alike."""
    assert row_uri("inspection_records", "a/b", "c") != row_uri("inspection_records", "a", "b/c")
    assert uri_of_row(record_row("ü 1", "p")) == "row:inspection_records/%C3%BC%201/p"
    assert is_row_uri(row_uri("preservation_events", "e"))
    assert not is_row_uri("copies/a.jp2")
    with pytest.raises(UnitRejected, match="0 rows"):
        own_row(row_uri("preservation_events", "other"), [event_row(1)])
