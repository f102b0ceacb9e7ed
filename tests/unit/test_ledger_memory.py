"""What the ledger remembers beside units: store, pins, partitions, runs, requests, markers, alerts, completed rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import Table
from sqlalchemy.exc import IntegrityError as NotTwice

from resources.errors import IntegrityError
from resources.ledger import FilePin, Ledger, RequestRow
from resources.ledger.schema import alerts
from resources.ledger.schema_rows import preservation_events
from resources.units import RunOutcome, RunSummary, UnitState
from tests.support.ledgers import (
    ASSET,
    BOOT,
    START,
    MovableClock,
    failure,
    finish,
    partition_plan,
    planned_unit,
    run_row,
    start_one,
)

A, B = "w|a", "w|b"
PIN = FilePin(uri="s/a b\n☂.tif", size_bytes=2**40, mtime_ns=2**62, inode=2**62, sha256="a" * 64, first_seen=START)


def test_the_store_is_remembered_for_ever(ledger: Ledger) -> None:
    """A ledger belongs to one store: another one is refused and changes nothing."""
    assert ledger.remembered_store() is None
    ledger.remember_store("s1")
    ledger.remember_store("s1")
    with pytest.raises(IntegrityError, match="belongs to store s1"):
        ledger.remember_store("s2")
    assert ledger.remembered_store() == "s1"


def test_a_changed_file_is_pinned_again(ledger: Ledger) -> None:
    """Pins are kept by URI, exactly, and replaced when the file changed."""
    ledger.pin([PIN])
    assert ledger.pins([PIN.uri, "other"]) == {PIN.uri: PIN}
    changed = replace(PIN, sha256="b" * 64)
    ledger.pin([changed, replace(PIN, uri="z")])
    assert ledger.all_pins() == {PIN.uri: changed, "z": replace(PIN, uri="z")}


def test_inspections_are_remembered_by_digest(ledger: Ledger) -> None:
    """An inspection is found again under its digest, as plain values; the first one stays."""
    ledger.remember_inspection({"d1": {"crs": None, "bands": [1, 2]}, "d2": {}})
    ledger.remember_inspection({"d1": {"crs": "changed"}})
    assert ledger.inspection(["d1", "d2", "d3"]) == {"d1": {"crs": None, "bands": [1, 2]}, "d2": {}}


def test_partition_ids_are_small_and_stable(ledger: Ledger) -> None:
    """A partition keeps its number for ever, each asset its own, planned or not."""
    first = ledger.partition_ids(ASSET, [A, B])
    assert len(set(first.values())) == 2
    assert all(0 < number < 100 for number in first.values())
    ledger.write_plan(ASSET, [partition_plan(A, [planned_unit(1)]), partition_plan("w|c", [])])
    assert ledger.partition_ids(ASSET, [B, A, B]) == first
    assert not set(ledger.partition_ids("report", [A]).values()) & set(first.values())
    assert [row.partition for row in ledger.partition_rows(ASSET)] == [A, "w|c"]


def test_fences_only_rise(ledger: Ledger) -> None:
    """Every run that takes a partition raises its fence by one, and reads what it raised it to."""
    assert ledger.bump_fence(ASSET, [A, B]) == {A: 1, B: 1}
    assert ledger.bump_fence(ASSET, [A]) == {A: 2}
    assert ledger.fence(ASSET, [A, B, "unknown"]) == {A: 2, B: 1}


def test_holders_are_noted_and_cleared(ledger: Ledger) -> None:
    """Who took a lease last is on record until that run clears it."""
    ids = ledger.partition_ids(ASSET, [A, B])
    ledger.note_holder(list(ids.values()), run_id="r1", pid=7, host="h")
    ledger.note_holder([ids[B]], run_id="r2", pid=8, host="h")
    assert [(row.partition, row.run_id, row.pid, row.since) for row in ledger.holders()] == [
        (A, "r1", 7, START),
        (B, "r2", 8, START),
    ]
    ledger.clear_holder("r1")
    assert [row.partition for row in ledger.holders()] == [B]


def test_a_run_is_recorded_whole(ledger: Ledger, clock: MovableClock) -> None:
    """A run's start, heartbeat and end are read back as they were written."""
    run = run_row("r1", [A, B], requested_by="sensor")
    ledger.begin_run(run)
    assert ledger.run("r1") == replace(run, heartbeat_at=START)
    assert ledger.runs(unended=True) == [replace(run, heartbeat_at=START)]
    now = clock.advance(minutes=1)
    ledger.heartbeat("r1")
    summary = RunSummary(1, 2, 3, 4, 5, RunOutcome.PARTIAL, reason="source unwell")
    ledger.end_run("r1", summary)
    ended = ledger.run("r1")
    assert ended is not None
    assert (ended.heartbeat_at, ended.ended_at, ended.outcome) == (now, now, RunOutcome.PARTIAL)
    assert ended.summary is not None
    assert ended.summary["not_attempted"] == 5
    assert ledger.runs(unended=True) == []
    assert ledger.run("unknown") is None


def test_a_run_resumed_under_its_id_is_alive_again(ledger: Ledger) -> None:
    """A run begun again under one id is the new process's, and not ended."""
    ledger.begin_run(run_row("r1", [A]))
    ledger.end_run("r1", RunSummary(0, 0, 0, 0, 0, RunOutcome.STOPPED))
    ledger.begin_run(replace(run_row("r1", [A]), pid=99))
    found = ledger.run("r1")
    assert found is not None
    assert (found.pid, found.ended_at, found.outcome) == (99, None, None)


def test_due_partitions_say_what_and_when(ledger: Ledger) -> None:
    """Due are partitions with units PENDING, RUNNING or FAILED; settled ones and those of other assets are not among them."""
    units = [planned_unit(n) for n in range(6)]
    ledger.write_plan(ASSET, [partition_plan(A, units[:4]), partition_plan(B, units[4:5]), partition_plan("w|c", units[5:])])
    ledger.write_plan("other", [partition_plan(A, [planned_unit(9)], asset="other")])
    finish(ledger, "r1", units[4:5])
    soon, later = START + timedelta(minutes=1), START + timedelta(minutes=9)
    for unit, when in zip(units[:2], (soon, later), strict=True):
        ledger.fail("r1", [failure(unit, start_one(ledger, "r1", unit), retry_at=when)])
    start_one(ledger, "r1", units[2])
    first, second = ledger.due_partitions(ASSET, now=soon)
    assert (first.partition, first.pending, first.running, first.failed_due, first.failed_later) == (A, 1, 1, 1, 1)
    assert (first.next_due, first.attempt_sum, first.window, first.tile) == (soon, 3, "2026-01-01", A)
    assert (second.partition, second.pending, second.next_due) == ("w|c", 1, None)
    assert ledger.settled_partitions(ASSET) == {B}


def test_requests_are_numbered_and_the_latest_kept(ledger: Ledger, clock: MovableClock) -> None:
    """Request numbers are never given twice, also over two openings; each partition keeps its latest request."""
    assert [ledger.next_request_number() for _ in range(3)] == [1, 2, 3]
    ledger.write_requests(ASSET, [RequestRow(name, 1, "k1", clock.now, None, "REQUESTED") for name in (A, B)])
    now = clock.advance(minutes=1)
    ledger.write_requests(ASSET, [RequestRow(B, 2, "k2", now, "r2", "STARTED")])
    found = ledger.requests(ASSET)
    assert (found[A].run_key, found[A].number, found[A].state, found[A].run_id) == ("k1", 1, "REQUESTED", None)
    assert (found[B].run_key, found[B].requested_at, found[B].state, found[B].run_id) == ("k2", now, "STARTED", "r2")
    assert ledger.requests("other") == {}


def test_markers_are_set_and_cleared(ledger: Ledger) -> None:
    """A processed marker holds the fingerprints it was set with, until it is set anew or cleared."""
    assert ledger.marker(ASSET, "w") is None
    ledger.set_marker(ASSET, "w", manifest_fingerprint="m1", config_fingerprint="c1")
    ledger.set_marker(ASSET, "w", manifest_fingerprint="m2", config_fingerprint="c1")
    found = ledger.marker(ASSET, "w")
    assert found is not None
    assert (found.manifest_fingerprint, found.config_fingerprint, found.at) == ("m2", "c1", START)
    assert ledger.markers(ASSET) == {"w": found}
    assert ledger.confirm_marker(ASSET, "w", begun="c1", manifest_fingerprint="m3", config_fingerprint="c2")
    assert not ledger.confirm_marker(ASSET, "w", begun="c1", manifest_fingerprint="m4", config_fingerprint="c2")
    assert ledger.marker(ASSET, "w") is None


def test_one_alert_for_a_fact(ledger: Ledger, clock: MovableClock) -> None:
    """A fact is told once however often it is found; a standing one is told again daily until it is resolved, then silence."""
    day = timedelta(days=1)
    assert ledger.enqueue_alert("once", title="t", body="b", severity="error")
    assert not ledger.enqueue_alert("once", title="t", body="b", severity="error")
    assert ledger.enqueue_alert("stands", title="t", body="b", severity="error", is_standing=True)
    due = ledger.due_alerts(now=clock.now, repeat_every=day)
    assert [alert.fingerprint for alert in due] == ["once", "stands"]
    for alert in due:
        ledger.mark_alert_sent(alert.id, clock.now)
    assert ledger.due_alerts(now=clock.now, repeat_every=day) == []
    clock.advance(days=1)
    assert not ledger.enqueue_alert("stands", title="t", body="newer", severity="error", is_standing=True)
    assert [(alert.fingerprint, alert.body) for alert in ledger.due_alerts(now=clock.now, repeat_every=day)] == [
        ("stands", "newer")
    ]
    assert ledger.resolve_alerts(["stands"]) == 0
    assert ledger.resolve_alerts([]) == 1
    assert ledger.due_alerts(now=clock.advance(days=9), repeat_every=day) == []
    assert ledger.enqueue_alert("stands", title="t", body="b", severity="error", is_standing=True)
    assert len(ledger.due_alerts(now=clock.now, repeat_every=day)) == 1


def test_recorded_outputs_include_what_is_over(ledger: Ledger) -> None:
    """An output is on record while any unit, planned or over, is recorded to have made it, until it is forgotten."""
    old, new = planned_unit(1), planned_unit(1, version="2")
    ledger.write_plan(ASSET, [partition_plan(A, [old])])
    finish(ledger, "r1", [old])
    ledger.write_plan(ASSET, [partition_plan(A, [new])])
    assert ledger.recorded_outputs([old.output_uri, new.output_uri, "x"]) == {old.output_uri}
    after = START + timedelta(seconds=1)
    assert [row.key for row in ledger.superseded_outputs(before=after)] == [old.key]
    assert list(ledger.superseded_outputs(before=START)) == []
    assert not ledger.forget_output(new.key, before=after)
    assert ledger.forget_output(old.key, before=after)
    assert ledger.recorded_outputs([old.output_uri]) == set()
    ledger.write_plan(ASSET, [partition_plan(A, [old])])
    assert [row.state for row in ledger.planned(ASSET, [A])] == [UnitState.PENDING]


def test_times_are_exact_and_utc(ledger: Ledger, clock: MovableClock) -> None:
    """A time comes back equal to the microsecond and in UTC, whatever zone it was given in; one without a zone is refused."""
    for moment in (
        datetime(2026, 3, 29, 2, 30, 0, 1, tzinfo=timezone(timedelta(hours=5, minutes=45))),
        datetime(2026, 1, 1, tzinfo=UTC),
    ):
        clock.now = moment
        ledger.begin_run(replace(run_row("r", boot_id=BOOT), started_at=moment))
        found = ledger.run("r")
        assert found is not None
        assert found.started_at == moment
        assert found.started_at.utcoffset() == timedelta(0)
    with pytest.raises(Exception, match="with a zone"):
        ledger.begin_run(replace(run_row("r"), started_at=datetime(2026, 1, 1)))


@pytest.mark.parametrize(
    ("table", "values"),
    [
        (alerts, {"fingerprint": "f", "title": "t", "body": "b", "severity": "error", "is_standing": False, "created_at": START}),
        (
            preservation_events,
            {
                **dict.fromkeys(("event_id", "event_type", "content_digest", "operation", "outcome", "agent", "window"), "x"),
                **{"detail": "{}", "linked": "[]", "at": START, "unit_key": "a" * 64, "output_uri": "u", "size_bytes": 1},
            },
        ),
    ],
    ids=["alerts", "preservation_events"],
)
def test_the_database_itself_refuses_a_fact_twice(ledger: Ledger, table: Table, values: dict[str, object]) -> None:
    """Appended facts have their key under a unique constraint: also a writer that does not look first cannot write one twice."""
    with ledger.engine.begin() as connection:
        connection.execute(table.insert(), values)
    with pytest.raises(NotTwice), ledger.engine.begin() as connection:
        connection.execute(table.insert(), values)
